// A program that knows sessions only (MPI 5.0, section 11.3): it never calls MPI_Init, so that MPI_COMM_WORLD does not
// exist, and passes GPU memory over a communicator made from a group. Skipped where the MPI has no sessions.
// --memory host: none of it on GPUs.
// It must not know Crosslane.
#include "support/check.h"
#include "support/memory.h"
#include "support/random.h"

#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1

void exchange(MPI_Comm comm, MemoryKind kind, int count) {
  int rank = 0, size = 1;
  CROSSLANE_MPI(MPI_Comm_rank(comm, &rank));
  CROSSLANE_MPI(MPI_Comm_size(comm, &size));
  CROSSLANE_STEP("{} ints of {} memory", count, name(kind));
  const auto length = static_cast<std::size_t>(count);
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  Memory out(kind, length * sizeof(int)), in(kind, length * sizeof(int));
  out.fill(std::vector<int>(length, rank + 1));

  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(in.data(), count, MPI_INT, left, 1, comm, &request));
  CROSSLANE_MPI(MPI_Send(out.data(), count, MPI_INT, right, 1, comm));
  CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.values<int>() == std::vector<int>(length, left + 1), "a message");

  CROSSLANE_MPI(
      MPI_Sendrecv(out.data(), count, MPI_INT, right, 2, in.data(), count, MPI_INT, left, 2, comm, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.values<int>() == std::vector<int>(length, left + 1), "MPI_Sendrecv");

  MPI_Request persistent[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  CROSSLANE_MPI(MPI_Recv_init(in.data(), count, MPI_INT, left, 3, comm, &persistent[0]));
  CROSSLANE_MPI(MPI_Send_init(out.data(), count, MPI_INT, right, 3, comm, &persistent[1]));
  for (int start = 0; start < 3; ++start) {
    in.fill(std::vector<int>(length, -1));
    CROSSLANE_MPI(MPI_Startall(2, persistent));
    CROSSLANE_MPI(MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE));
    CROSSLANE_CHECK(in.values<int>() == std::vector<int>(length, left + 1), "a persistent message");
  }
  for (auto& one : persistent) CROSSLANE_MPI(MPI_Request_free(&one));

  CROSSLANE_MPI(MPI_Allreduce(out.data(), in.data(), count, MPI_INT, MPI_SUM, comm));
  CROSSLANE_CHECK(in.values<int>() == std::vector<int>(length, size * (size + 1) / 2), "a reduction");
  CROSSLANE_MPI(MPI_Iallreduce(MPI_IN_PLACE, out.data(), count, MPI_INT, MPI_SUM, comm, &request));
  CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(out.values<int>() == std::vector<int>(length, size * (size + 1) / 2), "a reduction in place");
  CROSSLANE_MPI(MPI_Bcast(out.data(), count, MPI_INT, size - 1, comm));
}

// Every other int, as a datatype, packed by the sender or not.
void exchange_vectors(MPI_Comm comm, MemoryKind kind) {
  CROSSLANE_STEP("vectors of {} memory", name(kind));
  constexpr int blocks = 100;
  constexpr std::size_t length = 2 * std::size_t{blocks};
  int rank = 0, size = 1;
  CROSSLANE_MPI(MPI_Comm_rank(comm, &rank));
  CROSSLANE_MPI(MPI_Comm_size(comm, &size));
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(blocks, 1, 2, MPI_INT, &vector));
  CROSSLANE_MPI(MPI_Type_commit(&vector));
  Memory out(kind, length * sizeof(int)), in(kind, length * sizeof(int)), packed(kind, length * sizeof(int));
  out.fill(std::vector<int>(length, rank + 1));
  std::vector<int> expected(length, -1);
  for (std::size_t i = 0; i < length; i += 2) expected[i] = left + 1;

  in.fill(std::vector<int>(length, -1));
  CROSSLANE_MPI(MPI_Sendrecv(out.data(), 1, vector, right, 4, in.data(), 1, vector, left, 4, comm, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.values<int>() == expected, "a vector");

  in.fill(std::vector<int>(length, -1));
  int position = 0;
  CROSSLANE_MPI(MPI_Pack(out.data(), 1, vector, packed.data(), static_cast<int>(packed.size()), &position, comm));
  CROSSLANE_MPI(MPI_Sendrecv(packed.data(), position, MPI_PACKED, right, 5, in.data(), 1, vector, left, 5, comm,
                             MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.values<int>() == expected, "a packed vector");
  CROSSLANE_MPI(MPI_Type_free(&vector));
}

// What Crosslane refuses reaches the communicator's handler, without MPI_COMM_WORLD or SELF.
void refused(MPI_Comm comm) {
  CROSSLANE_STEP("a call that is refused");
  const Memory memory(MemoryKind::device, 64);
  CROSSLANE_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_Send(memory.data(), -1, MPI_INT, 0, 1, comm), &error_class);
  CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_COUNT);
}

int run(bool on_gpu) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  if (const int code = MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session); code != MPI_SUCCESS) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    static_cast<void>(std::fprintf(stderr, "lifecycle_sessions: no session: %s\n", text.data()));
    return 1;
  }
  CROSSLANE_MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  CROSSLANE_MPI(MPI_Comm_create_from_group(group, "crosslane.test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm));
  int rank = 0;
  CROSSLANE_MPI(MPI_Comm_rank(comm, &rank));
  describe_process("lifecycle_sessions", rank, 0);
  {
    const Watchdog watchdog(60);
    const std::optional<Device> device = on_gpu ? std::optional<Device>(std::in_place, rank) : std::nullopt;
    std::vector<MemoryKind> kinds{MemoryKind::host};
    if (on_gpu) kinds.insert(kinds.end(), {MemoryKind::device, MemoryKind::pinned});
    for (const auto kind : kinds) {
      for (const int count : {1, 1000, 500000}) exchange(comm, kind, count);
      exchange_vectors(comm, kind);
    }
    if (on_gpu) refused(comm);
  }
  int mine = failures(), all = 0;
  CROSSLANE_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm));
  MPI_Comm_free(&comm);
  MPI_Group_free(&group);
  CROSSLANE_MPI(MPI_Session_finalize(&session));
  if (rank == 0) static_cast<void>(std::fprintf(stderr, "lifecycle_sessions: %d checks failed\n", all));
  return all == 0 ? 0 : 1;
}

#else

int run(bool /*on_gpu*/) {
  static_cast<void>(std::fprintf(stderr, "lifecycle_sessions: skipped, this MPI has no sessions\n"));
  return 77;
}

#endif

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc < 3 || std::string_view(argv[2]) != "host"); }
