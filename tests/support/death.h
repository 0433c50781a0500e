// A rank that dies while the job goes on. Launchers end jobs whose ranks die, so it is stopped, after it has closed the file by whose lock others know
// that it lives: that is all that this knows of Crosslane. A child of fork() lives on meanwhile, and is no rank.
#pragma once

#include <sys/types.h>

namespace crosslane::tests {

/// For Crosslane this process has ended. It is there until it is killed.
[[noreturn]] void die();

/// Returns once that process has.
void await_death(pid_t process);

}  // namespace crosslane::tests
