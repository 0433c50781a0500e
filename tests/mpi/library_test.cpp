// The tables of functions as the process sees them: complete, tolerant of an older MPI, and cheap once found.
// Run on one rank; it uses only what MPI allows before MPI_Init, then initialises.
#include "check.h"

#include "mpi/calls.h"
#include "mpi/library.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

using namespace crosslane;

int main(int argc, char** argv) {
  const mpi::Library library;
  // Many threads at the first use: all see one complete table.
  {
    std::vector<const mpi::Functions*> seen(8);
    std::vector<std::thread> threads;
    for (auto& slot : seen) threads.emplace_back([&] { slot = &library.next(); });
    for (auto& thread : threads) thread.join();
    for (const auto* slot : seen) CHECK(slot == seen.front() && slot->Send != nullptr);
  }
  const mpi::Functions& next = library.next();
  const mpi::Functions& below = library.below();
  CHECK(library.loaded());
  CHECK(&library.handles() == next.handles && next.handles == below.handles);

  // Everything of MPI 3.1, and of what came later the persistent collectives, on every MPI that we claim.
  int missing = 0, present = 0;
#define CROSSLANE_MPI_FUNCTION(name) \
  if (next.name == nullptr) {        \
    ++missing;                       \
  } else {                           \
    ++present;                       \
    CHECK(below.name != nullptr);    \
  }
#include "mpi/functions_names.inc"
#undef CROSSLANE_MPI_FUNCTION
  std::printf("%s\n%d procedures present, %d missing\n", library.version().c_str(), present, missing);
  CHECK(present >= 370);  // Open MPI 4.1 has 374
  CHECK(next.Allreduce_init != nullptr && next.Neighbor_alltoallw_init != nullptr && next.Barrier_init != nullptr);
#if defined(CROSSLANE_ABI_OPENMPI)
  CHECK(library.version().find("Open MPI") != std::string::npos);
#else
  CHECK(library.version().find("MPICH") != std::string::npos);
  CHECK(next.Send_c != nullptr && next.Type_get_contents_c != nullptr);
#endif
  CHECK(!library.path().empty());
  CHECK(!library.cuda_capable());  // too early to ask, and not an abort

  CHECK(next.Init(&argc, &argv) == mpi::success);
  int rank = -1, size = 0;
  CHECK(next.Comm_rank(library.handles().comm_world, &rank) == mpi::success && rank >= 0);
  CHECK(next.Comm_size(library.handles().comm_world, &size) == mpi::success && size > rank);
  int* tag_ub = nullptr;
  int found = 0;
  const MPI_Comm world = library.handles().comm_world;
  CHECK(next.Comm_get_attr(world, mpi::tag_ub, static_cast<void*>(&tag_ub), &found) == mpi::success);
  CHECK(found != 0 && *tag_ub >= 32767);
  const mpi::Handles& handles = library.handles();
  const std::array common{handles.byte,
                          handles.char_,
                          handles.short_,
                          handles.int_,
                          handles.unsigned_,
                          handles.long_,
                          handles.float_,
                          handles.double_,
                          handles.int8,
                          handles.int32,
                          handles.packed,
                          handles.wchar,
                          handles.unsigned_long_long};
  const auto told = std::ranges::count_if(common, [&](auto type) { return handles.surely_predefined(type); });
  CHECK(told == static_cast<std::ptrdiff_t>(common.size()));
  std::array<MPI_Datatype, 500> derived{};
  for (MPI_Datatype& type : derived) {
    CHECK(next.Type_contiguous(3, handles.int_, &type) == mpi::success);
    CHECK(!handles.surely_predefined(type));
  }
  for (MPI_Datatype& type : derived) CHECK(next.Type_free(&type) == mpi::success);
  CHECK(mpi::error_class(base::ErrorClass::truncate) == mpi::err_truncate);
  static_cast<void>(library.cuda_capable());  // either answer is right; MPICH would abort if asked at the wrong time
  CHECK(next.Finalize() == mpi::success);
  return check::status();
}
