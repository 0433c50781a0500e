// The kernels for small messages, whose data carries its flags. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_LOW_LATENCY_KERNELS(CROSSLANE_TEAM_ENTRY)

#define CROSSLANE_ROW(op_name, functor, element, type)              \
  CROSSLANE_TEAM_ENTRY(crosslane_low_latency_##op_name##_##element, \
                       crosslane::kernel::LowLatencyCombine<type, crosslane::kernel::op::functor>)
CROSSLANE_COMBINATIONS(CROSSLANE_ROW)

#undef CROSSLANE_ROW
#define CROSSLANE_ROW(op_name, functor, element, type)                     \
  CROSSLANE_TEAM_ENTRY(crosslane_low_latency_shares_##op_name##_##element, \
                       crosslane::kernel::LowLatencyShares<type, crosslane::kernel::op::functor>)
CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)
