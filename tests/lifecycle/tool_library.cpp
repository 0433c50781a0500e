// The tool as a library to preload. It must not know Crosslane.
#include "tool.inc"
