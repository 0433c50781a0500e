// The rows of entries.h for the copies: apart from the rest, which a change of them then does not compile again.
#pragma once

#include "kernel/copy.h"
#include "kernel/push.h"
#include "kernel/swap.h"
#include "kernel/together.h"

// clang-format off: a table
#define CROSSLANE_COPY_KERNELS(X)                         \
  X(crosslane_copy_contiguous, crosslane::kernel::Copy)   \
  X(crosslane_copy_words, crosslane::kernel::WordsCopy)   \
  X(crosslane_copy_tiles, crosslane::kernel::TilesCopy)   \
  X(crosslane_copy_units, crosslane::kernel::UnitsCopy)   \
  X(crosslane_copy_together, crosslane::kernel::TogetherCopy) \
  X(crosslane_copy_push, crosslane::kernel::PushCopy) \
  X(crosslane_copy_swap, crosslane::kernel::Swap)
// clang-format on
