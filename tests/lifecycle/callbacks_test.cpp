// What an application's callbacks may do: MPI calls them from inside a call (copying or deleting an attribute, completing a
// generalized request, handling an error), and they pass GPU memory to calls of their own, or throw.
// It must not know Crosslane. Runs in host memory without it, too: what plain MPI does.
#include "support/check.h"
#include "support/memory.h"
#include "support/program.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

struct Called {
  Program* program = nullptr;
  int times = 0;
  int code = MPI_SUCCESS;  // of an error
};

// Callbacks of errors are given nothing of the application's.
Called* the_called = nullptr;

// Messages and reductions of all ranks, short and long.
void communicate(Program& program) {
  for (const int count : {3, 2000, 300000}) {
    const auto length = static_cast<std::size_t>(count);
    Memory out(program.kind(), length * sizeof(int)), in(program.kind(), length * sizeof(int));
    std::vector<int> mine(length);
    std::iota(mine.begin(), mine.end(), program.rank);
    out.fill(mine);
    const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
    std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Irecv(in.data(), count, MPI_INT, left, 3, MPI_COMM_WORLD, &requests[0]));
    CROSSLANE_MPI(MPI_Isend(out.data(), count, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[1]));
    CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
    std::vector<int> expected(length);
    std::iota(expected.begin(), expected.end(), left);
    CROSSLANE_CHECK(in.values<int>() == expected, "a message of {} ints", count);
    CROSSLANE_MPI(MPI_Allreduce(out.data(), in.data(), count, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    std::iota(expected.begin(), expected.end(), program.size - 1);
    CROSSLANE_CHECK(in.values<int>() == expected, "a reduction of {} ints", count);
  }
}

void called(void* state) {
  auto& called = *static_cast<Called*>(state);
  ++called.times;
  communicate(*called.program);
}

int copy_attribute(MPI_Comm /*old*/, int /*keyval*/, void* state, void* in, void* out, int* flag) {
  called(state);
  *static_cast<void**>(out) = in;
  *flag = 1;
  return MPI_SUCCESS;
}

int delete_attribute(MPI_Comm /*comm*/, int /*keyval*/, void* /*value*/, void* state) {
  called(state);
  return MPI_SUCCESS;
}

void attributes(Program& program) {
  CROSSLANE_STEP("attributes");
  Called mine{&program};
  MPI_Comm first = MPI_COMM_NULL, second = MPI_COMM_NULL;
  int keyval = MPI_KEYVAL_INVALID;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &first));
  CROSSLANE_MPI(MPI_Comm_create_keyval(copy_attribute, delete_attribute, &keyval, &mine));
  CROSSLANE_MPI(MPI_Comm_set_attr(first, keyval, &mine));
  CROSSLANE_MPI(MPI_Comm_dup(first, &second));
  CROSSLANE_CHECK_EQUAL(mine.times, 1);
  CROSSLANE_MPI(MPI_Comm_delete_attr(first, keyval));
  CROSSLANE_MPI(MPI_Comm_free(&second));
  CROSSLANE_CHECK_EQUAL(mine.times, 3);
  CROSSLANE_MPI(MPI_Comm_free(&first));
  CROSSLANE_MPI(MPI_Comm_free_keyval(&keyval));
}

// What a communicator is to its ranks, until it is gone.
void reduce(Program& program, MPI_Comm comm, const char* when) {
  int rank = 0, size = 0;
  CROSSLANE_MPI(MPI_Comm_rank(comm, &rank));
  CROSSLANE_MPI(MPI_Comm_size(comm, &size));
  for (const int count : {5, 300000}) {
    const auto length = static_cast<std::size_t>(count);
    Memory out(program.kind(), length * sizeof(int)), in(program.kind(), length * sizeof(int));
    std::vector<int> mine(length);
    std::iota(mine.begin(), mine.end(), rank);
    out.fill(mine);
    CROSSLANE_MPI(MPI_Allreduce(out.data(), in.data(), count, MPI_INT, MPI_MAX, comm));
    std::iota(mine.begin(), mine.end(), size - 1);
    CROSSLANE_CHECK(in.values<int>() == mine, "a reduction of {} ints {}", count, when);
  }
}

struct Leaving {
  Program* program = nullptr;
  int refusals = 0, times = 0;
};

