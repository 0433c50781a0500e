// MPI_Neighbor_alltoallw of a graph whose ranks have as many edges in as they like, and others out: rank 0 sends some blocks to rank 1, which
// sends others back, or none, or empty ones. All of it GPU memory, with which MPICH 4.0 is not wrong in small counts. It must not know Crosslane.
#include "collectives/entry_points.h"
#include "support/plain_mpi.h"
#include "support/program.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int block = 96, stride = 160;

struct Edges {
  int in = 0, out = 0;
};
// From rank 0 to rank 1 so many, and back.
Edges edges_of(int rank, int there, int back) {
  if (rank > 1) return {};
  return rank == 0 ? Edges{back, there} : Edges{there, back};
}

template <class Count>
void exchange(const Program& program, const EntryPoint& entry, int there, int back, bool silent) {
  CROSSLANE_STEP("{}: {} edges, {} back{}", entry.name, there, back, silent ? ", of nothing" : "");
  const Edges edges = edges_of(program.rank, there, back);
  const std::vector<int> peers(4, 1 - program.rank);
  MPI_Comm graph = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, edges.in, peers.data(), MPI_UNWEIGHTED, edges.out,
                                               peers.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
  constexpr std::size_t room = std::size_t{4} * stride;
  Memory out(MemoryKind::device, room), in(MemoryKind::device, room);
  out.write(pattern(mix(program.rank), room));
  const std::vector<std::byte> blank(room, std::byte{0x5a});
  in.write(blank);
  const auto counts = [&](bool sends, int number) {
    const bool empty = silent && (program.rank == 1) == sends;
    return std::vector<Count>(static_cast<std::size_t>(number) + 1, empty ? 0 : block);
  };
  const std::vector<Count> send = counts(true, edges.out), receive = counts(false, edges.in);
  const std::array<MPI_Aint, 4> places{0, stride, 2 * stride, 3 * stride};
  const std::array<MPI_Datatype, 4> types{MPI_BYTE, MPI_BYTE, MPI_BYTE, MPI_BYTE};
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(entry(&request, static_cast<const void*>(out.data()), send.data(), places.data(), types.data(),
                      in.data(), receive.data(), places.data(), types.data(), graph));
  if (entry.form != Form::blocking) polite_wait(request);
  std::vector<std::byte> expected = blank;
  const std::vector<std::byte> sent = pattern(mix(1 - program.rank), room);
  for (std::ptrdiff_t edge = 0; edge < edges.in; ++edge)
    std::copy_n(sent.begin() + edge * stride, receive.front(), expected.begin() + edge * stride);
  CROSSLANE_CHECK(in.read() == expected, "{} edges, {} back{}", there, back, silent ? ", of nothing" : "");
  CROSSLANE_MPI(MPI_Comm_free(&graph));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "collectives_directed");
  for (const Form form : {Form::blocking, Form::nonblocking}) {
    for (const bool large : {false, true}) {
      const EntryPoint entry = EntryPoint::find("Neighbor_alltoallw", form, large);
      if (entry.address == nullptr) continue;
      for (const int there : {1, 2, 3})
        for (const int back : {0, 1, 2})
          for (const bool silent : {false, true})
            large ? exchange<MPI_Count>(program, entry, there, back, silent)
                  : exchange<int>(program, entry, there, back, silent);
    }
  }
  return program.finish();
}
