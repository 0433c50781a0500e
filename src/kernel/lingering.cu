// The kernels that stay for the next calls. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_LINGERING_KERNELS(CROSSLANE_TEAM_ENTRY)

#define CROSSLANE_ROW(op_name, functor, element, type)                                                          \
  CROSSLANE_TEAM_ENTRY(                                                                                         \
      crosslane_lingering_combine_##op_name##_##element,                                                        \
      crosslane::kernel::Lingering<crosslane::kernel::LowLatencyCombine<type, crosslane::kernel::op::functor>>) \
  CROSSLANE_TEAM_ENTRY(                                                                                         \
      crosslane_lingering_shares_##op_name##_##element,                                                         \
      crosslane::kernel::Lingering<crosslane::kernel::LowLatencyShares<type, crosslane::kernel::op::functor>>)  \
  CROSSLANE_TEAM_ENTRY(                                                                                         \
      crosslane_lingering_exchange_##op_name##_##element,                                                       \
      crosslane::kernel::Lingering<crosslane::kernel::ExchangeCombine<type, crosslane::kernel::op::functor>>)
CROSSLANE_PIPELINED_COMBINATIONS(CROSSLANE_ROW)
