// Carry: contiguous bytes from memory that this GPU reaches to its own, by a kernel that may stay for the next ones (lingering.h): a team of one,
// whose call is over when the word of who waits for it says so. It must not know messages.
#pragma once

#include "kernel/move.h"
#include "kernel/team.h"

#include <cstdint>

namespace crosslane::kernel {

struct CarryParameters {
  Frame frame;  ///< Of one member. `done` differs from call to call.
  std::uint64_t from, to, bytes;
};

struct Carry {
  using Parameters = CarryParameters;

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    const Launch<B> launch(block, p.frame);
    const Slice slice = slice_of(p.bytes, block.index(), block.count());
    // Several words of each thread in flight however short it is.
    spread_bytes(
        block, p.from + slice.begin, slice.end - slice.begin, 1, [&](std::uint32_t) { return p.to + slice.begin; }, 0);
    launch.finish();
  }
};

}  // namespace crosslane::kernel
