// Which ways messages of patterns go that programs have, as the table of their calls tells. It must not know Crosslane.
//   --folder <folder>  where this test may write
//   --pattern halo        MPI_Sendrecv along a line of ranks, beyond whose ends is MPI_PROC_NULL: what goes to a neighbour is not staged for that, and
//                         what goes to nobody is nothing
//   --pattern polls       rank 1 tests, or probes for, something else until its message is there, which the sender waits for
//   --pattern late        rank 1 computes while its messages wait: after the first ones those of its sender need not wait for it
//   --pattern alone       collectives of each rank by itself: what it sends is copied to where it receives, and MPI is not asked
//   --pattern persistent  nothing but persistent requests: their messages are offered to be read from where they lie, but for the first ones
#include "see/told.h"
#include "support/program.h"
#include "support/sharing.h"

#include <fmt/format.h>

#include <algorithm>
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

// The way to the right, then to the left. An end keeps what it has there, and its status says that nobody has sent.
void halo(const Program& program, int bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  Memory out(MemoryKind::device, size), in(MemoryKind::device, size);
  for (int round = 0; round < rounds; ++round) {
    for (const int step : {1, -1}) {
      CROSSLANE_STEP("round {}, {} bytes, {}", round, bytes, step > 0 ? "to the right" : "to the left");
      const auto neighbour = [&](int rank) { return rank < 0 || rank >= program.size ? MPI_PROC_NULL : rank; };
      const int to = neighbour(program.rank + step), from = neighbour(program.rank - step);
      const auto sent = [&](int rank) { return pattern(mix(rank, round, bytes, step), size); };
      const auto kept = pattern(mix(program.rank, round, bytes, 5), size);
      out.write(sent(program.rank));
      in.write(kept);
      MPI_Status status{};
      const bool replaces = round % 3 == 2;
      if (replaces) {
        in.write(sent(program.rank));
        CROSSLANE_MPI(
            MPI_Sendrecv_replace(in.data(), bytes, MPI_BYTE, to, round, from, round, MPI_COMM_WORLD, &status));
      } else {
        CROSSLANE_MPI(MPI_Sendrecv(out.data(), bytes, MPI_BYTE, to, round, in.data(), bytes, MPI_BYTE, from, round,
                                   MPI_COMM_WORLD, &status));
      }
      int count = -1;
      CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
      CROSSLANE_CHECK_EQUAL(status.MPI_SOURCE, from);
      CROSSLANE_CHECK_EQUAL(count, from == MPI_PROC_NULL ? 0 : bytes);
      const int whose = from != MPI_PROC_NULL ? from : program.rank;
      CROSSLANE_CHECK(in.read() == (from != MPI_PROC_NULL || replaces ? sent(whose) : kept), "what is there is wrong");
    }
    CROSSLANE_MPI(MPI_Send(out.data(), bytes, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(in.data(), bytes, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
}

// The sender's next message, of host memory, is what rank 1 looks for: it comes once the one before is on its way to the GPU.
void polls(const Program& program, int bytes) {
  Memory memory(MemoryKind::device, static_cast<std::size_t>(bytes));
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {}, {} bytes", round, bytes);
    const auto sent = pattern(mix(round, bytes), memory.size());
    int word = round;
    if (program.rank == 0) {
      memory.write(sent);
      CROSSLANE_MPI(MPI_Ssend(memory.data(), bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
      CROSSLANE_MPI(MPI_Send(&word, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
      continue;
    }
    MPI_Request payload = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(memory.data(), bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &payload));
    if (round % 2 == 0) {
      for (int there = 0; there == 0;) CROSSLANE_MPI(MPI_Iprobe(0, 2, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
      CROSSLANE_MPI(MPI_Irecv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &other));
      for (int there = 0; there == 0;) CROSSLANE_MPI(MPI_Test(&other, &there, MPI_STATUS_IGNORE));
    }
    CROSSLANE_CHECK_EQUAL(word, round);
    CROSSLANE_MPI(MPI_Wait(&payload, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(memory.read() == sent, "what came is not what was sent");
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

// Blocking and nonblocking, of a vector, in place, with a block that does not begin where the buffer does, between GPU and host memory.
void alone(const Program& program) {
  constexpr int count = 5000, apart = 3;
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(count, 1, apart, MPI_INT, &vector));
  CROSSLANE_MPI(MPI_Type_commit(&vector));
  MPI_Comm own = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, program.rank, 0, &own));
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_STEP("round {}", round);
    const MPI_Comm comm = round % 2 == 0 ? own : MPI_COMM_SELF;
    std::vector<int> sent(static_cast<std::size_t>(count) * apart);
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int>(mix(program.seed, round, i) % 1000);
    const std::vector<int> nothing(sent.size(), -1);
    Memory from(MemoryKind::device, sent.size() * sizeof(int)), to(MemoryKind::device, from.size());
    Memory on_host(MemoryKind::host, from.size());
    from.fill(sent);
    const auto reset = [&] { to.fill(nothing); };
    // What is at `place` of `memory`, `step` apart, is what is at `first` of what was sent, `of` apart.
    const auto holds = [&](const Memory& memory, std::size_t place, std::size_t step, std::size_t first,
                           std::size_t of) {
      std::vector<int> wanted = nothing;
      for (std::size_t i = 0; i < count; ++i) wanted[place + i * step] = sent[first + i * of];
      CROSSLANE_CHECK(memory.values<int>() == wanted, "the result is wrong");
    };
    reset();
    CROSSLANE_MPI(MPI_Allreduce(from.data(), to.data(), count, MPI_INT, MPI_SUM, comm));
    holds(to, 0, 1, 0, 1);
    reset();
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Iallgather(from.data(), 1, vector, to.data(), count, MPI_INT, comm, &request));
    CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    holds(to, 0, 1, 0, apart);
    reset();
    const int one = 1, length = count, behind = 7;
    const int start = 0;
    CROSSLANE_MPI(MPI_Alltoallv(from.data(), &one, &start, vector, to.data(), &length, &behind, MPI_INT, comm));
    holds(to, behind, 1, 0, apart);
    reset();
    CROSSLANE_MPI(MPI_Scatter(from.data(), count, MPI_INT, to.data(), 1, vector, 0, comm));
    holds(to, 0, apart, 0, 1);
    reset();
    CROSSLANE_MPI(MPI_Exscan(from.data(), to.data(), count, MPI_INT, MPI_SUM, comm));
    CROSSLANE_CHECK(to.values<int>() == nothing, "an exclusive scan of one rank has written something");
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, from.data(), count, MPI_INT, MPI_MAX, comm));
    CROSSLANE_MPI(MPI_Bcast(from.data(), count, MPI_INT, 0, comm));
    CROSSLANE_CHECK(from.values<int>() == sent, "what is in place has changed");
    // By the MPI: it takes what is sent for what there is, whatever there is room for.
    reset();
    CROSSLANE_MPI(MPI_Allgather(from.data(), count, MPI_INT, to.data(), count + 5, MPI_INT, comm));
    const auto there = to.values<int>();
    CROSSLANE_CHECK(std::equal(there.begin(), there.begin() + count, sent.begin()), "the result is wrong");
    on_host.fill(nothing);
    CROSSLANE_MPI(MPI_Reduce(from.data(), on_host.data(), count, MPI_INT, MPI_SUM, 0, comm));
    holds(on_host, 0, 1, 0, 1);
  }
  CROSSLANE_MPI(MPI_Comm_free(&own));
  CROSSLANE_MPI(MPI_Type_free(&vector));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "see_ways");
  const std::string folder = program.text_option("folder", "."), which = program.text_option("pattern", "late");
  const int rank = program.rank;
  const bool in_turns = take_turns(MPI_COMM_WORLD);
  if (which == "persistent") {
    persistent(program);
  } else if (which == "alone") {
    alone(program);
  } else {
    CROSSLANE_CHECK(which == "late" || which == "halo" || which == "polls", "no pattern '{}'", which);
    for (const int bytes : lengths) (which == "late" ? late : which == "halo" ? halo : polls)(program, bytes);
  }
  const auto [status, told] = finish_and_hear(program, folder);
  int all = 0, stored = 0, direct = 0, exchanged = 0, staged = 0, copied = 0;
  for (const auto& [row, calls] : counted(told, fmt::format("[rank {}] info: calls with GPU memory", rank))) {
    const auto& [call, route] = row;
    if (which == "alone") {
      CROSSLANE_CHECK_EQUAL(route, call == "MPI_Reduce" || call == "MPI_Allgather" ? "staged" : "copy");
      copied += route == "copy" ? calls : 0;
    }
    if (which == "halo") {
      CROSSLANE_CHECK(call.starts_with("MPI_Sendrecv"), "{} of nobody's messages are counted for {}", calls, call);
      exchanged += calls;
      staged += route == "staged" ? calls : 0;
    }
    if (call != "MPI_Irecv" && call != "MPI_Recv_init") continue;
    all += route == "prepared" ? 0 : calls;
    stored += route == "stored" ? calls : 0;
    direct += route == "direct" ? calls : 0;
  }
  if (which == "persistent" || (which == "late" && rank == 1))
    CROSSLANE_CHECK_EQUAL(all, static_cast<int>(lengths.size()) * rounds * faces);
  if (which == "alone") CROSSLANE_CHECK_EQUAL(copied, 7 * rounds);
  if (which == "halo") {
    // A half each, there and back, but for those with a neighbour in one direction alone. What has no header is staged.
    const int halves = (program.size == 1 ? 0 : rank == 0 || rank + 1 == program.size ? 2 : 4);
    CROSSLANE_CHECK_EQUAL(exchanged, static_cast<int>(lengths.size()) * rounds * halves);
    CROSSLANE_CHECK(in_turns || staged < exchanged / 2, "{} of {} halves were staged\n{}", staged, exchanged, told);
  }
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