// With MPICH the communicator is useless once a callback has refused, by itself.
#ifdef OPEN_MPI
constexpr int most_refusals = 1;
#else
constexpr int most_refusals = 0;
#endif

// Some ranks' attributes come with the communicator, before it is known, others' later.
int bring_along(MPI_Comm /*old*/, int /*keyval*/, void* state, void* /*in*/, void* out, int* flag) {
  *static_cast<void**>(out) = nullptr;
  *flag = static_cast<Leaving*>(state)->program->rank % 2 == 0 ? 1 : 0;
  return MPI_SUCCESS;
}

// Every time but as often as it is to refuse.
int leave(MPI_Comm comm, int /*keyval*/, void* /*value*/, void* state) {
  auto& leaving = *static_cast<Leaving*>(state);
  ++leaving.times;
  reduce(*leaving.program, comm, "while its communicator is freed");
  return leaving.times <= leaving.refusals ? MPI_ERR_OTHER : MPI_SUCCESS;
}

// An MPI deletes attributes in an order of its own, by when they came. Of a communicator that was used before, and one that never was.
void using_what_is_freed(Program& program) {
  for (int refusals = 0; refusals <= most_refusals; ++refusals) {
    for (const bool used : {true, false}) {
      CROSSLANE_STEP("a communicator that is {}used, freed after {} refusals", used ? "" : "not ", refusals);
      Leaving mine{&program};
      int keyval = MPI_KEYVAL_INVALID;
      MPI_Comm first = MPI_COMM_NULL, comm = MPI_COMM_NULL;
      CROSSLANE_MPI(MPI_Comm_create_keyval(bring_along, leave, &keyval, &mine));
      CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &first));
      CROSSLANE_MPI(MPI_Comm_set_attr(first, keyval, nullptr));
      CROSSLANE_MPI(MPI_Comm_dup(first, &comm));
      CROSSLANE_MPI(MPI_Comm_delete_attr(first, keyval));
      CROSSLANE_MPI(MPI_Comm_free(&first));
      mine = {&program, refusals};
      CROSSLANE_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
      if (used) reduce(program, comm, "before");
      if (program.rank % 2 == 1) CROSSLANE_MPI(MPI_Comm_set_attr(comm, keyval, nullptr));
      for (int i = 0; i < refusals; ++i) {
        CROSSLANE_CHECK(MPI_Comm_free(&comm) != MPI_SUCCESS && comm != MPI_COMM_NULL, "a callback's refusal");
        reduce(program, comm, "after a refusal");
      }
      CROSSLANE_MPI(MPI_Comm_free(&comm));
      CROSSLANE_CHECK_EQUAL(mine.times, refusals + 1);
      CROSSLANE_MPI(MPI_Comm_free_keyval(&keyval));
    }
  }
}

// May be called once more by MPI's tests, of which some waits of ours are made: it communicates with nobody.
int query(void* /*state*/, MPI_Status* status) {
  MPI_Status_set_elements(status, MPI_INT, 7);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}

int released(void* state) {
  called(state);
  return MPI_SUCCESS;
}

int cancelled(void* /*state*/, int /*complete*/) { return MPI_SUCCESS; }

// Alone, and beside requests of messages with GPU memory.
void generalized_requests(Program& program) {
  constexpr int bytes = 100000;
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  for (const bool beside : {false, true}) {
    CROSSLANE_STEP("a generalized request {}", beside ? "beside others" : "alone");
    Called mine{&program};
    Memory out(program.kind(), bytes), in(program.kind(), bytes);
    const std::vector<std::byte> sent(bytes, std::byte{42});
    out.write(sent);
    std::vector<MPI_Request> requests(1, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Grequest_start(query, released, cancelled, &mine, requests.data()));
    CROSSLANE_MPI(MPI_Grequest_complete(requests[0]));
    if (beside) {
      requests.resize(3, MPI_REQUEST_NULL);
      CROSSLANE_MPI(MPI_Irecv(in.data(), bytes, MPI_BYTE, left, 4, MPI_COMM_WORLD, &requests[1]));
      CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_BYTE, right, 4, MPI_COMM_WORLD, &requests[2]));
    }
    std::vector<MPI_Status> statuses(requests.size());
    CROSSLANE_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data()));
    CROSSLANE_CHECK_EQUAL(mine.times, 1);
    int count = 0;
    MPI_Get_count(statuses.data(), MPI_INT, &count);
    CROSSLANE_CHECK_EQUAL(count, 7);
    CROSSLANE_CHECK(!beside || in.read() == sent, "a message beside it");
  }
}

