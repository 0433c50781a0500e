// The kernels for large all-reduces, pipelined chunk by chunk. See gpu_entries.h.
#include "kernel/gpu_entries.h"

#define CROSSLANE_ROW(op_name, functor, element, type)            \
  CROSSLANE_TEAM_ENTRY(crosslane_pipelined_##op_name##_##element, \
                       crosslane::kernel::PipelinedReduction<type, crosslane::kernel::op::functor>)
CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)
