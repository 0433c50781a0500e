// Whom errors are told: the error handler of the communicator, once, whatever the memory. It must not know Crosslane.
#include "bad_input/usable.h"
#include "support/plain_mpi.h"
#include "support/program.h"
#include "support/refused.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

// An error handler of the program, and what it was called with.
struct Heard {
  static void handler(MPI_Comm* comm, int* code, ...) { last() = {calls() += 1, *comm, *code}; }
  static int& calls() {
    static int value = 0;
    return value;
  }
  static Heard& last() {
    static Heard value{0, MPI_COMM_NULL, MPI_SUCCESS};
    return value;
  }
  int call;
  MPI_Comm comm;
  int code;
};

void let_hear(MPI_Comm comm) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  CROSSLANE_MPI(MPI_Comm_create_errhandler(Heard::handler, &handler));
  CROSSLANE_MPI(MPI_Comm_set_errhandler(comm, handler));
  CROSSLANE_MPI(MPI_Errhandler_free(&handler));
}

MPI_Comm heard_communicator() {
  MPI_Comm own = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own));
  let_hear(own);
  return own;
}

// What a handler is told of a call that MPI refuses, with this memory of the host and with that of a GPU.
template <class Body>
void compare(void* gpu_from, void* gpu_to, void* host_from, void* host_to, Body&& body) {
  std::array<int, 2> classes{}, calls{};
  for (const std::size_t gpu : {0, 1}) {
    Heard::last() = {0, MPI_COMM_NULL, MPI_SUCCESS};
    Heard::calls() = 0;
    static_cast<void>(body(gpu != 0 ? gpu_from : host_from, gpu != 0 ? gpu_to : host_to));
    MPI_Error_class(Heard::last().code, &classes.at(gpu));
    calls.at(gpu) = Heard::calls();
  }
  CROSSLANE_CHECK(classes[0] != MPI_SUCCESS, "the MPI does not refuse it");
  CROSSLANE_CHECK_EQUAL(classes[1], classes[0]);
  CROSSLANE_CHECK_EQUAL(calls[1], calls[0]);
}

