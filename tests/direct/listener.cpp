// See listener.h.
#include "direct/listener.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

namespace crosslane::tests {

Told::Told(const Program& program) : makes_(program.rank == 0) {
  std::array<char, 64> folder{"/tmp/crosslane_direct_XXXXXX"};
  if (makes_ && mkdtemp(folder.data()) == nullptr) std::abort();
  CROSSLANE_MPI(MPI_Bcast(folder.data(), static_cast<int>(folder.size()), MPI_CHAR, 0, MPI_COMM_WORLD));
  folder_ = folder.data();
  path_ = folder_ + "/told";
}

Told::~Told() {
  if (makes_) std::filesystem::remove_all(folder_);
}

void Told::await() const {
  CROSSLANE_STEP("until the watchdog has told who is missing");
  while (access(path_.c_str(), F_OK) != 0) sched_yield();
}

Listener::Listener(std::string path, std::vector<std::string> texts)
    : path_(std::move(path)), texts_(std::move(texts)), real_(dup(STDERR_FILENO)) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) std::abort();
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  from_ = ends[0];
  reader_ = std::thread([this] { read_all(); });
}

Listener::~Listener() {
  dup2(real_, STDERR_FILENO);  // the last writer of the pipe: its reader ends
  reader_.join();
  close(from_);
  close(real_);
}

void Listener::read_all() {
  std::string text;
  std::array<char, 512> some{};
  for (ssize_t got = 0; (got = ::read(from_, some.data(), some.size())) > 0;) {
    if (write(real_, some.data(), static_cast<std::size_t>(got)) < 0) continue;
    text.append(some.data(), static_cast<std::size_t>(got));
    std::size_t at = 0;
    for (const std::string& each : texts_)
      if (at != std::string::npos) at = text.find(each, at);
    if (at != std::string::npos) close(open(path_.c_str(), O_CREAT | O_WRONLY, 0600));
  }
}

}  // namespace crosslane::tests
