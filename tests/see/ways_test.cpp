// Which ways messages of patterns go that programs have, as the table of their calls tells. It must not know Crosslane.
//   --folder <folder>  where this test may write
//   --pattern late        rank 1 computes while its messages wait: after the first ones those of its sender need not wait for it
//   --pattern persistent  nothing but persistent requests: their messages are offered to be read from where they lie, but for the first ones
#include "see/told.h"
#include "support/program.h"
#include "support/sharing.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

// With a token; by a header; and from where it can be packed on.
constexpr std::array<int, 4> lengths{64, 2048, 32'768, 200'000};
constexpr int rounds = 30, faces = 6;

std::byte* face_of(const Memory& memory, int face, int bytes) {
  return static_cast<std::byte*>(memory.data()) + static_cast<std::ptrdiff_t>(face) * bytes;
}

void late(const Program& program, int bytes) {
  Memory memory(MemoryKind::device, static_cast<std::size_t>(bytes) * faces);
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {}, {} bytes", round, bytes);
    const std::vector<std::byte> sent = pattern(mix(round, bytes), memory.size());
    std::array<MPI_Request, faces> requests{};
    const auto all = [&](auto&& begin) {
      for (int face = 0; face < faces; ++face)
        CROSSLANE_MPI(begin(face_of(memory, face, bytes), face, &requests.at(face)));
      CROSSLANE_MPI(MPI_Waitall(faces, requests.data(), MPI_STATUSES_IGNORE));
    };
    if (program.rank == 0) {
      memory.write(sent);
      all([&](std::byte* data, int face, MPI_Request* request) {
        return MPI_Isend(data, bytes, MPI_BYTE, 1, face, MPI_COMM_WORLD, request);
      });
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds{8});
      all([&](std::byte* data, int face, MPI_Request* request) {
        return MPI_Irecv(data, bytes, MPI_BYTE, 0, face, MPI_COMM_WORLD, request);
      });
      CROSSLANE_CHECK(memory.read() == sent, "what came is not what was sent");
    }
  }
}

// All requests are made before any message has shown what memory the ranks have.
class Persistent {
 public:
  Persistent(const Program& program, int bytes)
      : program_(program),
        bytes_(bytes),
        out_(MemoryKind::device, static_cast<std::size_t>(bytes) * faces),
        in_(MemoryKind::device, out_.size()) {
    for (int face = 0; face < faces; ++face) {
      CROSSLANE_MPI(
          MPI_Recv_init(face_of(in_, face, bytes), bytes, MPI_BYTE, peer_, face, MPI_COMM_WORLD, &requests_.at(face)));
      CROSSLANE_MPI(MPI_Send_init(face_of(out_, face, bytes), bytes, MPI_BYTE, peer_, face, MPI_COMM_WORLD,
                                  &requests_.at(faces + face)));
    }
  }
  ~Persistent() {
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
  }
  Persistent(const Persistent&) = delete;
  Persistent& operator=(const Persistent&) = delete;

  void exchange(int round) {
    CROSSLANE_STEP("round {}, {} bytes", round, bytes_);
    out_.write(pattern(mix(program_.rank, round, bytes_), out_.size()));
    CROSSLANE_MPI(MPI_Startall(2 * faces, requests_.data()));
    CROSSLANE_MPI(MPI_Waitall(2 * faces, requests_.data(), MPI_STATUSES_IGNORE));
    CROSSLANE_CHECK(in_.read() == pattern(mix(peer_, round, bytes_), in_.size()), "what came is not what was sent");
  }

 private:
  const Program& program_;
  int bytes_, peer_ = 1 - program_.rank;
  Memory out_, in_;
  std::array<MPI_Request, 2 * faces> requests_{};
};

void persistent(const Program& program) {
  std::vector<std::unique_ptr<Persistent>> all;
  for (const int bytes : lengths) all.push_back(std::make_unique<Persistent>(program, bytes));
  for (int round = 0; round < rounds; ++round)
    for (const auto& each : all) each->exchange(round);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "see_ways");
  const std::string folder = program.text_option("folder", "."), which = program.text_option("pattern", "late");
  const int rank = program.rank;
  const bool in_turns = take_turns(MPI_COMM_WORLD);
  if (which == "persistent") persistent(program);
  for (const int bytes : lengths)
    if (which == "late") late(program, bytes);
  const auto [status, told] = finish_and_hear(program, folder);
  int all = 0, stored = 0, direct = 0;
  for (const auto& [row, calls] : counted(told, fmt::format("[rank {}] info: calls with GPU memory", rank))) {
    const auto& [call, route] = row;
    if (call != "MPI_Irecv" && call != "MPI_Recv_init") continue;
    all += route == "prepared" ? 0 : calls;
    stored += route == "stored" ? calls : 0;
    direct += route == "direct" ? calls : 0;
  }
  if (which != "late" || rank == 1) CROSSLANE_CHECK_EQUAL(all, static_cast<int>(lengths.size()) * rounds * faces);
  if (which == "persistent" && !in_turns)
    CROSSLANE_CHECK(direct + stored > all / 2, "{} of {} were offered\n{}", direct + stored, all, told);
  if (which == "late" && rank == 1 && !in_turns) {
    CROSSLANE_CHECK(stored > 0, "no message has waited\n{}", told);
    // Where one is tried anew, those that are under way beside it wait as well.
    CROSSLANE_CHECK(stored < all / 8, "{} of {} messages waited until they were copied to the host\n{}", stored, all,
                    told);
  }
  return failures() > 0 ? 1 : status;
}
