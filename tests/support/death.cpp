// See death.h.
#include "support/death.h"

#include "support/check.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace crosslane::tests {

namespace {

// Which ends with this process, as it knows once this returns.
void leave_a_child() {
  std::array<int, 2> ready{};
  char there = 0;
  CROSSLANE_CHECK_EQUAL(pipe(ready.data()), 0);
  if (fork() == 0) {
    const bool told = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && write(ready[1], &there, 1) == 1;
    while (told) pause();
    _exit(1);
  }
  CROSSLANE_CHECK_EQUAL(read(ready[0], &there, 1), ssize_t{1});
}

}  // namespace

void die() {
  leave_a_child();
  std::vector<int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:crosslane ")) continue;
    files.push_back(std::stoi(entry.path().filename()));
  }
  for (const int file : files) close(file);
  CROSSLANE_CHECK(!files.empty(), "the node's memory was not found");
  for (;;) raise(SIGSTOP);
}

void await_death(pid_t process) {
  for (std::string stat; stat.find(") T") == std::string::npos; sched_yield())
    std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), stat);
}

}  // namespace crosslane::tests
