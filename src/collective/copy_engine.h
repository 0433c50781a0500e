// Large messages in buffers that every member can map, carried by the GPUs' copy engines, which leaves the multiprocessors to others.
// Kernels only say when buffers may be written, and when all is there. How fast the engines are: bench/results, 2026-11-26-4xH200.
#pragma once

#include "collective/catalogue.h"

namespace crosslane::collective::copy_engine {

/// Every block is copied once from its owner's buffer into its taker's: all-gather, all-to-all, gather, scatter.
[[nodiscard]] std::unique_ptr<Plan> prepare_push(const Call& call);
/// Each member combines a share of the elements in a kernel (pipelined.h), which copies then bring to all: all-reduce.
[[nodiscard]] std::unique_ptr<Plan> prepare_two_shot(const Call& call);

}  // namespace crosslane::collective::copy_engine
