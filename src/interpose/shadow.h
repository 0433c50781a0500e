// The host copy of a window in GPU memory. In the terms of MPI's separate memory model (MPI 5.0, section 12.4) it is the window's
// public copy, which MPI works on; the GPU memory is the private one. It must not know which calls synchronise the two.
#pragma once

#include "interpose/process.h"
#include "lane/copier.h"
#include "layout/layout.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace crosslane::interpose {

/// It begins at a cache line, wherever the GPU memory does: MPICH 4.0 works on windows from the last multiple of 16 on.
/// What either side has changed since the last synchronisation is told by a third copy, of what both had then: only bytes that differ
/// from it are written to the other side. So a call may synchronise without knowing who wrote what, and disjoint changes
/// of both sides are kept. Not thread-safe.
class Shadow {
 public:
  /// `bytes` of GPU memory at `base`, more than none, whose contents become those of the host copy. Throws Error naming the
  /// argument `base` of `call` where the memory is not all there, Error (no_memory), or what the GPU reports.
  Shadow(Process& process, const char* call, void* base, MPI_Aint bytes);

  [[nodiscard]] void* base() const noexcept { return base_; }
  /// The same bytes, for MPI.
  [[nodiscard]] void* host() const noexcept { return public_; }

  /// What the application has stored in the GPU memory becomes visible to MPI. Throws what the GPU reports; as acquire().
  void publish(const char* call);
  /// What MPI has stored becomes visible in the GPU memory.
  void acquire(const char* call);

 private:
  struct Range {
    std::size_t begin, end;
  };
  struct Chunk;
  // Calls f(begin, now, length) for each part of the window, as the GPU has it now.
  template <class F>
  void for_each_part(const char* call, const F& f);
  void fetch(Chunk& chunk, Range what, const char* call) const;
  void write(Chunk& chunk, const char* call) const;
  void finish(Chunk& chunk);

  Process& process_;
  std::byte* base_;
  std::size_t bytes_;
  lane::Place place_;
  std::shared_ptr<const layout::Layout> byte_;
  std::unique_ptr<std::byte[]> memory_;  // of both copies
  std::byte *public_, *synchronised_;
};

}  // namespace crosslane::interpose
