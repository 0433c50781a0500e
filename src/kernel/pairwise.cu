// The kernels that move between pairs of members. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_PAIRWISE_KERNELS(CROSSLANE_TEAM_ENTRY)
