// Ferry: payloads of random lengths in random chunks, by several owners that are asked well ahead, with ranks as threads so that
// ThreadSanitizer sees them: what is taken is what was filled in, in the order in which it was asked for, whatever all sides' pace; a
// payload that is broken off, or abandoned because its owner is gone, does not touch the next one.
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
  std::atomic<std::uint64_t> asked{0}, gone{0};

  // How long each is, and how far it comes.
  enum class End : std::uint8_t { whole, broken, dead };
  struct Plan {
    std::size_t bytes, sent;
    End end;
  };
  std::vector<Plan> plans;
  std::mt19937 random(seed);
  for (std::uint64_t i = 0; i < payloads; ++i) {
    const std::size_t bytes = random() % (4 * Ferry::most_chunk_bytes) + 1;
    const auto dice = random() % 10;
    const End end = dice < 2 ? End::broken : dice < 4 ? End::dead : End::whole;
    plans.push_back({bytes, end == End::whole ? bytes : random() % bytes, end});
  }

  std::vector<std::thread> senders;
  for (int owner = 0; owner < owners; ++owner)
    senders.emplace_back([&, owner] {
      std::mt19937 lengths(seed + static_cast<std::uint32_t>(owner));
      for (auto number = static_cast<std::uint64_t>(owner); number < payloads; number += owners) {
        while (asked.load(std::memory_order_acquire) <= number) std::this_thread::yield();
        wait(ferry.turn(number));
        const auto& [bytes, sent, end] = plans[number];
        const auto whole = payload(number, bytes);
        for (std::size_t begin = 0; begin < sent;) {
          const std::size_t chunk = std::min<std::size_t>(lengths() % Ferry::most_chunk_bytes + 1, sent - begin);
          if (end == End::dead && !ferry.room().done()) break;
          wait(ferry.room());
          ferry.fill(std::span(whole).subspan(begin, chunk));
          begin += chunk;
        }
        if (end == End::dead) gone.store(number + 1, std::memory_order_release);
        if (end != End::broken) continue;
        wait(ferry.room());
        ferry.break_off();
      }
    });

  for (std::uint64_t number = 0; number < payloads; ++number) {
    for (std::uint64_t ahead = random() % 5 + 1; asked < std::min(payloads, number + ahead);) {
      EXPECT_EQ(ferry.next_number(), asked);
      asked.fetch_add(1, std::memory_order_release);
    }
    const auto& [bytes, sent, end] = plans[number];
    EXPECT_TRUE(ferry.turn(number).done());
    EXPECT_FALSE(ferry.turn(number + 1).done());
    std::vector<std::byte> taken;
    const auto take = [&] {
      const auto chunk = ferry.chunk();
      taken.insert(taken.end(), chunk.begin(), chunk.end());
      const bool ended = chunk.empty();
      ferry.take();
      return ended;
    };
    auto expected = payload(number, bytes);
    if (end == End::dead) {
      while (gone.load(std::memory_order_acquire) != number + 1) std::this_thread::yield();
      while (ferry.arrival().done() && random() % 2 == 0) EXPECT_FALSE(take());
      ferry.abandon_turn();
      expected.resize(taken.size());
    } else {
      bool ended = false;
      while (taken.size() < bytes && !ended) {
        wait(ferry.arrival());
        ended = take();
      }
      ferry.end_turn();
      EXPECT_EQ(ended, end == End::broken);
      expected.resize(sent);
    }
    EXPECT_EQ(taken, expected);
  }
  for (auto& sender : senders) sender.join();
}

}  // namespace
}  // namespace crosslane::share