// MPI_COMM_NULL: one handler hears of it, once, as from host memory. Open MPI 4.1 does not check all procedures, and ends the program in
// those that probe.
void no_communicator() {
  const Allocation sent(megabytes), received(megabytes);
  std::vector<int> host(16), other_host(16);
  let_hear(MPI_COMM_WORLD);
  let_hear(MPI_COMM_SELF);
  const MPI_Comm none = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto check = [&](const char* call, auto&& body) {
    CROSSLANE_STEP("{} on MPI_COMM_NULL", call);
    compare(sent.data(), received.data(), host.data(), other_host.data(), body);
    CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  };
  check("MPI_Bcast", [&](void*, void* to) { return MPI_Bcast(to, 1, MPI_INT, 0, none); });
  check("MPI_Gather", [&](void* from, void* to) { return MPI_Gather(from, 1, MPI_INT, to, 1, MPI_INT, 0, none); });
  check("MPI_Allreduce", [&](void* from, void* to) { return MPI_Allreduce(from, to, 1, MPI_INT, MPI_SUM, none); });
  check("MPI_Iallreduce",
        [&](void* from, void* to) { return MPI_Iallreduce(from, to, 1, MPI_INT, MPI_SUM, none, &request); });
  check("MPI_Reduce_scatter_block",
        [&](void* from, void* to) { return MPI_Reduce_scatter_block(from, to, 1, MPI_INT, MPI_SUM, none); });
  check("MPI_Send", [&](void* from, void*) { return MPI_Send(from, 1, MPI_INT, 0, 1, none); });
#ifndef CROSSLANE_TEST_MPI_OPENMPI
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  const auto heard = [&](const char* call, auto&& body) {
    CROSSLANE_STEP("{} on MPI_COMM_NULL", call);
    Heard::calls() = 0;
    static_cast<void>(body());
    CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  };
  heard("MPI_Probe", [&] { return MPI_Probe(0, 1, none, &status); });
  heard("MPI_Iprobe", [&] { return MPI_Iprobe(0, 1, none, &there, &status); });
  heard("MPI_Mprobe", [&] { return MPI_Mprobe(0, 1, none, &message, &status); });
  heard("MPI_Improbe", [&] { return MPI_Improbe(0, 1, none, &there, &message, &status); });
#endif
  CROSSLANE_STEP("MPI_Send on MPI_COMM_NULL from past the end of a buffer");
  Heard::calls() = 0;
  const int result = MPI_Send(sent.data(), static_cast<int>(megabytes), MPI_INT, 0, 1, none);
  int got = MPI_SUCCESS;
  MPI_Error_class(Heard::last().code, &got);
  CROSSLANE_CHECK_EQUAL(got, MPI_ERR_BUFFER);
  CROSSLANE_CHECK_EQUAL(Heard::last().code, result);
  CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

#ifndef CROSSLANE_TEST_MPI_OPENMPI
// A handle that is left of a communicator that was freed: MPI refuses it, and one handler hears of that, once, whatever call it is and
// whatever the memory. Open MPI may crash there.
void freed_communicator() {
  const Allocation sent(megabytes), received(megabytes);
  std::vector<std::byte> host(megabytes), other_host(megabytes);
  MPI_Comm own = MPI_COMM_NULL;
  CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own));
  const MPI_Comm gone = own;
  CROSSLANE_MPI(MPI_Comm_free(&own));
  let_hear(MPI_COMM_WORLD);
  let_hear(MPI_COMM_SELF);
  Heard::calls() = 0;
  bool heard = true;
  // MPICH 5.0 returns success then.
  int of_nobody = 0;
  const bool handler_settles = PMPI_Comm_size(gone, &of_nobody) == MPI_SUCCESS;
  CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  const auto check = [&](const char* call, auto&& body) {
    for (const bool gpu : {false, true}) {
      CROSSLANE_STEP("{} on a freed communicator, {} memory, {}", call, gpu ? "GPU" : "host",
                     heard ? "with a handler" : "errors return");
      Heard::last() = {0, MPI_COMM_NULL, MPI_SUCCESS};
      Heard::calls() = 0;
      const int result = gpu ? body(sent.data(), received.data()) : body(host.data(), other_host.data());
      const int code = heard ? Heard::last().code : result;
      int error_class = MPI_SUCCESS;
      MPI_Error_class(code, &error_class);
      CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_COMM);
      CROSSLANE_CHECK_EQUAL(Heard::calls(), heard ? 1 : 0);
      CROSSLANE_CHECK(result == (heard && handler_settles ? MPI_SUCCESS : code),
                      "the handler was told {}, the caller {}", code, result);
    }
  };
  constexpr int many = 1000;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Status status;
  int there = 0;
  // Whether blocks of it are GPU memory is asked with their counts, and so of the communicator.
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(2, 1, 3, MPI_INT, &spread));
  CROSSLANE_MPI(MPI_Type_commit(&spread));
  const std::array<int, 8> counts{1, 1, 1, 1, 1, 1, 1, 1}, places{};
  const std::array<MPI_Aint, 8> bytes{};
  std::array<MPI_Datatype, 8> types{};
  types.fill(spread);
  MPI_Comm made = MPI_COMM_NULL;
  const auto check_all = [&] {
    check("MPI_Bcast", [&](void*, void* to) { return MPI_Bcast(to, many, MPI_INT, 0, gone); });
    check("MPI_Allgather",
          [&](void* from, void* to) { return MPI_Allgather(from, many, MPI_INT, to, many, MPI_INT, gone); });
    check("MPI_Allreduce", [&](void* from, void* to) { return MPI_Allreduce(from, to, many, MPI_INT, MPI_SUM, gone); });
    check("MPI_Iallreduce",
          [&](void* from, void* to) { return MPI_Iallreduce(from, to, many, MPI_INT, MPI_SUM, gone, &request); });
    check("MPI_Neighbor_allgather",
          [&](void* from, void* to) { return MPI_Neighbor_allgather(from, many, MPI_INT, to, many, MPI_INT, gone); });
#if MPI_VERSION >= 4
    check("MPI_Allreduce_init", [&](void* from, void* to) {
      return MPI_Allreduce_init(from, to, many, MPI_INT, MPI_SUM, gone, MPI_INFO_NULL, &request);
    });
    check("MPI_Isendrecv", [&](void* from, void* to) {
      return MPI_Isendrecv(from, many, MPI_INT, 0, 1, to, many, MPI_INT, 0, 1, gone, &request);
    });
#endif
    check("MPI_Send", [&](void* from, void*) { return MPI_Send(from, many, MPI_INT, 0, 1, gone); });
    check("MPI_Isend", [&](void* from, void*) { return MPI_Isend(from, many, MPI_INT, 0, 1, gone, &request); });
    check("MPI_Send_init", [&](void* from, void*) { return MPI_Send_init(from, many, MPI_INT, 0, 1, gone, &request); });
    check("MPI_Recv", [&](void*, void* to) { return MPI_Recv(to, many, MPI_INT, 0, 1, gone, &status); });
    check("MPI_Irecv", [&](void*, void* to) { return MPI_Irecv(to, many, MPI_INT, 0, 1, gone, &request); });
    check("MPI_Recv_init", [&](void*, void* to) { return MPI_Recv_init(to, many, MPI_INT, 0, 1, gone, &request); });
    check("MPI_Sendrecv", [&](void* from, void* to) {
      return MPI_Sendrecv(from, many, MPI_INT, 0, 1, to, many, MPI_INT, 0, 1, gone, &status);
    });
    check("MPI_Probe", [&](void*, void*) { return MPI_Probe(0, 1, gone, &status); });
    check("MPI_Iprobe", [&](void*, void*) { return MPI_Iprobe(0, 1, gone, &there, &status); });
    check("MPI_Mprobe", [&](void*, void*) { return MPI_Mprobe(0, 1, gone, &message, &status); });
    check("MPI_Improbe", [&](void*, void*) { return MPI_Improbe(0, 1, gone, &there, &message, &status); });
    check("MPI_Win_create", [&](void*, void* to) { return MPI_Win_create(to, many, 1, MPI_INFO_NULL, gone, &window); });
    check("MPI_Gather", [&](void* from, void* to) { return MPI_Gather(from, 1, spread, to, 1, spread, 0, gone); });
    check("MPI_Scatterv", [&](void* from, void* to) {
      return MPI_Scatterv(from, counts.data(), places.data(), spread, to, 1, spread, 0, gone);
    });
    check("MPI_Alltoallw", [&](void* from, void* to) {
      return MPI_Alltoallw(from, counts.data(), places.data(), types.data(), to, counts.data(), places.data(),
                           types.data(), gone);
    });
    check("MPI_Neighbor_alltoallw", [&](void* from, void* to) {
      return MPI_Neighbor_alltoallw(from, counts.data(), bytes.data(), types.data(), to, counts.data(), bytes.data(),
                                    types.data(), gone);
    });
    check("MPI_Comm_dup", [&](void*, void*) { return MPI_Comm_dup(gone, &made); });
    check("MPI_Comm_idup", [&](void*, void*) { return MPI_Comm_idup(gone, &made, &request); });
    check("MPI_Comm_split", [&](void*, void*) { return MPI_Comm_split(gone, 0, 0, &made); });
    CROSSLANE_CHECK(made == MPI_COMM_NULL, "a communicator was made of a freed one");
  };
  check_all();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  heard = false;
  check_all();
  CROSSLANE_MPI(MPI_Type_free(&spread));
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}
#endif

