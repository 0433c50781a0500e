// See death.h.
#include "support/death.h"

#include "support/check.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace crosslane::tests {

void die() {
  bool unlocked = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:crosslane ")) continue;
    struct flock all{};
    all.l_type = F_UNLCK;
    all.l_whence = SEEK_SET;
    unlocked = fcntl(std::stoi(entry.path().filename()), F_OFD_SETLK, &all) == 0;
  }
  CROSSLANE_CHECK(unlocked, "the node's memory was not found");
  for (;;) raise(SIGSTOP);
}

void await_death(pid_t process) {
  for (std::string stat; stat.find(") T") == std::string::npos; sched_yield())
    std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), stat);
}

}  // namespace crosslane::tests
