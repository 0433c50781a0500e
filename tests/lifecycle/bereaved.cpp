// See bereaved.h.
#include "bereaved.h"

#include "support/check.h"

#include <fmt/core.h>
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
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

// From now on what this process prints goes through a thread, which calls `heard` when those words come first.
void listen_for(std::string words, std::function<void()> heard) {
  std::array<int, 2> ends{};
  const int terminal = dup(STDERR_FILENO);
  CROSSLANE_CHECK(pipe(ends.data()) == 0 && dup2(ends[1], STDERR_FILENO) >= 0, "no pipe");
  std::thread([terminal, from = ends[0], words = std::move(words), heard = std::move(heard)] {
    std::string said;
    std::array<char, 4096> piece{};
    for (bool is_new = true;;) {
      const ssize_t got = read(from, piece.data(), piece.size());
      if (got <= 0 || write(terminal, piece.data(), static_cast<std::size_t>(got)) != got) _exit(1);
      said.append(piece.data(), static_cast<std::size_t>(got));
      if (is_new && said.find(words) != std::string::npos) {
        is_new = false;
        heard();
      }
    }
  }).detach();
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

void finalize_beside(pid_t dead, int survivors, const Words& words) {
  CROSSLANE_STEP("MPI_Finalize");
  listen_for("calls with GPU memory", [&] {
    if (++words.of(0) != survivors) return;
    fmt::print(stderr, "killing rank 1\n");
    kill(dead, SIGKILL);
  });
  MPI_Finalize();
  for (;;) pause();
}

}  // namespace crosslane::tests
