// What the watchdog says of messages that nobody sends or receives: for whom its rank waits, and with which tag. Rank 0 waits, and its lines go
// to a file in which rank 1 looks for what is expected before it comes.
#include "support/program.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int bytes = 1 << 20;
const MPI_Comm world = MPI_COMM_WORLD;

// While one lives, what this process writes to its standard error goes to the file.
class Redirected {
 public:
  explicit Redirected(const std::string& path) : kept_(dup(STDERR_FILENO)) {
    const int file = open(path.c_str(), O_WRONLY | O_TRUNC);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~Redirected() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  const int kept_;
};

std::string content(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Rank {
 public:
  explicit Rank(Program& program) : program_(program), peer_(1 - program.rank) {
    std::array<char, 64> path{"/tmp/crosslane_watched_XXXXXX"};
    if (program.rank == 0) close(mkstemp(path.data()));
    CROSSLANE_MPI(MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, world));
    path_ = path.data();
  }
  ~Rank() {
    if (program_.rank == 0) unlink(path_.c_str());
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run() {
    receives();
    sends();
    const std::string call = "MPI_Sendrecv on MPI_COMM_WORLD, call ";
    const auto both = [&](int tag, int other) {
      return [this, tag, other] {
        CROSSLANE_MPI(MPI_Sendrecv(out_.data(), bytes, MPI_BYTE, peer_, tag, in_.data(), bytes, MPI_BYTE, peer_, other,
                                   world, MPI_STATUS_IGNORE));
      };
    };
    late({call, ": waiting for a message from rank 1, tag 10; "}, both(9, 10), both(10, 9));
    late({call, "waiting for rank 1 to receive the message with tag 11; "}, both(11, 12), both(12, 11));
  }

 private:
  // Rank 0 does the one; rank 1 the other once all of this stands in one line, or never will.
  void late(const std::vector<std::string>& told, const std::function<void()>& first,
            const std::function<void()>& second) {
    CROSSLANE_STEP("until it is told: {}", told.back());
    if (program_.rank == 0) {
      const Redirected redirected(path_);
      polite_barrier();
      first();
    } else {
      polite_barrier();
      const bool found = comes(told);
      second();
      CROSSLANE_CHECK(found, "\"{}\" is not told, but: {}", told.back(), content(path_));
    }
    polite_barrier();
  }

  [[nodiscard]] bool comes(const std::vector<std::string>& told) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      std::stringstream lines(content(path_));
      for (std::string line; std::getline(lines, line);) {
        bool all = line.find("no progress for ") != std::string::npos;
        for (const std::string& part : told) all = all && line.find(part) != std::string::npos;
        if (all) return true;
      }
      sched_yield();
    }
    return false;
  }

  void receives() {
    const auto receive = [this](int source, int tag) {
      return [this, source, tag] {
        CROSSLANE_MPI(MPI_Recv(in_.data(), bytes, MPI_BYTE, source, tag, world, MPI_STATUS_IGNORE));
      };
    };
    const auto send = [this](int tag) {
      return [this, tag] { CROSSLANE_MPI(MPI_Send(out_.data(), bytes, MPI_BYTE, peer_, tag, world)); };
    };
    const std::string remedy = "see whether it is sent, with this tag and on this communicator";
    for (const int tag : {5, 6})  // another one the second time
      late({"MPI_Recv on MPI_COMM_WORLD, call ",
            fmt::format(": waiting for a message from rank 1, tag {}; {}", tag, remedy)},
           receive(1, tag), send(tag));
    late({"MPI_Recv on MPI_COMM_WORLD, call ", ": waiting for a message from MPI_ANY_SOURCE, MPI_ANY_TAG; " + remedy},
         receive(MPI_ANY_SOURCE, MPI_ANY_TAG), send(5));
    const auto wait = [this] {
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Irecv(in_.data(), bytes, MPI_BYTE, 1, 7, world, &request));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    };
    late({"MPI_Wait on MPI_COMM_WORLD, call ", ": waiting for a message from rank 1, tag 7; " + remedy}, wait, send(7));
    const auto probe = [this] {
      CROSSLANE_MPI(MPI_Probe(1, 8, world, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Recv(in_.data(), bytes, MPI_BYTE, 1, 8, world, MPI_STATUS_IGNORE));
    };
    late({"MPI_Probe on MPI_COMM_WORLD, call ", ": waiting for a message from rank 1, tag 8; " + remedy}, probe,
         send(8));
  }

  void sends() {
    for (const int tag : {5, 6})
      late(
          {"MPI_Ssend on MPI_COMM_WORLD, call ",
           fmt::format(": waiting for rank 1 to receive the message with tag {}; see whether it does", tag)},
          [&] { CROSSLANE_MPI(MPI_Ssend(out_.data(), bytes, MPI_BYTE, peer_, tag, world)); },
          [&] { CROSSLANE_MPI(MPI_Recv(in_.data(), bytes, MPI_BYTE, peer_, tag, world, MPI_STATUS_IGNORE)); });
  }

  Program& program_;
  const int peer_;
  std::string path_;
  Memory out_{MemoryKind::device, bytes}, in_{MemoryKind::device, bytes};
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_watched");
  Rank(program).run();
  return program.finish();
}
