// The kernels for middling messages, whose data carries its flags line by line. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_LINES_KERNELS(CROSSLANE_TEAM_ENTRY)

#define CROSSLANE_ROW(op_name, functor, element, type) \
  CROSSLANE_TEAM_ENTRY(                                \
      crosslane_lines_##op_name##_##element,           \
      crosslane::kernel::LowLatencyShares<type, crosslane::kernel::op::functor, crosslane::kernel::Lines>)
CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)