void communicate_on_error(MPI_Comm* /*comm*/, int* code, ...) {
  the_called->code = *code;
  called(the_called);
}

struct Thrown {
  int code;
};

void throw_on_error(MPI_Comm* /*comm*/, int* code, ...) {
  ++the_called->times;
  throw Thrown{*code};
}

// Calls that fail in the same way on all ranks: the MPI finds one error, Crosslane the other.
template <class Call>
void fail(MPI_Comm comm, MemoryKind kind, const Call& called_with) {
  const Memory memory(kind, 4096);
  int size = 0;
  MPI_Comm_size(comm, &size);
  CROSSLANE_STEP("a rank that there is not, {} memory", name(kind));
  called_with(MPI_ERR_RANK, [&] { return MPI_Send(memory.data(), 64, MPI_INT, size + 5, 1, comm); });
  CROSSLANE_STEP("a negative count, {} memory", name(kind));
  called_with(MPI_ERR_COUNT, [&] { return MPI_Send(memory.data(), -1, MPI_INT, 0, 1, comm); });
}

void error_handlers(Program& program) {
  Called mine{&program};
  the_called = &mine;
  MPI_Comm comm = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MPI_Errhandler communicates = MPI_ERRHANDLER_NULL, throws = MPI_ERRHANDLER_NULL;
  CROSSLANE_MPI(MPI_Comm_create_errhandler(communicate_on_error, &communicates));
  CROSSLANE_MPI(MPI_Comm_create_errhandler(throw_on_error, &throws));
  for (const auto kind : {MemoryKind::host, program.kind()}) {
    CROSSLANE_MPI(MPI_Comm_set_errhandler(comm, communicates));
    mine.times = 0;
    fail(comm, kind, [&](int expected, auto call) {
      mine.code = MPI_SUCCESS;
      call();  // returns success in MPICH 5.0, once the handler has returned
      int error_class = MPI_SUCCESS;
      MPI_Error_class(mine.code, &error_class);
      CROSSLANE_CHECK_EQUAL(error_class, expected);
    });
    CROSSLANE_CHECK_EQUAL(mine.times, 2);

    CROSSLANE_MPI(MPI_Comm_set_errhandler(comm, throws));
    mine.times = 0;
    fail(comm, kind, [&](int expected, auto call) {
      int error_class = MPI_SUCCESS;
      try {
        call();
      } catch (const Thrown& thrown) {
        MPI_Error_class(thrown.code, &error_class);
      }
      CROSSLANE_CHECK_EQUAL(error_class, expected);
      communicate(program);  // all goes on as before
    });
    CROSSLANE_CHECK_EQUAL(mine.times, 2);
  }
  CROSSLANE_MPI(MPI_Errhandler_free(&communicates));
  CROSSLANE_MPI(MPI_Errhandler_free(&throws));
  CROSSLANE_MPI(MPI_Comm_free(&comm));
}

using Receives = std::array<MPI_Request, 3>;

void complete_all(Receives& receives) {
  std::array<MPI_Status, 3> statuses;
  MPI_Waitall(3, receives.data(), statuses.data());
}
void complete_some(Receives& receives) {
  std::array<MPI_Status, 3> statuses;
  std::array<int, 3> indices{};
  int completed = 0;
  while (completed != MPI_UNDEFINED) MPI_Waitsome(3, receives.data(), &completed, indices.data(), statuses.data());
}
void complete_any(Receives& receives) {
  int index = 0;
  while (index != MPI_UNDEFINED) MPI_Waitany(3, receives.data(), &index, MPI_STATUS_IGNORE);
}
void test_all(Receives& receives) {
  std::array<MPI_Status, 3> statuses;
  int flag = 0;
  while (flag == 0) MPI_Testall(3, receives.data(), &flag, statuses.data());
}
void test_each(Receives& receives) {
  for (MPI_Request& receive : receives) {
    int flag = 0;
    while (flag == 0) MPI_Test(&receive, &flag, MPI_STATUS_IGNORE);
  }
}

