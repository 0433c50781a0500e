// The corners of point-to-point: null processes, truncation, cancelling, sending in place, partial elements, empty
// messages, queried and erroneous requests (MPI 5.0, sections 3.2 to 3.11), with every kind of memory. Every case is
// between neighbours: each rank sends to the right and receives from the left. It must not know Crosslane.
#include "point_to_point/message.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

int error_class(int result) {
  int value = MPI_SUCCESS;
  MPI_Error_class(result, &value);
  return value;
}

#ifdef OMPI_MAJOR_VERSION
constexpr std::size_t most_truncated =
    3500;  // Open MPI 4.1 writes past the end of a receive that truncates a longer message (vader, CMA)
#else
constexpr std::size_t most_truncated = std::size_t{4} << 20;
#endif

class Rank {
 public:
  explicit Rank(Program& program)
      : program_(program),
        left_((program.rank + program.size - 1) % program.size),
        right_((program.rank + 1) % program.size) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &returning_));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(returning_, MPI_ERRORS_RETURN));
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
    // Where MPI_Test raises a truncation is the MPI's choice: MPICH takes MPI_COMM_WORLD or SELF.
    CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  }
  ~Rank() {
    MPI_Comm_free(&returning_);
    MPI_Comm_free(&communicator_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(int rounds) {
    for (round_ = 0; round_ < rounds; ++round_) {
      bytes_ = std::max<std::size_t>(program_.shared().bytes(most_truncated), 4);
      truncation();
      truncation_among_others();
      bytes_ = std::max<std::size_t>(program_.shared().bytes(std::size_t{4} << 20), 4);
      null_process();
      cancelled_receives();
      cancel_of_a_matched_receive();
      in_place();
      partial_elements();
      empty_messages();
      queried();
      refused();
      persistent_receives();
      tails();
      step("the barrier after a round");
      polite_barrier();
    }
  }

 private:
  [[nodiscard]] std::vector<std::byte> data(int from, int what = 0) const {
    return pattern(mix(program_.seed, round_, from, what, 77), bytes_);
  }
  [[nodiscard]] Memory outgoing(int what = 0) {
    Memory memory(program_.kind(), bytes_);
    memory.write(data(program_.rank, what));
    return memory;
  }
  [[nodiscard]] Memory blank(std::size_t bytes) {
    Memory memory(program_.kind(), bytes);
    memory.write(blank_bytes(bytes));
    return memory;
  }
  [[nodiscard]] static std::vector<std::byte> blank_bytes(std::size_t bytes) {
    return std::vector<std::byte>(bytes, std::byte{0x5a});
  }
  static void check_blank(const Memory& memory, const char* what) {
    CROSSLANE_CHECK(memory.read() == blank_bytes(memory.size()), "{}: {} memory was written", what,
                    name(memory.kind()));
  }
  void check_received(const Memory& memory, const char* what, int number = 0) const {
    CROSSLANE_CHECK(memory.read() == data(left_, number), "{}: {} bytes in {} memory", what, bytes_,
                    name(memory.kind()));
  }
  [[nodiscard]] int count() const { return static_cast<int>(bytes_); }
  void step(const char* what) const { CROSSLANE_STEP("round {}: {}, {} bytes", round_, what, bytes_); }

  static void check_null(const MPI_Status& status, const char* what) {
    int received = -1;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &received));
    CROSSLANE_CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && received == 0,
                    "{} with MPI_PROC_NULL: source {}, tag {}, count {}", what, status.MPI_SOURCE, status.MPI_TAG,
                    received);
  }

  void null_process() {
    step("to and from MPI_PROC_NULL");
    const auto memory = blank(bytes_);
    const auto null = MPI_PROC_NULL;
    MPI_Status status;
    int flag = 0;
    CROSSLANE_MPI(MPI_Send(memory.data(), count(), MPI_BYTE, null, 0, communicator_));
    CROSSLANE_MPI(MPI_Ssend(memory.data(), count(), MPI_BYTE, null, 0, communicator_));
    CROSSLANE_MPI(MPI_Rsend(memory.data(), count(), MPI_BYTE, null, 0, communicator_));
    CROSSLANE_MPI(MPI_Recv(memory.data(), count(), MPI_BYTE, null, 0, communicator_, &status));
    check_null(status, "MPI_Recv");
    CROSSLANE_MPI(MPI_Recv(memory.data(), count(), MPI_BYTE, null, MPI_ANY_TAG, communicator_, MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_Probe(null, 0, communicator_, &status));
    check_null(status, "MPI_Probe");
    CROSSLANE_MPI(MPI_Iprobe(null, 0, communicator_, &flag, &status));
    CROSSLANE_CHECK(flag != 0, "MPI_Iprobe of MPI_PROC_NULL finds nothing");
    check_null(status, "MPI_Iprobe");
    MPI_Message message = MPI_MESSAGE_NULL;
    CROSSLANE_MPI(MPI_Mprobe(null, 0, communicator_, &message, &status));
    CROSSLANE_CHECK(message == MPI_MESSAGE_NO_PROC, "MPI_Mprobe of MPI_PROC_NULL does not give MPI_MESSAGE_NO_PROC");
    CROSSLANE_MPI(MPI_Mrecv(memory.data(), count(), MPI_BYTE, &message, &status));
    check_null(status, "MPI_Mprobe");
    CROSSLANE_CHECK(message == MPI_MESSAGE_NULL, "MPI_Mrecv leaves the message");
    std::array<MPI_Request, 6> requests;
    requests.fill(MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Isend(memory.data(), count(), MPI_BYTE, null, 0, communicator_, requests.data()));
    CROSSLANE_MPI(MPI_Issend(memory.data(), count(), MPI_BYTE, null, 0, communicator_, &requests[1]));
    CROSSLANE_MPI(MPI_Irecv(memory.data(), count(), MPI_BYTE, null, 0, communicator_, &requests[2]));
    CROSSLANE_MPI(MPI_Wait(&requests[2], &status));
#ifndef MPICH_VERSION  // MPICH 4.0 leaves this status as it was
    check_null(status, "MPI_Mrecv");
#endif
    CROSSLANE_MPI(MPI_Send_init(memory.data(), count(), MPI_BYTE, null, 0, communicator_, &requests[3]));
    CROSSLANE_MPI(MPI_Recv_init(memory.data(), count(), MPI_BYTE, null, 0, communicator_, &requests[4]));
    message = MPI_MESSAGE_NO_PROC;
    CROSSLANE_MPI(MPI_Imrecv(memory.data(), count(), MPI_BYTE, &message, &requests[5]));
    CROSSLANE_MPI(MPI_Startall(2, &requests[3]));
    // No statuses: of such requests among others MPICH 4.0 leaves them as they were.
    CROSSLANE_MPI(MPI_Waitall(6, requests.data(), MPI_STATUSES_IGNORE));
    CROSSLANE_MPI(MPI_Request_free(&requests[3]));
    CROSSLANE_MPI(MPI_Request_free(&requests[4]));
    CROSSLANE_MPI(MPI_Sendrecv_replace(memory.data(), count(), MPI_BYTE, null, 0, null, 0, communicator_, &status));
    check_null(status, "MPI_Irecv");
    check_blank(memory, "MPI_PROC_NULL");
  }

  // The receive is too short in one of several ways; the next message of the same tag arrives whole.
  // Whole pieces, into which some protocols cut a message, and a few words behind them.
  void tails() {
    constexpr std::array<std::size_t, 3> pieces{5000, 20000, 40000};
    for (const std::size_t piece : pieces) {
      bytes_ = piece + 4 * (1 + program_.shared().below(4));
      step("a few words behind whole pieces");
      const auto out = outgoing(), in = blank(bytes_);
      std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
      CROSSLANE_MPI(MPI_Irecv(in.data(), count(), MPI_BYTE, left_, 8, communicator_, &requests[0]));
      CROSSLANE_MPI(MPI_Isend(out.data(), count(), MPI_BYTE, right_, 8, communicator_, &requests[1]));
      polite_waitall(requests);
      check_received(in, "a few words behind whole pieces");
    }
  }

  void truncation() {
    const auto way = program_.shared().below(5);
    step("truncation");
    const auto bytes = static_cast<int>(bytes_);
    const int most = program_.shared().chance(30) ? std::min(bytes - 1, 16) : bytes - 1;
    const int room = program_.shared().between(0, most);
    const auto out = outgoing(), after = outgoing(1);
    const auto in = blank(static_cast<std::size_t>(room)), next = blank(bytes_);
    std::vector<MPI_Request> sends(2, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_BYTE, right_, 1, returning_, &sends[0]));
    CROSSLANE_MPI(MPI_Isend(after.data(), bytes, MPI_BYTE, right_, 1, returning_, &sends[1]));
    int result = MPI_SUCCESS;
    MPI_Status status;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (way) {
      case 0:
        result = MPI_Recv(in.data(), room, MPI_BYTE, left_, 1, returning_, &status);
        break;
      case 1:
        result = MPI_Recv(in.data(), room, MPI_BYTE, left_, 1, returning_, MPI_STATUS_IGNORE);
        break;
      case 2:
        result = MPI_Irecv(in.data(), room, MPI_BYTE, left_, 1, returning_, &request);
        CROSSLANE_CHECK_EQUAL(result, MPI_SUCCESS);
        result = MPI_Wait(&request, &status);
        break;
      case 3: {
        CROSSLANE_MPI(MPI_Irecv(in.data(), room, MPI_BYTE, left_, 1, returning_, &request));
        for (int flag = 0; flag == 0 && result == MPI_SUCCESS; sched_yield())
          result = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        break;
      }
      default: {
        MPI_Message message = MPI_MESSAGE_NULL;
        CROSSLANE_MPI(MPI_Mprobe(left_, 1, returning_, &message, &status));
        result = MPI_Mrecv(in.data(), room, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        break;
      }
    }
    CROSSLANE_CHECK(error_class(result) == MPI_ERR_TRUNCATE, "way {}: {} bytes into {}: {}", way, bytes, room,
                    describe_mpi_error(result));
    CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "way {}: the failed receive's request is not null", way);
    CROSSLANE_MPI(MPI_Recv(next.data(), bytes, MPI_BYTE, left_, 1, returning_, MPI_STATUS_IGNORE));
    check_received(next, "after a truncated message", 1);
    polite_waitall(sends);
  }

  // MPI_Waitall over one good, one truncated and one more good receive: MPI_ERR_IN_STATUS, and each status tells.
  void truncation_among_others() {
    step("truncation in MPI_Waitall");
    const auto bad = program_.shared().below(3);
    std::vector<Memory> out, in;
    std::vector<MPI_Request> sends(3, MPI_REQUEST_NULL), receives(3, MPI_REQUEST_NULL);
    for (int i = 0; i < 3; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out.push_back(outgoing(i));
      in.push_back(blank(at == bad ? bytes_ / 2 : bytes_));
      CROSSLANE_MPI(
          MPI_Irecv(in[at].data(), static_cast<int>(in[at].size()), MPI_BYTE, left_, i, returning_, &receives[at]));
    }
    for (int i = 0; i < 3; ++i) {
      const auto at = static_cast<std::size_t>(i);
      CROSSLANE_MPI(MPI_Isend(out[at].data(), count(), MPI_BYTE, right_, i, returning_, &sends[at]));
    }
    std::array<MPI_Status, 3> statuses;
    int failed = 0;
    // Those that are pending when the error comes are waited for again.
    for (;;) {
      for (auto& status : statuses) status.MPI_ERROR = MPI_SUCCESS;
      const int result = MPI_Waitall(3, receives.data(), statuses.data());
      if (result == MPI_SUCCESS) break;
      CROSSLANE_CHECK(error_class(result) == MPI_ERR_IN_STATUS, "MPI_Waitall: {}", describe_mpi_error(result));
      for (std::size_t i = 0; i < 3; ++i) {
        const int error = error_class(statuses[i].MPI_ERROR);
        if (error == MPI_ERR_TRUNCATE) {
          CROSSLANE_CHECK_EQUAL(i, bad);
          ++failed;
        } else {
          CROSSLANE_CHECK(error == MPI_SUCCESS || error == MPI_ERR_PENDING, "status {}: {}", i,
                          describe_mpi_error(statuses[i].MPI_ERROR));
        }
      }
      if (failed > 1 ||
          std::all_of(receives.begin(), receives.end(), [](MPI_Request one) { return one == MPI_REQUEST_NULL; }))
        break;
    }
    CROSSLANE_CHECK(failed == 1, "{} receives were reported as truncated, of 1", failed);
    for (int i = 0; i < 3; ++i)
      if (static_cast<std::size_t>(i) != bad)
        check_received(in[static_cast<std::size_t>(i)], "beside a truncated message", i);
    polite_waitall(sends);
  }

  void cancelled_receives() {
    step("cancelling receives that nothing matches");
    const auto first = blank(bytes_), second = blank(bytes_);
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    CROSSLANE_MPI(MPI_Irecv(first.data(), count(), MPI_BYTE, left_, 999, communicator_, requests.data()));
    CROSSLANE_MPI(MPI_Recv_init(second.data(), count(), MPI_BYTE, MPI_ANY_SOURCE, 999, communicator_, &requests[1]));
    CROSSLANE_MPI(MPI_Start(&requests[1]));
    for (auto& request : requests) {
      CROSSLANE_MPI(MPI_Cancel(&request));
      CROSSLANE_CHECK(request != MPI_REQUEST_NULL, "MPI_Cancel freed the request");
      MPI_Status status;
      complete(program_.local(), request, &status, &request == &requests[1]);
      int flag = 0;
      CROSSLANE_MPI(MPI_Test_cancelled(&status, &flag));
      CROSSLANE_CHECK(flag != 0, "a receive that nothing matched was not cancelled");
    }
    CROSSLANE_CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL, "requests after cancelling");
    CROSSLANE_MPI(MPI_Request_free(&requests[1]));
    check_blank(first, "a cancelled receive");
    check_blank(second, "a cancelled persistent receive");
  }

  // The message was there when the receive was posted: cancelling has no effect.
  void cancel_of_a_matched_receive() {
    step("cancelling a receive that has matched");
    const auto out = outgoing(), in = blank(bytes_);
    std::vector<MPI_Request> send(1, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Isend(out.data(), count(), MPI_BYTE, right_, 3, communicator_, send.data()));
    MPI_Status status;
    for (int found = 0; found == 0; sched_yield()) CROSSLANE_MPI(MPI_Iprobe(left_, 3, communicator_, &found, &status));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(in.data(), count(), MPI_BYTE, left_, 3, communicator_, &request));
    CROSSLANE_MPI(MPI_Cancel(&request));
    complete(program_.local(), request, &status);
    int flag = 0;
    CROSSLANE_MPI(MPI_Test_cancelled(&status, &flag));
    CROSSLANE_CHECK(flag == 0, "a receive was cancelled after it had matched");
    check_received(in, "a receive that could not be cancelled");
    polite_waitall(send);
  }

  void in_place() {
    step("MPI_Sendrecv_replace around all ranks, twice at once");
    auto memory = outgoing();
    MPI_Status status;
    CROSSLANE_MPI(MPI_Sendrecv_replace(memory.data(), count(), MPI_BYTE, right_, 4, left_, 4, communicator_, &status));
    CROSSLANE_CHECK_EQUAL(status.MPI_SOURCE, left_);
    check_received(memory, "MPI_Sendrecv_replace");
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1
    step("MPI_Isendrecv and MPI_Isendrecv_replace around all ranks");
    // Nothing that a call before has had.
    auto out = outgoing();
    const auto in = blank(bytes_);
    out.write(data(program_.rank, 2));
    memory.write(data(program_.rank, 1));
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    CROSSLANE_MPI(MPI_Isendrecv(out.data(), count(), MPI_BYTE, right_, 5, in.data(), count(), MPI_BYTE, left_, 5,
                                communicator_, requests.data()));
    CROSSLANE_MPI(
        MPI_Isendrecv_replace(memory.data(), count(), MPI_BYTE, right_, 6, left_, 6, communicator_, &requests[1]));
    CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
    check_received(in, "MPI_Isendrecv", 2);
    check_received(memory, "MPI_Isendrecv_replace", 1);
#endif
    Layout spread = Layout::random(program_.shared(), units_.pick(program_.shared()), 32);
    step(spread.text().c_str());
    const auto bytes = spread.units().size() * spread.unit().size;
    const auto contents = [&](int rank) { return pattern(mix(program_.seed, round_, rank, 5), 3 * bytes); };
    TypedBuffer buffer(program_.kind(), std::move(spread), 3, program_.local().next());
    buffer.load(contents(program_.rank));
    CROSSLANE_MPI(MPI_Sendrecv_replace(buffer.address(), buffer.count(), buffer.type(), right_, 7, left_, 7,
                                       communicator_, MPI_STATUS_IGNORE));
    buffer.check_received(contents(left_), "MPI_Sendrecv_replace");
  }

  // One element and a part of the next arrive: MPI_Get_count is undefined, MPI_Get_elements counts basic ones.
  void partial_elements() {
    step("a part of an element");
    MPI_Datatype triple = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_vector(3, 1, 2, MPI_INT, &triple));
    CROSSLANE_MPI(MPI_Type_commit(&triple));
    Memory out(program_.kind(), 5 * sizeof(int)), in(program_.kind(), 15 * sizeof(int));
    out.fill(std::vector<int>{1, 2, 3, 4, 5 + program_.rank});
    std::vector<int> expected(15, -1);
    in.fill(expected);
    std::vector<MPI_Request> send(1, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Isend(out.data(), 5, MPI_INT, right_, 8, communicator_, send.data()));
    MPI_Status status;
    CROSSLANE_MPI(MPI_Recv(in.data(), 3, triple, left_, 8, communicator_, &status));
    int elements = 0, whole = 0;
    MPI_Count elements_x = 0;
    CROSSLANE_MPI(MPI_Get_count(&status, triple, &whole));
    CROSSLANE_MPI(MPI_Get_elements(&status, triple, &elements));
    CROSSLANE_MPI(MPI_Get_elements_x(&status, triple, &elements_x));
    CROSSLANE_CHECK_EQUAL(whole, MPI_UNDEFINED);
    CROSSLANE_CHECK_EQUAL(elements, 5);
    CROSSLANE_CHECK_EQUAL(elements_x, MPI_Count{5});
    // Elements of extent 5: ints at 0, 2, 4, then at 5, 7.
    expected[0] = 1, expected[2] = 2, expected[4] = 3, expected[5] = 4, expected[7] = 5 + left_;
    CROSSLANE_CHECK(in.values<int>() == expected, "a part of an element in {} memory", name(in.kind()));
    polite_waitall(send);
    CROSSLANE_MPI(MPI_Type_free(&triple));
  }

  void empty_messages() {
    step("empty messages, also from and to null pointers");
    const auto memory = blank(bytes_);
    MPI_Status status;
    for (void* const address : {memory.data(), static_cast<void*>(nullptr)}) {
      CROSSLANE_MPI(
          MPI_Sendrecv(address, 0, MPI_BYTE, right_, 9, address, 0, MPI_BYTE, left_, 9, communicator_, &status));
      int received = -1;
      CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &received));
      CROSSLANE_CHECK(received == 0 && status.MPI_SOURCE == left_ && status.MPI_TAG == 9,
                      "an empty message: source {}, tag {}, count {}", status.MPI_SOURCE, status.MPI_TAG, received);
    }
    std::vector<MPI_Request> send(1, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Isend(nullptr, 0, MPI_DOUBLE, right_, 9, communicator_, send.data()));
    CROSSLANE_MPI(
        MPI_Recv(memory.data(), count(), MPI_BYTE, left_, 9, communicator_, &status));  // room for more than nothing
    polite_waitall(send);
    check_blank(memory, "an empty message");
  }

  // MPI_Request_get_status leaves the request; what it reports is already in the buffer.
  void queried() {
    step("MPI_Request_get_status, again and again");
    const auto out = outgoing(), in = blank(bytes_);
    std::vector<MPI_Request> send(1, MPI_REQUEST_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(in.data(), count(), MPI_BYTE, MPI_ANY_SOURCE, 10, communicator_, &request));
    CROSSLANE_MPI(MPI_Isend(out.data(), count(), MPI_BYTE, right_, 10, communicator_, send.data()));
    MPI_Status status;
    for (int flag = 0; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &status));
    CROSSLANE_CHECK_EQUAL(status.MPI_SOURCE, left_);
    check_received(in, "after MPI_Request_get_status");
    int flag = 0;
    MPI_Status again;
    CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &again));
    CROSSLANE_CHECK(flag != 0 && again.MPI_SOURCE == left_ && again.MPI_TAG == 10, "the second MPI_Request_get_status");
    CROSSLANE_CHECK(request != MPI_REQUEST_NULL, "MPI_Request_get_status freed the request");
    CROSSLANE_MPI(MPI_Wait(&request, &again));
    CROSSLANE_CHECK(again.MPI_SOURCE == left_ && again.MPI_TAG == 10 && request == MPI_REQUEST_NULL,
                    "MPI_Wait after a query");
    check_received(in, "after MPI_Wait");
    polite_waitall(send);
    CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &status));
    CROSSLANE_CHECK(flag != 0 && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG,
                    "the null request's status");
  }

  // Calls that the MPI refuses: its error class comes back, nothing is sent, and the buffer is as before.
  void refused() {
    step("calls that the MPI refuses");
    const auto memory = blank(bytes_);
    MPI_Request request = MPI_REQUEST_NULL;
    const int nobody = program_.size + 5;
    const auto expect = [](int result, int expected, const char* call) {
      CROSSLANE_CHECK(error_class(result) == expected, "{}: class {}, expected {}", call, error_class(result),
                      expected);
    };
    expect(MPI_Send(memory.data(), count(), MPI_BYTE, nobody, 0, returning_), MPI_ERR_RANK, "MPI_Send to nobody");
    expect(MPI_Isend(memory.data(), count(), MPI_BYTE, nobody, 0, returning_, &request), MPI_ERR_RANK,
           "MPI_Isend to nobody");
    expect(MPI_Recv(memory.data(), count(), MPI_BYTE, nobody, 0, returning_, MPI_STATUS_IGNORE), MPI_ERR_RANK,
           "MPI_Recv from nobody");
    expect(MPI_Irecv(memory.data(), count(), MPI_BYTE, nobody, 0, returning_, &request), MPI_ERR_RANK,
           "MPI_Irecv from nobody");
    expect(MPI_Send(memory.data(), count(), MPI_BYTE, right_, -5, returning_), MPI_ERR_TAG, "MPI_Send with tag -5");
    expect(MPI_Send(memory.data(), -1, MPI_BYTE, right_, 0, returning_), MPI_ERR_COUNT, "MPI_Send of -1 elements");
    check_blank(memory, "a refused call");
  }

  void persistent_receives() {
    step("a persistent receive, started and completed again and again");
    auto out = outgoing();
    std::array<Memory, 2> in{blank(bytes_), blank(bytes_)};
    std::array<MPI_Request, 4> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::size_t>(i);
      CROSSLANE_MPI(MPI_Recv_init(in[at].data(), count(), MPI_BYTE, left_, 11 + i, communicator_, &requests[at]));
      CROSSLANE_MPI(MPI_Send_init(out.data(), count(), MPI_BYTE, right_, 11 + i, communicator_, &requests[2 + at]));
    }
    for (int start = 0; start < 3; ++start) {
      out.write(data(program_.rank, start));
      CROSSLANE_MPI(MPI_Startall(4, requests.data()));
      CROSSLANE_MPI(MPI_Waitall(4, requests.data(), MPI_STATUSES_IGNORE));
      for (auto& one : in) {
        check_received(one, "a persistent receive", start);
        one.write(blank_bytes(bytes_));
      }
      MPI_Status status;
      CROSSLANE_MPI(MPI_Wait(requests.data(), &status));  // inactive: at once, and nothing is written
      CROSSLANE_CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG,
                      "an inactive request's status");
      for (const auto& one : in) check_blank(one, "an inactive request");
    }
    for (auto& request : requests) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  Program& program_;
  int left_, right_;
  Units units_;
  MPI_Comm returning_ = MPI_COMM_NULL, communicator_ = MPI_COMM_NULL;
  int round_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_special");
  Rank(program).run(static_cast<int>(program.option("cases", 15)));
  return program.finish();
}
