// Each defect as a pattern of a few calls. It must not know Crosslane.
#include "support/plain_mpi.h"

#include "support/beneath.h"
#include "support/program.h"

#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace crosslane::tests {
namespace {

#define CROSSLANE_OWN(name) (*beneath(&MPI_##name, "PMPI_" #name))

void tell(const char* what) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) fmt::print(stderr, "plain MPI is wrong here: {}; left out\n", what);
}

// Errors come back while this lives.
class ErrorsReturn {
 public:
  explicit ErrorsReturn(MPI_Comm communicator) : communicator_(communicator) {
    MPI_Comm_get_errhandler(communicator_, &before_);
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
  }
  ~ErrorsReturn() {
    MPI_Comm_set_errhandler(communicator_, before_);
    MPI_Errhandler_free(&before_);
  }
  ErrorsReturn(const ErrorsReturn&) = delete;
  ErrorsReturn& operator=(const ErrorsReturn&) = delete;

 private:
  MPI_Comm communicator_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

bool query_ends_persistent() {
  int in = 0, out = 1, flag = 0;
  MPI_Request receive = MPI_REQUEST_NULL, send = MPI_REQUEST_NULL;
  MPI_Status status;
  status.MPI_TAG = -7;
  CROSSLANE_OWN(Recv_init)(&in, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &receive);
  CROSSLANE_OWN(Start)(&receive);
  CROSSLANE_OWN(Isend)(&out, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &send);
  while (flag == 0) CROSSLANE_OWN(Request_get_status)(receive, &flag, MPI_STATUS_IGNORE);
  CROSSLANE_OWN(Wait)(&receive, &status);
  CROSSLANE_OWN(Wait)(&send, MPI_STATUS_IGNORE);
  CROSSLANE_OWN(Request_free)(&receive);
  return status.MPI_TAG != 5;
}

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1
/// Persistent reductions on MPI_COMM_SELF.
struct Persistent {
  static constexpr int count = 3;
  Persistent() {
    for (int i = 0; i < count; ++i) CROSSLANE_OWN(Allreduce_init)
    (&out.at(i), &in.at(i), 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, MPI_INFO_NULL, &requests.at(i));
  }
  ~Persistent() {
    for (auto& request : requests) {
      CROSSLANE_OWN(Wait)(&request, MPI_STATUS_IGNORE);
      CROSSLANE_OWN(Request_free)(&request);
    }
  }
  Persistent(const Persistent&) = delete;
  Persistent& operator=(const Persistent&) = delete;
  void start() {
    for (auto& request : requests) CROSSLANE_OWN(Start)(&request);
  }
  std::array<int, count> in{}, out{1, 2, 3};
  std::array<MPI_Request, count> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

bool testall_fails_on_persistent_collectives() {
  Persistent all;
  for (int start = 0; start < 2; ++start) {
    all.start();
    for (int flag = 0; flag == 0; sched_yield())
      if (CROSSLANE_OWN(Testall)(Persistent::count, all.requests.data(), &flag, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
        return true;
  }
  return false;
}

bool arrays_report_persistent_collectives_again() {
  Persistent all;
  for (int start = 0; start < 2; ++start) {
    all.start();
    std::array<bool, Persistent::count> done{};
    for (int left = Persistent::count; left > 0; sched_yield()) {
      int index = MPI_UNDEFINED, flag = 0;
      if (CROSSLANE_OWN(Testany)(Persistent::count, all.requests.data(), &index, &flag, MPI_STATUS_IGNORE) !=
          MPI_SUCCESS)
        return true;
      if (flag == 0) continue;
      if (index == MPI_UNDEFINED || done.at(static_cast<std::size_t>(index))) return true;
      done.at(static_cast<std::size_t>(index)) = true;
      --left;
    }
  }
  return false;
}

bool partitions_lose_gaps() {
  constexpr int partitions = 3, ints = 2;
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_INT, 0, ints * sizeof(int), &spread);
  MPI_Type_commit(&spread);
  std::array<int, partitions * ints> in{}, out{};
  for (std::size_t i = 0; i < out.size(); i += ints) out.at(i) = static_cast<int>(i) + 1;
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  const MPI_Comm self = MPI_COMM_SELF;
  CROSSLANE_OWN(Psend_init)(out.data(), partitions, 1, spread, 0, 6, self, MPI_INFO_NULL, requests.data());
  CROSSLANE_OWN(Precv_init)(in.data(), partitions, 1, spread, 0, 6, self, MPI_INFO_NULL, &requests[1]);
  CROSSLANE_OWN(Startall)(2, requests.data());
  CROSSLANE_OWN(Pready_range)(0, partitions - 1, requests[0]);
  for (auto& request : requests) {
    for (int flag = 0; flag == 0; sched_yield()) CROSSLANE_OWN(Test)(&request, &flag, MPI_STATUS_IGNORE);
    CROSSLANE_OWN(Request_free)(&request);
  }
  MPI_Type_free(&spread);
  return in != out;
}

bool persistent_collectives_read_too_early() {
  int out = 1, in = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_OWN(Gather_init)(&out, 1, MPI_INT, &in, 1, MPI_INT, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request);
  out = 2;
  CROSSLANE_OWN(Start)(&request);
  CROSSLANE_OWN(Wait)(&request, MPI_STATUS_IGNORE);
  CROSSLANE_OWN(Request_free)(&request);
  return in != 2;
}
#endif

// Open MPI 4.1: above the eager limit the second start packs from where the first one's copy was, once that is given back.
bool buffered_sends_start_once() {
  constexpr std::size_t ints = 65536;
  std::vector<int> out(ints), in(ints);
  std::vector<std::byte> attached(2 * (ints * sizeof(int) + MPI_BSEND_OVERHEAD));
  CROSSLANE_OWN(Buffer_attach)(attached.data(), static_cast<int>(attached.size()));
  MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
  CROSSLANE_OWN(Bsend_init)(out.data(), ints, MPI_INT, 0, 7, MPI_COMM_SELF, &send);
  bool wrong = false;
  for (int start = 1; start <= 2; ++start) {
    std::fill(out.begin(), out.end(), start);
    CROSSLANE_OWN(Irecv)(in.data(), ints, MPI_INT, 0, 7, MPI_COMM_SELF, &receive);
    CROSSLANE_OWN(Start)(&send);
    CROSSLANE_OWN(Wait)(&receive, MPI_STATUS_IGNORE);
    CROSSLANE_OWN(Wait)(&send, MPI_STATUS_IGNORE);
    wrong = wrong || in != out;
  }
  CROSSLANE_OWN(Request_free)(&send);
  void* address = nullptr;
  int bytes = 0;
  CROSSLANE_OWN(Buffer_detach)(&address, &bytes);
  return wrong;
}

// Open MPI 4.1 copies in pieces of 64 KiB, which may end inside an element.
bool copies_to_itself_end_early() {
  constexpr int elements = 10923, shorts = 3;  // 64 KiB and one short
  MPI_Datatype row = MPI_DATATYPE_NULL, spread = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(shorts, MPI_SHORT, &row);
  MPI_Type_create_resized(row, 0, 2 * shorts * sizeof(short), &spread);
  MPI_Type_commit(&spread);
  const std::vector<short> out(std::size_t{2} * shorts * elements, 1);
  std::vector<short> in(std::size_t{shorts} * elements, 0);
  CROSSLANE_OWN(Alltoall)(out.data(), elements, spread, in.data(), shorts * elements, MPI_SHORT, MPI_COMM_SELF);
  MPI_Type_free(&spread);
  MPI_Type_free(&row);
  return std::find(in.begin(), in.end(), 0) != in.end();
}

PlainMpi tried_out() {
  PlainMpi result;
  // MPI_Testall raises its errors on either of them.
  const ErrorsReturn self(MPI_COMM_SELF), world(MPI_COMM_WORLD);
  if ((result.query_ends_persistent = query_ends_persistent()))
    tell("MPI_Request_get_status makes a persistent request inactive");
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1
  if ((result.testall_fails_on_persistent_collectives = testall_fails_on_persistent_collectives()))
    tell("MPI_Testall fails on persistent collectives");
  if ((result.arrays_report_persistent_collectives_again = arrays_report_persistent_collectives_again()))
    tell("MPI_Testany reports inactive persistent collectives");
  if ((result.persistent_collectives_read_too_early = persistent_collectives_read_too_early()))
    tell("MPI_Gather_init reads the buffer before it is started");
#endif
  return result;
}

}  // namespace

const PlainMpi& plain_mpi() {
  static const PlainMpi result = tried_out();
  return result;
}

bool plain_mpi_partitions_lose_gaps() {
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  const bool wrong = partitions_lose_gaps();
  if (wrong) tell("partitioned communication of elements with gaps");
  return wrong;
#else
  return false;
#endif
}

bool plain_mpi_buffered_sends_start_once() {
  const bool wrong = buffered_sends_start_once();
  if (wrong) tell("a buffered persistent send that is started again");
  return wrong;
}

bool plain_mpi_copies_to_itself_end_early() {
  const bool wrong = copies_to_itself_end_early();
  if (wrong) tell("a long copy of elements with gaps to the rank itself");
  return wrong;
}

// MPICH 4.0 cuts such messages at 8,232 bytes, and takes the half element behind that for one too many.
std::vector<std::size_t> plain_mpi_lengths_taken_for_truncated() {
  constexpr std::size_t element = 16, most = 1U << 16;
  constexpr int tag = 8, receiver = 1;
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return {};
  const ErrorsReturn world(MPI_COMM_WORLD);
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, 1, 2, MPI_C_DOUBLE_COMPLEX, &spread);
  MPI_Type_commit(&spread);
  std::vector<std::byte> memory(2 * (most + 8 * element));
  std::vector<std::size_t> lengths;
  std::vector<int> wrong;
  const auto await = [](MPI_Request request) {
    for (int flag = 0; flag == 0; sched_yield()) CROSSLANE_OWN(Test)(&request, &flag, MPI_STATUS_IGNORE);
  };
  for (std::size_t power = 1024; power <= most; power *= 2)
    for (std::size_t bytes = power - 4 * element; bytes <= power + 4 * element; bytes += element)
      lengths.push_back(bytes);
  for (const std::size_t bytes : lengths) {
    const int count = static_cast<int>(bytes / element);
    if (rank == 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_OWN(Issend)(memory.data(), count, MPI_C_DOUBLE_COMPLEX, receiver, tag, MPI_COMM_WORLD, &request);
      await(request);
    } else if (rank == receiver) {
      for (int flag = 0; flag == 0; sched_yield())
        CROSSLANE_OWN(Iprobe)(0, tag, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
      wrong.push_back(CROSSLANE_OWN(Recv)(memory.data(), (count + 1) / 2, spread, 0, tag, MPI_COMM_WORLD,
                                          MPI_STATUS_IGNORE) == MPI_SUCCESS
                          ? 0
                          : 1);
    }
  }
  MPI_Type_free(&spread);
  wrong.resize(lengths.size());
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_OWN(Ibcast)(wrong.data(), static_cast<int>(wrong.size()), MPI_INT, receiver, MPI_COMM_WORLD, &request);
  await(request);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (wrong.at(i) != 0) found.push_back(lengths.at(i));
  if (!found.empty()) tell("some synchronous messages into datatypes with gaps count as truncated");
  return found;
}

bool plain_mpi_has_windows(MPI_Comm communicator) {
  const ErrorsReturn returning(communicator);
  int exposed = 0, works = 1;
  MPI_Win window = MPI_WIN_NULL;
  if (CROSSLANE_OWN(Win_create)(&exposed, sizeof(exposed), 1, MPI_INFO_NULL, communicator, &window) != MPI_SUCCESS)
    works = 0;
  // Where one rank has none, the others' cannot be used, nor freed without it.
  int all = 0;
  CROSSLANE_OWN(Allreduce)(&works, &all, 1, MPI_INT, MPI_MIN, communicator);
  if (all == 0) {
    tell("MPI_Win_create of host memory fails");
    return false;
  }
  CROSSLANE_OWN(Win_free)(&window);
  return true;
}

MPI_Comm plain_mpi_duplicate(MPI_Comm communicator) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_OWN(Comm_idup)(communicator, &made, &request);
  polite_wait(request);
  return made;
}

}  // namespace crosslane::tests
