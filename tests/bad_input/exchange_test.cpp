// An exchange whose send is wrong, while a message for its receive has come and was probed: it returns an error, from then on its buffers are the
// application's, and the message is there still. It must not know Crosslane.
#include "bad_input/usable.h"
#include "support/program.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

enum class Call : std::uint8_t { sendrecv, sendrecv_replace, isendrecv, isendrecv_replace };
enum class Wrong : std::uint8_t { rank, tag };

// Returns its code.
int call_wrongly(Call call, Wrong wrong, int nobody, Memory& out, Memory& in, int bytes, int tag) {
  const int to = wrong == Wrong::rank ? nobody : 0;
  const int send_tag = wrong == Wrong::tag ? -8 : tag;
  if (call == Call::sendrecv)
    return MPI_Sendrecv(out.data(), 8, MPI_BYTE, to, send_tag, in.data(), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE);
  if (call == Call::sendrecv_replace)
    return MPI_Sendrecv_replace(in.data(), bytes, MPI_BYTE, to, send_tag, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
  MPI_Request request = MPI_REQUEST_NULL;
  if (call == Call::isendrecv)
    return MPI_Isendrecv(out.data(), 8, MPI_BYTE, to, send_tag, in.data(), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD,
                         &request);
  return MPI_Isendrecv_replace(in.data(), bytes, MPI_BYTE, to, send_tag, 1, tag, MPI_COMM_WORLD, &request);
#else
  return MPI_SUCCESS;
#endif
}

void exchange(Program& program, Call call, Wrong wrong, MemoryKind kind, int bytes, int number) {
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
  int error_class = MPI_SUCCESS;
  CROSSLANE_MPI(MPI_Error_class(call_wrongly(call, wrong, nobody, out, in, bytes, tag), &error_class));
  CROSSLANE_CHECK_EQUAL(error_class, wrong == Wrong::rank ? MPI_ERR_RANK : MPI_ERR_TAG);
  const auto mine = pattern(mix(program.seed, number, 1), sent.size());
  in.write(mine);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CROSSLANE_CHECK(in.read() == mine, "written to after the call");
  int there = 0;
  CROSSLANE_MPI(MPI_Iprobe(1, tag, MPI_COMM_WORLD, &there, &status));
  CROSSLANE_CHECK(there != 0, "the message is lost");
  if (there == 0) return;
  CROSSLANE_MPI(MPI_Recv(in.data(), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.read() == sent, "the message");
}

void with_the_largest_tag(Program& program) {
  CROSSLANE_STEP("an exchange with the largest tag");
  const int* largest = nullptr;
  int known = 0;
  CROSSLANE_MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest), &known));
  const int tag = known != 0 ? *largest : 32767;
  const int other = 1 - program.rank;
  Memory in(MemoryKind::device, 100), out(MemoryKind::device, 100);
  out.write(pattern(mix(program.seed, program.rank), 100));
  CROSSLANE_MPI(MPI_Sendrecv(out.data(), 100, MPI_BYTE, other, tag, in.data(), 100, MPI_BYTE, other, tag,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(in.read() == pattern(mix(program.seed, other), 100), "the message");
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "bad_input_exchange");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  meet(program);
  std::vector calls{Call::sendrecv, Call::sendrecv_replace};
#if MPI_VERSION >= 4
  calls.push_back(Call::isendrecv);
  calls.push_back(Call::isendrecv_replace);
#endif
  int number = 0;
  for (const Call call : calls)
    for (const Wrong wrong : {Wrong::rank, Wrong::tag})
      for (int round = 0; round < 2; ++round)
        for (const MemoryKind kind : {MemoryKind::device, MemoryKind::host})
          for (const int bytes : {100, 100'000, 12'000'000}) exchange(program, call, wrong, kind, bytes, number++);
  with_the_largest_tag(program);
  still_usable(program);
  return program.finish();
}
