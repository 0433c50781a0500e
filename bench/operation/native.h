// Crosslane's own functions (crosslane.h), found in the process: a benchmark is not linked with them, since it may run without.
// It must not know the operations.
#pragma once

#include <crosslane/crosslane.h>

namespace crosslane::bench {

struct Native {
  decltype(&crosslane_prepare) prepare = nullptr;
  decltype(&crosslane_direct_calls) direct_calls = nullptr;
  decltype(&crosslane_allreduce_enqueue) allreduce = nullptr;
  decltype(&crosslane_reduce_enqueue) reduce = nullptr;
  decltype(&crosslane_broadcast_enqueue) broadcast = nullptr;
  decltype(&crosslane_allgather_enqueue) allgather = nullptr;
  decltype(&crosslane_reduce_scatter_block_enqueue) reduce_scatter = nullptr;
  decltype(&crosslane_alltoall_enqueue) alltoall = nullptr;
  decltype(&crosslane_gather_enqueue) gather = nullptr;
  decltype(&crosslane_scatter_enqueue) scatter = nullptr;

  /// Throws std::runtime_error where Crosslane is not in the process.
  static Native find();
};

}  // namespace crosslane::bench
