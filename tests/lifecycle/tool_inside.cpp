// The tool linked into the program. It must not know Crosslane.
#include "tool.inc"
