// What tests of a team's kernels share: members, random sizes and places, and every way of using the kernels, each compared with the
// host (team_combining.h, team_moving.h). It must not know which of them a test tries.
#pragma once

#include "team_machine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

namespace crosslane::test {

using kernel::Element;
using kernel::Op;

template <class Kind>
class TeamTest : public KernelTest<Kind> {
 protected:
  using OnGpu = typename KernelTest<Kind>::OnGpu;

  void SetUp() override {
    KernelTest<Kind>::SetUp();
    random_.seed(this->seed_ + 1);
  }

  // On the machine's own GPUs all members share one: so their blocks are few, and resident together.
  Members& members(std::uint32_t n) {
    auto& made = made_[n];
    if (!made) made = std::make_unique<Members>(this->driver(), n, std::is_same_v<Kind, Emulated> ? 0 : 1);
    return *made;
  }
  std::uint32_t some_members() { return static_cast<std::uint32_t>(this->between(1, 8)); }
  unsigned some_blocks() { return static_cast<unsigned>(this->between(1, 5)); }
  std::size_t some_shift(std::size_t unit) {
    switch (this->between(0, 3)) {
      case 0:
        return static_cast<std::size_t>(this->between(0, 15));
      case 1:
        return unit * static_cast<std::size_t>(this->between(0, 3));
      default:
        return 0;
    }
  }
  std::size_t some_count(std::size_t most) {
    switch (this->between(0, 5)) {
      case 0:
        return static_cast<std::size_t>(this->between(0, 3));
      case 1:
      case 2:
        return static_cast<std::size_t>(this->between(0, static_cast<std::int64_t>(std::min<std::size_t>(most, 40))));
      default:
        return static_cast<std::size_t>(this->between(0, static_cast<std::int64_t>(most)));
    }
  }
  std::vector<std::uint32_t> order(std::uint32_t n) {
    std::vector<std::uint32_t> all(n);
    std::iota(all.begin(), all.end(), 0U);
    std::shuffle(all.begin(), all.end(), random_);
    return all;
  }
  // A buffer of each member, in its GPU's memory.
  std::vector<OnGpu> buffers(Members& team, const std::vector<Bytes>& contents,
                             const std::vector<std::size_t>& shifts) {
    std::vector<OnGpu> result;
    for (std::uint32_t m = 0; m < team.count(); ++m) {
      const auto scope = team.enter(m);
      result.emplace_back(this->driver(), contents[m], shifts[m]);
    }
    return result;
  }
  std::vector<Bytes> elements(std::uint32_t n, Element element, std::size_t count) {
    std::vector<Bytes> result;
    for (std::uint32_t m = 0; m < n; ++m) result.push_back(random_elements(element, count, random_));
    return result;
  }
  std::vector<std::size_t> shifts(std::uint32_t n, std::size_t unit, bool alike) {
    std::vector<std::size_t> result;
    const auto first = some_shift(unit);
    for (std::uint32_t m = 0; m < n; ++m) result.push_back(alike ? first : some_shift(unit));
    return result;
  }
  static std::uint64_t address(const OnGpu& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data()); }

  // What members [first, last) of `in` combine to, in order.
  static Bytes fold(Op op, Element element, const std::vector<Bytes>& in, std::size_t first, std::size_t last) {
    Bytes result = in[first];
    for (std::size_t m = first + 1; m < last; ++m) {
      Bytes next = in[m];
      combine(op, element, result, next);
      result = next;
    }
    return result;
  }
  void expect_done(Members& team, const std::vector<std::uint64_t>& values) {
    for (std::uint32_t m = 0; m < team.count(); ++m) {
      EXPECT_EQ(team.done(m), values[m]);
      EXPECT_EQ(team.failed(m), 0U);
    }
  }

  std::vector<std::size_t> starts_of_shares(std::uint32_t n, std::size_t size, std::size_t count);
  void low_latency_all_reduce(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void low_latency_shares(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void exchange_one_shot(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void exchange_two_shot(Members& team, Op op, Element element, std::size_t count, unsigned blocks, bool zero_copy);
  void pipelined_reduction(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void ring(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void low_latency_all_to_all(Members& team, unsigned blocks) { all_to_all(team, blocks, Way::packets); }
  void line_all_to_all(Members& team, unsigned blocks) { all_to_all(team, blocks, Way::lines); }
  void pairwise_all_to_all(Members& team, unsigned blocks) { all_to_all(team, blocks, Way::pairwise); }
  void exchange_all_gather(Members& team, unsigned blocks, bool push);
  void exchange_spread(Members& team, unsigned blocks);
  void pushed_move(Members& team, unsigned blocks);

  std::mt19937_64 random_;

 private:
  enum class Way { packets, lines, pairwise };
  void all_to_all(Members& team, unsigned blocks, Way way);

  std::map<std::uint32_t, std::unique_ptr<Members>> made_;
};

}  // namespace crosslane::test
