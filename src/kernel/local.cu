// The reductions that one GPU runs by itself. See gpu_entries.h.
#include "kernel/gpu_entries.h"

#define CROSSLANE_ROW(op_name, functor, element, type)         \
  CROSSLANE_LOCAL_ENTRY(crosslane_local_##op_name##_##element, \
                        crosslane::kernel::Reduce<type, crosslane::kernel::op::functor>)
CROSSLANE_COMBINATIONS(CROSSLANE_ROW)
