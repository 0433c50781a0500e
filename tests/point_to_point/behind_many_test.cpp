// One message behind many that are not sent before it is answered: each call that completes or asks, polled, finds it. Rank 0 receives, rank 1 sends.
// It must not know Crosslane.
//   --many <n>  how many (default 24)
#include "support/program.h"

#include <sched.h>

#include <cstdint>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int count = 1000;

enum class Way { testany, testsome, waitany, waitsome, get_status, last };

// Which request a call says is complete; -1 for none.
int ask(Way way, std::vector<MPI_Request>& requests) {
  const int n = static_cast<int>(requests.size());
  int index = MPI_UNDEFINED, flag = 0, outcount = 0;
  std::vector<int> indices(requests.size(), -1);
  switch (way) {
    case Way::testany:
      CROSSLANE_MPI(MPI_Testany(n, requests.data(), &index, &flag, MPI_STATUS_IGNORE));
      return flag != 0 ? index : -1;
    case Way::testsome:
      CROSSLANE_MPI(MPI_Testsome(n, requests.data(), &outcount, indices.data(), MPI_STATUSES_IGNORE));
      return outcount > 0 ? indices[0] : -1;
    case Way::waitany:
      CROSSLANE_MPI(MPI_Waitany(n, requests.data(), &index, MPI_STATUS_IGNORE));
      return index;
    case Way::waitsome:
      CROSSLANE_MPI(MPI_Waitsome(n, requests.data(), &outcount, indices.data(), MPI_STATUSES_IGNORE));
      return outcount > 0 ? indices[0] : -1;
    default:
      for (int i = 0; i < n; ++i) {
        CROSSLANE_MPI(MPI_Request_get_status(requests[static_cast<std::size_t>(i)], &flag, MPI_STATUS_IGNORE));
        if (flag == 0) continue;
        CROSSLANE_MPI(MPI_Wait(&requests[static_cast<std::size_t>(i)], MPI_STATUS_IGNORE));
        return i;
      }
      return -1;
  }
}

void receive(Program& program, int many, Way way, int early) {
  std::vector<Memory> buffers;
  std::vector<MPI_Request> requests(static_cast<std::size_t>(many), MPI_REQUEST_NULL);
  for (int tag = 0; tag < many; ++tag) {
    buffers.emplace_back(program.kind(program.local()), count * sizeof(int));
    buffers.back().fill(std::vector<int>(count, -1));
    CROSSLANE_MPI(MPI_Irecv(buffers.back().data(), count, MPI_INT, 1, tag, MPI_COMM_WORLD,
                            &requests[static_cast<std::size_t>(tag)]));
  }
  CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
  int found = -1;
  while (found < 0) {
    found = ask(way, requests);
    sched_yield();  // the sender may need this core
  }
  CROSSLANE_CHECK_EQUAL(found, early);
  CROSSLANE_MPI(MPI_Send(nullptr, 0, MPI_INT, 1, many, MPI_COMM_WORLD));
  CROSSLANE_MPI(MPI_Waitall(many, requests.data(), MPI_STATUSES_IGNORE));
  for (int tag = 0; tag < many; ++tag)
    CROSSLANE_CHECK(buffers[static_cast<std::size_t>(tag)].values<int>() == std::vector<int>(count, tag), "message {}",
                    tag);
}

void send(Program& program, int many, int early) {
  std::vector<Memory> buffers;
  for (int tag = 0; tag < many; ++tag) {
    buffers.emplace_back(program.kind(program.local()), count * sizeof(int));
    buffers.back().fill(std::vector<int>(count, tag));
  }
  const auto pass = [&](int tag) {
    CROSSLANE_MPI(MPI_Send(buffers[static_cast<std::size_t>(tag)].data(), count, MPI_INT, 0, tag, MPI_COMM_WORLD));
  };
  CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
  pass(early);
  CROSSLANE_MPI(MPI_Recv(nullptr, 0, MPI_INT, 0, many, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  for (int tag = 0; tag < many; ++tag)
    if (tag != early) pass(tag);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_behind_many");
  const int many = static_cast<int>(program.option("many", 24));
  for (int way = 0; way < static_cast<int>(Way::last); ++way) {
    for (const int early : {many - 1, static_cast<int>(program.shared().below(static_cast<std::uint64_t>(many)))}) {
      CROSSLANE_STEP("way {}, message {} first", way, early);
      if (program.rank == 0)
        receive(program, many, static_cast<Way>(way), early);
      else
        send(program, many, early);
    }
  }
  return program.finish();
}
