// An exchange whose send is wrong, while a message for its receive has come and was probed: it returns an error, and from then on its buffers are the
// application's. It must not know Crosslane.
#include "bad_input/usable.h"
#include "support/program.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

enum class Call : std::uint8_t { sendrecv, isendrecv };

void exchange(Program& program, Call call, MemoryKind kind, int bytes, int number) {
  CROSSLANE_STEP("message {}, of {} bytes, to {} memory", number, bytes, name(kind));
  const int tag = number;
  const auto sent = pattern(mix(program.seed, number), static_cast<std::size_t>(bytes));
  if (program.rank == 1) {
    Memory out(MemoryKind::device, sent.size());
    out.write(sent);
    CROSSLANE_MPI(MPI_Send(out.data(), bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD));
    return;
  }
  Memory in(kind, sent.size()), out(MemoryKind::device, 8);
  const int nobody = program.size + 3;
  MPI_Status status;
  CROSSLANE_MPI(MPI_Probe(1, tag, MPI_COMM_WORLD, &status));
  int code = MPI_SUCCESS;
  if (call == Call::sendrecv) {
    code = MPI_Sendrecv(out.data(), 8, MPI_BYTE, nobody, tag, in.data(), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE);
  } else {
#if MPI_VERSION >= 4
    MPI_Request request = MPI_REQUEST_NULL;
    code = MPI_Isendrecv(out.data(), 8, MPI_BYTE, nobody, tag, in.data(), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD,
                         &request);
#endif
  }
  int error_class = MPI_SUCCESS;
  CROSSLANE_MPI(MPI_Error_class(code, &error_class));
  CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_RANK);
  const auto mine = pattern(mix(program.seed, number, 1), sent.size());
  in.write(mine);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CROSSLANE_CHECK(in.read() == mine, "written to after the call");
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "bad_input_exchange");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  meet(program);
  std::vector calls{Call::sendrecv};
#if MPI_VERSION >= 4
  calls.push_back(Call::isendrecv);
#endif
  int number = 0;
  for (const Call call : calls)
    for (int round = 0; round < 6; ++round)
      for (const MemoryKind kind : {MemoryKind::device, MemoryKind::host})
        for (const int bytes : {100, 100'000, 12'000'000}) exchange(program, call, kind, bytes, number++);
  still_usable(program);
  return program.finish();
}
