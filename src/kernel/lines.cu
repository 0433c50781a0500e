// The kernels for middling messages, whose data carries its flags line by line. See gpu_entries.h.
#include "kernel/gpu_entries.h"

CROSSLANE_LINES_KERNELS(CROSSLANE_TEAM_ENTRY)
