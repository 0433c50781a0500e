// How a rank dies in a job that goes on. Launchers end jobs whose ranks die, so it is stopped, after it has closed the file by whose lock others
// know that it lives: that, and what is printed last with CROSSLANE_STATS=1, is all that this knows of Crosslane. In the end it is killed.
#pragma once

#include "support/words.h"

#include <sys/types.h>

namespace crosslane::tests {

/// This rank, which does not return. A child of fork() lives on meanwhile, and is no rank.
[[noreturn]] void die();

/// Of the others: until it has died.
void await_death(pid_t process);

/// MPI_Finalize, of the survivors: beside the dead the MPI's own part may never end, so once Crosslane's has on all of them, the dead one is killed,
/// and with it the job, for which killed_test.sh looks. `words`: made before, none used. With CROSSLANE_STATS=1.
[[noreturn]] void finalize_beside(pid_t dead, int survivors, const Words& words);

}  // namespace crosslane::tests
