// Ferry: payloads of random lengths in random chunks, by several owners in turn, with ranks as threads so that ThreadSanitizer sees them: what
// is taken is what was filled in, whatever the two sides' pace, and a payload that is broken off does not touch the next one.
#include "share/ferry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace crosslane::share {
namespace {

void wait(const engine::Completion& completion) {
  while (!completion.done()) std::this_thread::yield();
}

std::vector<std::byte> payload(std::uint64_t number, std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  std::mt19937_64 random(number);
  std::ranges::generate(made, [&] { return static_cast<std::byte>(random()); });
  return made;
}

TEST(Ferry, CarriesPayloadsInTurn) {
  constexpr Shape empty{.ranks = 2, .lines_per_rank = 1, .lines_per_pair = 0};
  Shape shape = empty;
  shape.ferry_bytes = Ferry::bytes();
  const Directory directory{Segment::unshared(Directory::bytes_for(shape)), shape, 0};
  const Ferry ferry(directory, 1);
  constexpr std::uint64_t payloads = 300;
  constexpr int owners = 3;
  const auto seed = static_cast<std::uint32_t>(std::random_device{}());
  SCOPED_TRACE(seed);
  std::atomic<std::uint64_t> asked{0};

  // How long each is, and where it is broken off.
  struct Plan {
    std::size_t bytes, sent;
    bool broken;
  };
  std::vector<Plan> plans;
  std::mt19937 random(seed);
  for (std::uint64_t i = 0; i < payloads; ++i) {
    const std::size_t bytes = random() % (4 * Ferry::most_chunk_bytes) + 1;
    const bool broken = random() % 5 == 0;
    plans.push_back({bytes, broken ? random() % bytes : bytes, broken});
  }

  std::vector<std::thread> senders;
  for (int owner = 0; owner < owners; ++owner)
    senders.emplace_back([&, owner] {
      std::mt19937 lengths(seed + static_cast<std::uint32_t>(owner));
      for (auto number = static_cast<std::uint64_t>(owner); number < payloads; number += owners) {
        while (asked.load(std::memory_order_acquire) != number + 1) std::this_thread::yield();
        const auto& [bytes, sent, broken] = plans[number];
        const auto whole = payload(number, bytes);
        for (std::size_t begin = 0; begin < sent;) {
          const std::size_t chunk = std::min<std::size_t>(lengths() % Ferry::most_chunk_bytes + 1, sent - begin);
          wait(ferry.room());
          ferry.fill(std::span(whole).subspan(begin, chunk));
          begin += chunk;
        }
        if (!broken) continue;
        wait(ferry.room());
        ferry.break_off();
      }
    });

  for (std::uint64_t number = 0; number < payloads; ++number) {
    asked.store(number + 1, std::memory_order_release);
    const auto& [bytes, sent, broken] = plans[number];
    std::vector<std::byte> taken;
    bool ended = false;
    while (taken.size() < bytes && !ended) {
      wait(ferry.arrival());
      const auto chunk = ferry.chunk();
      ended = chunk.empty();
      taken.insert(taken.end(), chunk.begin(), chunk.end());
      ferry.take();
    }
    EXPECT_EQ(ended, broken);
    auto expected = payload(number, bytes);
    expected.resize(sent);
    EXPECT_EQ(taken, expected);
  }
  for (auto& sender : senders) sender.join();
}

}  // namespace
}  // namespace crosslane::share