// Neighbours of a communicator that has none, whose error handler hears of it once.
void without_topology() {
  CROSSLANE_STEP("neighbours without a topology");
  const Allocation sent(megabytes), received(megabytes);
  MPI_Comm own = heard_communicator();
  MPI_Request request = MPI_REQUEST_NULL;
  const std::array<int, 1> counts{1}, places{0};
  void *const from = sent.data(), *const to = received.data();
  const auto check = [&](const char* call, auto&& body) {
    CROSSLANE_STEP("{} without a topology", call);
    Heard::calls() = 0;
    expect(body(), MPI_ERR_TOPOLOGY, {call, "MPI_Cart_create"});
    CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  };
  check("MPI_Neighbor_allgather", [&] { return MPI_Neighbor_allgather(from, 1, MPI_INT, to, 1, MPI_INT, own); });
  check("MPI_Neighbor_alltoallv", [&] {
    return MPI_Neighbor_alltoallv(from, counts.data(), places.data(), MPI_INT, to, counts.data(), places.data(),
                                  MPI_INT, own);
  });
  check("MPI_Ineighbor_alltoall",
        [&] { return MPI_Ineighbor_alltoall(from, 1, MPI_INT, to, 1, MPI_INT, own, &request); });
  CROSSLANE_MPI(MPI_Comm_free(&own));
}

// The communicator's own handler hears of it, once, with this communicator.
void of_a_call(const Program& program) {
  CROSSLANE_STEP("a handler of the program");
  const Allocation memory(megabytes);
  MPI_Comm own = heard_communicator();
  Heard::calls() = 0;
  const int result = MPI_Send(memory.data(), -1, MPI_INT, program.rank, 1, own);
  CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  CROSSLANE_CHECK(Heard::last().comm == own, "the handler was called for another communicator");
  CROSSLANE_CHECK_EQUAL(Heard::last().code, result);
  expect(result, MPI_ERR_COUNT, {"MPI_Send", "count"});
  expect(MPI_Send(memory.data(), -1, MPI_INT, program.rank, 1, MPI_COMM_WORLD), MPI_ERR_COUNT, {"MPI_Send", "count"});
  CROSSLANE_CHECK_EQUAL(Heard::calls(), 1);
  CROSSLANE_MPI(MPI_Comm_free(&own));
}

