// The parts of the program one_sided. It must not know Crosslane.
#pragma once

#include "support/program.h"

namespace crosslane::tests {

/// Random programs of one-sided communication, compared with the same in host memory.
void one_sided_epochs(Program& program);
/// What windows say of themselves; windows whose memory is the MPI's own.
void one_sided_attributes(Program& program);
/// Dynamic windows, to which memory is attached and from which it is detached.
void one_sided_dynamic(Program& program);
/// Threads that attach memory to one of them.
void one_sided_dynamic_threads(Program& program);
/// Wrong buffers are refused, and nothing else suffers.
void one_sided_wrong(Program& program);
/// Threads, each with a window of its own.
void one_sided_threads(Program& program);
/// What completes accesses.
void one_sided_completion(Program& program);
/// Threads that share a window.
void one_sided_sharing(Program& program);
/// Windows that come and go leave nothing.
void one_sided_many(Program& program);
/// Windows of which there is one copy.
void one_sided_unified(Program& program);
/// Many short accesses to one of them.
void one_sided_short(Program& program);

}  // namespace crosslane::tests
