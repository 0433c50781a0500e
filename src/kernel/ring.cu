// The kernels of rings. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_RING_KERNELS(CROSSLANE_TEAM_ENTRY)

#define CROSSLANE_ROW(op_name, functor, element, type)       \
  CROSSLANE_TEAM_ENTRY(crosslane_ring_##op_name##_##element, \
                       crosslane::kernel::RingReduction<type, crosslane::kernel::op::functor>)
CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)
