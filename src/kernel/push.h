// A copy that may be called off until it has begun: to memory of a peer that would rather do without it than wait until this GPU has room for
// kernels. It must not know who waits for it, nor why it is called off.
#pragma once

#include "kernel/block.h"
#include "kernel/copy.h"
#include "kernel/ending.h"

#include <cstdint>

namespace crosslane::kernel {

/// Of a stream, in its GPU's memory; zero between launches.
struct PushControl {
  std::uint64_t came, verdict;  ///< Blocks that have begun; what the first of them has found, see PushCopy.
  std::uint64_t next, moved;    ///< Tiles that blocks have taken, and copied.
  std::uint64_t left;           ///< Blocks that are through.
};

/// Two words that lie where the GPU and who may call it off see them. Each use of them has a number of its own, and neither word is of this use
/// before.
///
///   begun             an observer of it may conclude
///   (another use)     nothing is copied yet; and nothing will be, for who has called it off before it saw this
///   begins            the kernel is there, and is about to look whether it was called off: the verdict follows at once
///   goes              it copies, whatever is called off from now on
///   stays_away        it was called off: it touches neither side any more
///
/// The kernel writes `begins`, then looks at the other word; who calls it off writes that one, then looks at this: with fences in between at
/// least one of the two sees the other.
struct Revocation {
  std::uint64_t* begun;
  const std::uint64_t* called_off;
  std::uint64_t use;  ///< A multiple of 4.

  CROSSLANE_DEVICE static constexpr std::uint64_t begins(std::uint64_t use) { return use + 1; }
  CROSSLANE_DEVICE static constexpr std::uint64_t goes(std::uint64_t use) { return use + 2; }
  CROSSLANE_DEVICE static constexpr std::uint64_t stays_away(std::uint64_t use) { return use + 3; }
  /// What the other word becomes.
  CROSSLANE_DEVICE static constexpr std::uint64_t off(std::uint64_t use) { return use + 1; }
};

struct PushParameters {
  std::uint64_t to, from, bytes;  ///< one at least
  std::uint64_t tile;             ///< bytes
  PushControl* control;
  Revocation revocation;
  Ending ending;  ///< written once all is copied, and only then
};

/// Blocks take tiles as they come: those that find room for themselves copy all, and the word tells of it, though others may not have begun.
/// These find nothing to do, and the last one to leave makes the control zero for the next launch.
struct PushCopy {
  using Parameters = PushParameters;
  static constexpr std::uint64_t shared_bytes = 2 * sizeof(std::uint64_t);

  template <Block B>
  CROSSLANE_DEVICE void operator()(const B& block, const Parameters& p) const {
    PushControl* const control = p.control;
    if (block.all_of(1, [&](std::uint64_t) { return goes(block, p); })) copy(block, p);
    if (block.rank() != 0 || block.add(&control->left, 1) + 1 != block.count()) return;
    block.store_now(&control->came, 0);
    block.store_now(&control->verdict, 0);
    block.store_now(&control->next, 0);
    block.store_now(&control->moved, 0);
    block.store_now(&control->left, 0);
  }

 private:
  // The first one that comes is running, so the others need not wait for long. One after another they need not wait at all.
  template <class B>
  CROSSLANE_DEVICE static bool goes(const B& block, const Parameters& p) {
    constexpr std::uint64_t copies = 1, copies_nothing = 2;
    PushControl* const control = p.control;
    if (block.add_now(&control->came, 1) != 0) {
      std::uint64_t verdict = 0;
      while (verdict == 0) verdict = block.load_now(&control->verdict);
      return verdict == copies;
    }
    const Revocation& may = p.revocation;
    block.store_and_fence(may.begun, Revocation::begins(may.use));
    const bool goes = block.load_now(may.called_off) != Revocation::off(may.use);
    block.store_now(may.begun, goes ? Revocation::goes(may.use) : Revocation::stays_away(may.use));
    block.store_now(&control->verdict, goes ? copies : copies_nothing);
    return goes;
  }

  // The next tile is asked for before this one is copied, so that the answer is there when it is wanted.
  template <class B>
  CROSSLANE_DEVICE static void copy(const B& block, const Parameters& p) {
    PushControl* const control = p.control;
    std::uint64_t* const taken = block.template shared<std::uint64_t>();  // by rounds of both parities
    const std::uint64_t tiles = (p.bytes + p.tile - 1) / p.tile;
    const bool asks = block.rank() == 0;
    std::uint64_t moved = 0, next = asks ? block.add_now(&control->next, 1) : 0;
    for (;; ++moved) {
      if (asks) taken[moved % 2] = next;
      block.barrier();
      const std::uint64_t mine = taken[moved % 2];
      if (mine >= tiles) break;
      if (asks) next = block.add_now(&control->next, 1);
      const std::uint64_t start = mine * p.tile, left = p.bytes - start;
      detail::copy_bytes(block, p.to + start, p.from + start, left < p.tile ? left : p.tile, block.rank(),
                         block.size());
    }
    // The last barrier has this block's stores before what its first thread adds, and so before the word.
    if (!asks || moved == 0 || block.add(&control->moved, moved) + moved != tiles) return;
    block.post(p.ending.word, p.ending.value);
  }
};

}  // namespace crosslane::kernel
