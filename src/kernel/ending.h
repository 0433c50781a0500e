// Words that tell others of the end of a launch: those that its stream writes take a GPU 1.7 us each, one behind the other.
// It must not know whose words they are, nor what waits for them.
#pragma once

#include "kernel/block.h"

#include <cstdint>

namespace crosslane::kernel {

/// What a word in memory that others see becomes when all blocks are through.
struct Ending {
  std::uint64_t* word;
  std::uint64_t value;
};

/// By all threads of all blocks, once each has done its part. `counter` is of the stream alone, 0 between launches.
///
///   counter   observer                what it may do
///   < count   a block that adds one   nothing: other blocks are still at work
///   = count   the block that made it so   all others have added theirs, each after its threads' stores: writes the words, sets it to 0
///   0         the stream's next launch    count anew, as launches of one stream do not overlap
template <class B>
CROSSLANE_DEVICE void tell_end(const B& block, std::uint64_t* counter, const Ending* ending, std::uint32_t endings) {
  block.barrier();  // this block's stores are before what its first thread adds
  if (!block.all_of(1, [&](std::uint64_t) { return block.add(counter, 1) + 1 == block.count(); })) return;
  block.for_each(endings, [&](std::uint64_t i) { block.post(ending[i].word, ending[i].value); });
  if (block.rank() == 0) block.store_now(counter, 0);
}

}  // namespace crosslane::kernel