// Open MPI 4.1 writes what is too long past the end of the buffer, all of it, unless it is short.
#ifdef OPEN_MPI
constexpr bool overruns = true;
#else
constexpr bool overruns = false;
#endif

// Of three receives the first has too little room, and the error handler throws: the others are right all the same, and no handle stays of what is
// complete. Requests of a second kind of memory follow at once, which may get the same handles.
void throwing_completion(Program& program, MPI_Comm comm, MemoryKind kind, int bytes, void (*complete)(Receives&)) {
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  std::vector<Memory> in, out;
  Receives receives, sends;
  for (int i = 0; i < 3; ++i) {
    const auto length = static_cast<std::size_t>(bytes);
    in.emplace_back(kind, length).write(pattern(1, length));
    out.emplace_back(kind, length).write(pattern(mix(program.seed, program.rank, i, bytes), length));
    const int room = i == 0 ? bytes / 2 : bytes;
    const auto at = static_cast<std::size_t>(i);
    CROSSLANE_MPI(MPI_Irecv(in[at].data(), room, MPI_BYTE, left, i, comm, &receives[at]));
  }
  CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (std::size_t i = 0; i < 3; ++i)
    CROSSLANE_MPI(MPI_Isend(out[i].data(), bytes, MPI_BYTE, right, static_cast<int>(i), comm, &sends[i]));
  the_called->times = 0;
  // An MPI may leave what is pending where one has failed, or even that.
  while (std::ranges::any_of(receives, [](MPI_Request receive) { return receive != MPI_REQUEST_NULL; })) {
    try {
      complete(receives);
    } catch (const Thrown&) {
      continue;
    }
  }
  CROSSLANE_CHECK(the_called->times > 0, "{} errors were raised", the_called->times);
  for (std::size_t i = 1; i < 3; ++i)
    CROSSLANE_CHECK(in[i].read() == pattern(mix(program.seed, left, i, bytes), in[i].size()), "receive {}", i);
  CROSSLANE_MPI(MPI_Waitall(3, sends.data(), MPI_STATUSES_IGNORE));
  communicate(program);
}

// A call that MPI refuses has completed nothing: what it was given goes on.
void refused_completion(Program& program, MPI_Comm comm, MemoryKind kind, int bytes) {
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  const auto length = static_cast<std::size_t>(bytes);
  Memory in(kind, length), out(kind, length);
  in.write(pattern(1, length));
  out.write(pattern(mix(program.seed, program.rank, bytes), length));
  std::array<MPI_Request, 2> receive{};  // the second is no request at all
  MPI_Request send = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(in.data(), bytes, MPI_BYTE, left, 0, comm, &receive[0]));
  CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_BYTE, right, 0, comm, &send));
  bool thrown = false;
  try {
    MPI_Waitall(2, receive.data(), MPI_STATUSES_IGNORE);
  } catch (const Thrown&) {
    thrown = true;
  }
  CROSSLANE_CHECK(thrown, "a handle of no request was taken");
  CROSSLANE_MPI(MPI_Wait(&receive[0], MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.read() == pattern(mix(program.seed, left, bytes), length), "what was received");
  CROSSLANE_MPI(MPI_Wait(&send, MPI_STATUS_IGNORE));
}

void throwing_completions(Program& program) {
  Called mine{&program};
  the_called = &mine;
  MPI_Comm comm = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MPI_Errhandler throws = MPI_ERRHANDLER_NULL;
  CROSSLANE_MPI(MPI_Comm_create_errhandler(throw_on_error, &throws));
  // MPICH raises what a request meets on MPI_COMM_WORLD, or on MPI_COMM_SELF.
  const std::array comms{comm, MPI_COMM_WORLD, MPI_COMM_SELF};
  std::array<MPI_Errhandler, 3> before;
  for (std::size_t i = 0; i < comms.size(); ++i) {
    CROSSLANE_MPI(MPI_Comm_get_errhandler(comms[i], &before[i]));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(comms[i], throws));
  }
  for (const auto kind : {MemoryKind::host, program.kind()}) {
    for (const int bytes : {64, 6000, 500000}) {
      for (auto* const complete : {complete_all, complete_some, complete_any, test_all, test_each}) {
        if (overruns && bytes > 1000) break;
        CROSSLANE_STEP("an error handler that throws out of a completion, {} bytes in {} memory", bytes, name(kind));
        throwing_completion(program, comm, kind, bytes, complete);
      }
      CROSSLANE_STEP("a completion that MPI refuses, {} bytes in {} memory", bytes, name(kind));
      refused_completion(program, comm, kind, bytes);
    }
  }
  for (std::size_t i = 0; i < comms.size(); ++i) CROSSLANE_MPI(MPI_Comm_set_errhandler(comms[i], before[i]));
  CROSSLANE_MPI(MPI_Errhandler_free(&throws));
  CROSSLANE_MPI(MPI_Comm_free(&comm));
}

