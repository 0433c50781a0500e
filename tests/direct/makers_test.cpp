// Communicators by every procedure that makes one: ranks of one node work together on them as on the world's, from GPU to GPU.
// --only takes one procedure; --node: ranks of a pretended node; --spans: collectives among nodes go direct; --driven as in upkeep_test.cpp. It must not know how Crosslane learns of a communicator.
#include "direct/job.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

MPI_Comm ring() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::array<int, 1> dimensions{size}, periodic{1};
  MPI_Comm made = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Cart_create(MPI_COMM_WORLD, 1, dimensions.data(), periodic.data(), 0, &made));
  return made;
}

// Each makes a communicator of all ranks.
std::vector<std::pair<std::string, std::function<MPI_Comm()>>> makers(const Program& program) {
  const int right = (program.rank + 1) % program.size, left = (program.rank + program.size - 1) % program.size;
  return {
      {"MPI_Comm_dup",
       [] {
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &made));
         return made;
       }},
      {"MPI_Comm_dup_with_info",
       [] {
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made));
         return made;
       }},
      {"MPI_Comm_idup",
       [] {
         MPI_Comm made = MPI_COMM_NULL;
         MPI_Request request = MPI_REQUEST_NULL;
         CROSSLANE_MPI(MPI_Comm_idup(MPI_COMM_WORLD, &made, &request));
         polite_wait(request);
         return made;
       }},
      {"MPI_Comm_idup, queried",
       [] {
         MPI_Comm made = MPI_COMM_NULL;
         MPI_Request request = MPI_REQUEST_NULL;
         CROSSLANE_MPI(MPI_Comm_idup(MPI_COMM_WORLD, &made, &request));
         for (int flag = 0; flag == 0;) CROSSLANE_MPI(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
         CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
         return made;
       }},
      {"MPI_Comm_create_group",
       [] {
         MPI_Group all = MPI_GROUP_NULL;
         CROSSLANE_MPI(MPI_Comm_group(MPI_COMM_WORLD, &all));
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, all, 5, &made));
         CROSSLANE_MPI(MPI_Group_free(&all));
         return made;
       }},
      {"MPI_Intercomm_merge",
       [&program] {
         const int lower = program.size / 2, upper = program.rank >= lower ? 1 : 0;
         MPI_Comm half = MPI_COMM_NULL, across = MPI_COMM_NULL, made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, upper, 0, &half));
         CROSSLANE_MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper != 0 ? 0 : lower, 7, &across));
         CROSSLANE_MPI(MPI_Intercomm_merge(across, upper, &made));
         CROSSLANE_MPI(MPI_Comm_free(&across));
         CROSSLANE_MPI(MPI_Comm_free(&half));
         return made;
       }},
      {"MPI_Comm_create",
       [] {
         MPI_Group all = MPI_GROUP_NULL;
         CROSSLANE_MPI(MPI_Comm_group(MPI_COMM_WORLD, &all));
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_create(MPI_COMM_WORLD, all, &made));
         CROSSLANE_MPI(MPI_Group_free(&all));
         return made;
       }},
      {"MPI_Comm_split",
       [&program] {
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made));
         return made;
       }},
      {"MPI_Comm_split_type",
       [] {
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made));
         return made;
       }},
      {"MPI_Cart_create", ring},
      {"MPI_Cart_sub",
       [] {
         MPI_Comm whole = ring(), made = MPI_COMM_NULL;
         const std::array<int, 1> kept{1};
         CROSSLANE_MPI(MPI_Cart_sub(whole, kept.data(), &made));
         CROSSLANE_MPI(MPI_Comm_free(&whole));
         return made;
       }},
      {"MPI_Graph_create",
       [&program] {
         // A ring, too.
         std::vector<int> index(static_cast<std::size_t>(program.size)), edges(index.size());
         std::iota(index.begin(), index.end(), 1);
         for (std::size_t rank = 0; rank < edges.size(); ++rank)
           edges[rank] = static_cast<int>((rank + 1) % edges.size());
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Graph_create(MPI_COMM_WORLD, program.size, index.data(), edges.data(), 0, &made));
         return made;
       }},
      {"MPI_Dist_graph_create",
       [&program, right] {
         const std::array<int, 1> source{program.rank}, degree{1}, to{right};
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, source.data(), degree.data(), to.data(), MPI_UNWEIGHTED,
                                             MPI_INFO_NULL, 0, &made));
         return made;
       }},
      {"MPI_Dist_graph_create_adjacent",
       [left, right] {
         const std::array<int, 1> from{left}, to{right};
         MPI_Comm made = MPI_COMM_NULL;
         CROSSLANE_MPI(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, from.data(), MPI_UNWEIGHTED, 1, to.data(),
                                                      MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
         return made;
       }},
  };
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "direct_makers");
  const std::string only = program.text_option("only", "");
  int made = 0;
  for (const auto& [name, make] : makers(program)) {
    if (!only.empty() && only != name) continue;
    CROSSLANE_STEP("a communicator of {}", name);
    MPI_Comm communicator = make();
    {
      const Job job(program, communicator, name);
      job.warm_up();
      Random local(mix(program.seed, program.rank, made));
      const Case what = sum_of_ints(1000, mix(program.seed, made), 3);
      const auto before = direct_calls(what.kind);
      job.run(what, on_the_gpu(), local);
      const bool may = job.on_one_node() || program.option("spans", 0) != 0;
      const auto expected = before >= 0 && may && job.goes_direct(what) ? what.repeats : 0;
      CROSSLANE_CHECK_EQUAL(direct_calls(what.kind) - before, expected);
    }
    CROSSLANE_MPI(MPI_Comm_free(&communicator));
    ++made;
  }
  CROSSLANE_CHECK(made > 0, "no procedure is called {}", only);
  return program.finish();
}