// What goes wrong at completion is told to the communicator of the request, or to MPI_COMM_WORLD once that is freed.
void of_a_request(const Program& program, bool freed) {
  CROSSLANE_STEP("a handler of the program, for a request{}", freed ? " whose communicator is freed" : "");
  constexpr int bytes = 1000;
  Allocation memory(megabytes);
  const std::vector<std::byte> sent(bytes);
  std::vector<std::byte> received(bytes);
  MPI_Comm own = heard_communicator();
  Heard::calls() = 0;
  std::array<MPI_Request, 2> requests{};
  CROSSLANE_MPI(MPI_Irecv(memory.data(), bytes, MPI_BYTE, program.rank, 1, own, &requests[0]));
  CROSSLANE_MPI(MPI_Irecv(received.data(), bytes, MPI_BYTE, program.rank, 2, own, &requests[1]));
  memory.free();
  CROSSLANE_MPI(MPI_Send(sent.data(), bytes, MPI_BYTE, program.rank, 1, own));
  CROSSLANE_MPI(MPI_Send(sent.data(), bytes, MPI_BYTE, program.rank, 2, own));
  const MPI_Comm before = own;
  if (freed) CROSSLANE_MPI(MPI_Comm_free(&own));
  CROSSLANE_MPI(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  const int result = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  expect(result, MPI_ERR_BUFFER, {"MPI_Wait", "freed"});
  CROSSLANE_CHECK_EQUAL(Heard::calls(), freed ? 0 : 1);
  if (!freed) {
    CROSSLANE_CHECK(Heard::last().comm == before, "the handler was called for another communicator");
    CROSSLANE_CHECK_EQUAL(Heard::last().code, result);
    CROSSLANE_MPI(MPI_Comm_free(&own));
  }
}

// MPI's own error: it has called the handler, and nobody else does.
void refused_by_mpi(const Program& program) {
  meet(program);
  CROSSLANE_STEP("tags that MPI refuses");
  const Allocation memory(megabytes), other(megabytes);
  std::vector<std::byte> host(megabytes), other_host(megabytes);
  MPI_Comm own = heard_communicator();
  constexpr int bytes = static_cast<int>(megabytes), bad = -7;
  const int right = (program.rank + 1) % program.size;
  MPI_Request request = MPI_REQUEST_NULL;
  // MPICH 5.0 returns success behind a handler: its code is lost.
  const bool silent = MPI_Send(host.data(), 1, MPI_BYTE, right, bad, own) == MPI_SUCCESS;
  const auto check = [&](const char* call, void* on_gpu, void* on_host, auto&& body) {
    CROSSLANE_STEP("{} with a tag that MPI refuses", call);
    std::array<int, 2> classes{}, calls{};
    for (const bool gpu : {false, true}) {
      Heard::calls() = 0;
      const int result = body(gpu ? on_gpu : on_host);
      MPI_Error_class(Heard::last().code, &classes.at(gpu ? 1 : 0));
      calls.at(gpu ? 1 : 0) = Heard::calls();
      CROSSLANE_CHECK(silent || Heard::last().code == result, "the handler was told {}, the caller {}",
                      Heard::last().code, result);
    }
    CROSSLANE_CHECK_EQUAL(classes[0], MPI_ERR_TAG);
    CROSSLANE_CHECK_EQUAL(classes[1], MPI_ERR_TAG);
    CROSSLANE_CHECK_EQUAL(calls[0], 1);
    CROSSLANE_CHECK_EQUAL(calls[1], 1);
  };
  check("MPI_Send", memory.data(), host.data(),
        [&](void* data) { return MPI_Send(data, bytes, MPI_BYTE, right, bad, own); });
  check("MPI_Isend", memory.data(), host.data(),
        [&](void* data) { return MPI_Isend(data, bytes, MPI_BYTE, right, bad, own, &request); });
  check("MPI_Issend", memory.data(), host.data(),
        [&](void* data) { return MPI_Issend(data, bytes, MPI_BYTE, right, bad, own, &request); });
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1
  check("MPI_Isendrecv", memory.data(), host.data(), [&](void* data) {
    void* const in = data == host.data() ? other_host.data() : other.data();
    return MPI_Isendrecv(data, bytes, MPI_BYTE, right, bad, in, bytes, MPI_BYTE, right, 5, own, &request);
  });
#endif
  CROSSLANE_MPI(MPI_Comm_free(&own));
  meet(program);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "bad_input_handlers");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  no_communicator();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#ifndef CROSSLANE_TEST_MPI_OPENMPI
  freed_communicator();
#endif
  without_topology();
  of_a_call(program);
  of_a_request(program, false);
  of_a_request(program, true);
  refused_by_mpi(program);
  still_usable(program);
  return program.finish();
}