// The attributes of MPI_COMM_SELF are what an MPI deletes first in MPI_Finalize, the last one first, and all that MPI can do can be done there.
class Last {
 public:
  explicit Last(Program& program) : program_(program), in_(program.kind(), bytes), out_(program.kind(), bytes) {}

  // What was begun before MPI_Finalize is completed there.
  void prepare() {
    out_.write(pattern(mix(program_.seed, program_.rank, 70), bytes));
    std::vector<int> keyvals(2, MPI_KEYVAL_INVALID);
    CROSSLANE_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, after, &keyvals[0], this));
    CROSSLANE_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, before, &keyvals[1], this));
    for (int& keyval : keyvals) {
      CROSSLANE_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, this));
      CROSSLANE_MPI(MPI_Comm_free_keyval(&keyval));
    }
    CROSSLANE_MPI(MPI_Irecv(in_.data(), bytes, MPI_BYTE, left(), 7, MPI_COMM_WORLD, &receive_));
    CROSSLANE_MPI(MPI_Isend(out_.data(), bytes, MPI_BYTE, right(), 8, MPI_COMM_WORLD, &send_));
  }

  void check() const { CROSSLANE_CHECK_EQUAL(called_, 2); }

 private:
  static constexpr int bytes = 500000;
  [[nodiscard]] int left() const { return (program_.rank + program_.size - 1) % program_.size; }
  [[nodiscard]] int right() const { return (program_.rank + 1) % program_.size; }

  static int before(MPI_Comm /*comm*/, int /*keyval*/, void* /*value*/, void* state) {
    CROSSLANE_STEP("deleting the first attribute in MPI_Finalize");
    auto& self = *static_cast<Last*>(state);
    CROSSLANE_CHECK_EQUAL(self.called_++, 0);
    communicate(self.program_);
    CROSSLANE_MPI(MPI_Send(self.out_.data(), bytes, MPI_BYTE, self.right(), 7, MPI_COMM_WORLD));
    return MPI_SUCCESS;
  }

  static int after(MPI_Comm /*comm*/, int /*keyval*/, void* /*value*/, void* state) {
    CROSSLANE_STEP("deleting the last attribute in MPI_Finalize");
    auto& self = *static_cast<Last*>(state);
    CROSSLANE_CHECK_EQUAL(self.called_++, 1);
    CROSSLANE_MPI(MPI_Wait(&self.receive_, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(self.in_.read() == pattern(mix(self.program_.seed, self.left(), 70), bytes),
                    "a message that was sent in MPI_Finalize");
    Memory late(self.program_.kind(), bytes);
    CROSSLANE_MPI(MPI_Recv(late.data(), bytes, MPI_BYTE, self.left(), 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(late.read() == self.in_.read(), "a message that was sent before MPI_Finalize");
    CROSSLANE_MPI(MPI_Wait(&self.send_, MPI_STATUS_IGNORE));
    communicate(self.program_);
    return MPI_SUCCESS;
  }

  Program& program_;
  Memory in_, out_;
  MPI_Request receive_ = MPI_REQUEST_NULL, send_ = MPI_REQUEST_NULL;
  int called_ = 0;
};

int run(int argc, char** argv) {
  Program program(argc, argv, "lifecycle_callbacks");
  // So that the memory outlives the program's hold on the GPU.
  std::unique_ptr<Device> device;
  if (program.device() != nullptr) device = std::make_unique<Device>(program.device()->ordinal());
  Last last(program);
  // The first calls go otherwise than later ones.
  for (int round = 0; round < 2; ++round) {
    attributes(program);
    using_what_is_freed(program);
    generalized_requests(program);
    error_handlers(program);
    throwing_completions(program);
  }
  const int status = program.finish([&] { last.prepare(); });
  last.check();
  return failures() == 0 ? status : 1;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
