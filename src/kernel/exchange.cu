// The kernels that exchange data through peers' memory between barriers. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_EXCHANGE_KERNELS(CROSSLANE_TEAM_ENTRY)

#define CROSSLANE_ROW(op_name, functor, element, type)           \
  CROSSLANE_TEAM_ENTRY(crosslane_exchange_##op_name##_##element, \
                       crosslane::kernel::ExchangeCombine<type, crosslane::kernel::op::functor>)
CROSSLANE_COMBINATIONS(CROSSLANE_ROW)
