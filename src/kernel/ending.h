// The end of a launch, which its last block comes to, and words that tell others of it: those that its stream writes take a GPU 1.7 us each, one
// behind the other. It must not know whose words they are, nor what waits for them.
#pragma once

#include "kernel/block.h"

#include <cstdint>

namespace crosslane::kernel {

/// What a word in memory that others see becomes when all blocks are through.
struct Ending {
  std::uint64_t* word;
  std::uint64_t value;
};

/// By one thread of each block, behind a barrier of the block: true for the last one. `counter` is of the stream alone, 0 between launches.
///
///   counter   observer                what it may do
///   < count   a block that adds one   nothing: other blocks are still at work
///   = count   the block that made it so   all others have added theirs, each after its threads' stores: sets it to 0, and tells of the end
///   0         the stream's next launch    count anew, as launches of one stream do not overlap, nor calls of one that stays (lingering.h)
///
/// Where the last one `vouches` for all blocks, to others than later launches of the stream, each releases what its threads did, and it acquires it.
template <class B>
CROSSLANE_DEVICE bool comes_last(const B& block, std::uint64_t* counter, bool vouches = true) {
  if (block.count() == 1) return true;
  if ((vouches ? block.add(counter, 1) : block.add_now(counter, 1)) + 1 != block.count()) return false;
  block.store_now(counter, 0);
  return true;
}

/// By all threads of all blocks, once each has done its part: true to all threads of the last block to come, which vouches for all.
template <class B>
CROSSLANE_DEVICE bool is_last_block(const B& block, std::uint64_t* counter) {
  block.barrier();  // this block's stores are before what its first thread adds
  return block.all_of(1, [&](std::uint64_t) { return comes_last(block, counter); });
}

/// The same, and the last block writes the words.
template <class B>
CROSSLANE_DEVICE void tell_end(const B& block, std::uint64_t* counter, const Ending* ending, std::uint32_t endings) {
  if (!is_last_block(block, counter)) return;
  block.for_each(endings, [&](std::uint64_t i) { block.post(ending[i].word, ending[i].value); });
}

}  // namespace crosslane::kernel
