// What tests of the datatype engine share: random layouts, and an engine on each machine.
#pragma once

#include "kernel_machine.h"
#include "lane/mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace crosslane::test {

using lane::Memory;
using lane::Mover;
using lane::Side;
using layout::Layout;
using layout::NodePointer;

// A layout and the bytes from its address on that it needs; no byte comes twice.
struct Made {
  NodePointer node;
  std::int64_t reach;
};

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  std::mt19937_64& engine() { return engine_; }

  /// `units` times `unit` bytes.
  Made make(std::int64_t units, std::int64_t unit, int depth) {
    const auto bytes = units * unit;
    const auto kind = depth == 0 || units < 2 ? 0 : between(0, 4);
    if (kind == 0) return {layout::block(0, static_cast<std::size_t>(bytes)), bytes};
    if (kind <= 2) {
      std::int64_t rounds = between(2, std::min<std::int64_t>(units, 60));
      while (units % rounds != 0) --rounds;
      const Made child = make(units / rounds, unit, depth - 1);
      const std::int64_t stride = child.reach + unit * between(0, 4);
      const bool backwards = between(0, 3) == 0;
      auto node = layout::repeat(child.node, static_cast<std::uint64_t>(rounds), backwards ? -stride : stride);
      if (backwards) node = layout::shift(node, (rounds - 1) * stride);
      return {node, rounds * stride};
    }
    // Parts in any order, with gaps; of one length where kind is 3 and it works out.
    std::vector<Made> parts;
    const std::int64_t same = between(1, std::max<std::int64_t>(units / 3, 1));
    for (std::int64_t left = units; left > 0;) {
      const std::int64_t taken = kind == 3 ? std::min(same, left) : between(1, left);
      parts.push_back(make(taken, unit, static_cast<int>(between(0, depth - 1))));
      left -= taken;
    }
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine_);
    std::vector<layout::Placed> placed(parts.size());
    std::int64_t at = 0;
    for (const std::size_t i : order) {
      placed[i] = {at, parts[i].node};
      at += parts[i].reach + unit * between(0, 3);
    }
    return {layout::join(placed), at};
  }

 private:
  std::mt19937_64 engine_;
};

inline std::vector<std::int64_t> offsets_of(const Layout& layout, std::int64_t count) {
  std::vector<std::int64_t> offsets;
  layout.for_each_run(count, 0, layout.packed_size(count), [&](std::int64_t offset, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) offsets.push_back(offset + static_cast<std::int64_t>(i));
  });
  return offsets;
}

template <class Kind>
class MoverTest : public KernelTest<Kind> {
 protected:
  void SetUp() override {
    KernelTest<Kind>::SetUp();
    if (this->IsSkipped()) return;
    make_mover(std::size_t{16} << 20, 0);
  }
  void make_mover(std::size_t list_limit, unsigned blocks) {
    mover_.reset();
    settings_.list_limit = list_limit;
    settings_.copy_blocks = blocks;
    const auto driver = [this]() -> const gpu::Driver& { return this->driver(); };
    if (!pool_) pool_.emplace(driver, std::size_t{1} << 30);
    mover_.emplace(driver, *pool_, settings_);
  }
  Mover& mover() { return *mover_; }
  void copy(const Side& to, const Side& from, std::size_t begin, std::size_t end, Memory memory = Memory::gpu) {
    mover_->copy(this->context(), this->stream(), to, from, begin, end, memory);
  }

  base::Settings settings_;
  std::optional<lane::PinnedPool> pool_;
  std::optional<Mover> mover_;
};
struct Elements {
  Layout layout;
  std::int64_t count;
  std::size_t room;
};

inline Elements elements_of(Maker& maker, std::int64_t units, std::int64_t unit, int depth) {
  std::int64_t count = maker.between(1, 4);
  while (units % count != 0) --count;
  const Made made = maker.make(units / count, unit, depth);
  const std::int64_t extent = made.reach + unit * maker.between(0, 2);
  return {Layout(made.node, 0, extent), count, static_cast<std::size_t>(extent * count)};
}

}  // namespace crosslane::test
