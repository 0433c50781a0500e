// A copy that fails in the middle of a message which goes in chunks or pieces, or of several that are read together, on one side of it:
// that side's call returns an error that names it, the other side learns of it if it gets nothing, and the next messages are right. The
// driver of rank 1 fails as CROSSLANE_EMULATED_FAULTS says, once, counted from when the ranks have met. It must not know Crosslane.
#include "support/counted.h"
#include "support/program.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int bytes = 3'000'001;

std::string message_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

void expect_error(int code, const std::vector<std::string_view>& words) {
  CROSSLANE_CHECK(code != MPI_SUCCESS, "no error, although a copy failed");
  const std::string message = code == MPI_SUCCESS ? "" : message_of(code);
  for (const auto word : words)
    CROSSLANE_CHECK(message.find(word) != std::string::npos, "\"{}\" is not in: {}", word, message);
}

std::vector<std::byte> contents(const Program& program, int from, int number) {
  return pattern(mix(program.seed, from, number), bytes);
}

// Rank 1's copy fails while it sends, or while it receives.
void failing(Program& program, bool sends) {
  CROSSLANE_STEP("rank 1 fails as it {}", sends ? "sends" : "receives");
  const bool fails = program.rank == 1;
  if (fails == sends) {
    Memory memory(MemoryKind::device, bytes);
    memory.write(contents(program, program.rank, 0));
    const int code = MPI_Send(memory.data(), bytes, MPI_BYTE, 1 - program.rank, 1, MPI_COMM_WORLD);
    if (fails) expect_error(code, {"MPI_Send", "cuMemcpyAsync", "CUDA_ERROR_"});
    // Where it is still packing, a sender learns that its receiver has failed.
    if (!fails && code != MPI_SUCCESS) expect_error(code, {"MPI_Send", "rank 1", "failed while it read the buffer"});
    return;
  }
  Memory memory(fails || program.shared().chance(50) ? MemoryKind::device : MemoryKind::host, bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Irecv(memory.data(), bytes, MPI_BYTE, 1 - program.rank, 1, MPI_COMM_WORLD, &request));
  const int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect_error(code, fails ? std::vector<std::string_view>{"MPI_Wait", "cuMemcpyAsync", "CUDA_ERROR_"}
                           : std::vector<std::string_view>{"rank 1 of MPI_COMM_WORLD could not read the GPU buffer"});
  CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "the failed request is not null");
}

#if MPI_VERSION >= 4
// The half that sends fails; the other one receives an ordinary message, which is there.
void failing_beside(Program& program) {
  CROSSLANE_STEP("rank 1 fails as it sends and receives");
  std::vector<char> small(1000, 'a');
  const int few = static_cast<int>(small.size());
  Memory memory(MemoryKind::device, bytes);
  memory.write(contents(program, program.rank, 0));
  if (program.rank != 1) {
    CROSSLANE_MPI(MPI_Send(small.data(), few, MPI_CHAR, 1, 1, MPI_COMM_WORLD));
    expect_error(MPI_Recv(memory.data(), bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                 {"rank 1 of MPI_COMM_WORLD could not read the GPU buffer"});
    return;
  }
  std::vector<char> in(small.size());
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(
      MPI_Isendrecv(memory.data(), bytes, MPI_BYTE, 0, 1, in.data(), few, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request));
  expect_error(MPI_Wait(&request, MPI_STATUS_IGNORE), {"cuMemcpyAsync", "CUDA_ERROR_"});
  CROSSLANE_CHECK(in == small, "what was received beside the failed send");
  CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "the failed request is not null");
}
#endif

// A window of messages that rank 1 finds all at once, and reads together: where that fails, so do all that were read together, on
// both sides, and no other. Short ones are read by a kernel, longer ones by copies. `fails`: some of them have to.
void failing_window(Program& program, bool fails, bool by_kernel) {
  CROSSLANE_STEP("rank 1 fails as it receives several at once");
  constexpr int messages = 12;
  const int each = by_kernel ? 70'000 : 2'400'000;
  Memory memory(MemoryKind::device, std::size_t{messages} * each);
  std::vector<MPI_Request> requests(messages, MPI_REQUEST_NULL);
  for (int i = 0; i < messages; ++i) {
    std::byte* const part = static_cast<std::byte*>(memory.data()) + std::ptrdiff_t{i} * each;
    if (program.rank == 1)
      CROSSLANE_MPI(MPI_Irecv(part, each, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(i)]));
  }
  std::vector<std::byte> all = pattern(mix(program.seed, 0, 7), std::size_t{messages} * each);
  if (program.rank == 0) memory.write(all);
  for (int i = messages; program.rank == 0 && i-- > 0;) {
    std::byte* const part = static_cast<std::byte*>(memory.data()) + std::ptrdiff_t{i} * each;
    CROSSLANE_MPI(MPI_Isend(part, each, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(i)]));
  }
  CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));  // all headers are there
  std::vector<MPI_Status> statuses(messages);
  const int code = MPI_Waitall(messages, requests.data(), statuses.data());
  // Bit i: message i failed on this rank, and on the other one.
  unsigned mine = 0, theirs = 0;
  for (std::size_t i = 0; i < messages; ++i) {
    CROSSLANE_CHECK(requests[i] == MPI_REQUEST_NULL, "request {} is not null", i);
    if (code == MPI_SUCCESS || statuses[i].MPI_ERROR == MPI_SUCCESS) continue;
    mine |= 1U << i;
    if (mine == 1U << i)  // an error of a class is explained once
      expect_error(statuses[i].MPI_ERROR,
                   program.rank == 1
                       ? std::vector<std::string_view>{by_kernel ? "cuLaunchKernel" : "cuMemcpyAsync", "CUDA_ERROR_"}
                       : std::vector<std::string_view>{"rank 1 of MPI_COMM_WORLD failed while it read the buffer"});
  }
  CROSSLANE_MPI(MPI_Sendrecv(&mine, 1, MPI_UNSIGNED, 1 - program.rank, 2, &theirs, 1, MPI_UNSIGNED, 1 - program.rank, 2,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(mine == theirs, "messages {:#x} failed here, {:#x} on the other side", mine, theirs);
  CROSSLANE_CHECK((mine != 0) == fails, "messages {:#x} failed", mine);
  if (program.rank != 1) return;
  const std::vector<std::byte> got = memory.read();
  for (int i = 0; i < messages; ++i) {
    const auto begin = std::ptrdiff_t{i} * each;
    CROSSLANE_CHECK(
        (mine >> i & 1U) != 0 || std::equal(got.begin() + begin, got.begin() + begin + each, all.begin() + begin),
        "message {}", i);
  }
}

// Rank 1 is asked to write messages to where they belong, and cannot write the first one: that is read by its receiver, nothing fails, and one of
// the next is written. Counted from when their memory is known.
void failing_write(Program& program, void (*arm)()) {
  CROSSLANE_STEP("rank 1 fails as it writes");
  std::array<Memory, 2> memories{Memory(MemoryKind::device, bytes), Memory(MemoryKind::device, bytes)};
  // Nobody has to be asked: this machine may hold up either of them, often.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{45};
  std::int64_t before = 0, written = 0;
  for (int number = 0, goes_on = 1; goes_on != 0 && written == before; ++number) {
    std::array<MPI_Request, 2> requests{};
    for (int i = 0; i < 2; ++i) {
      Memory& memory = memories[static_cast<std::size_t>(i)];
      MPI_Request& request = requests[static_cast<std::size_t>(i)];
      if (program.rank == 1) {
        memory.write(contents(program, 1, 2 * number + i));
        CROSSLANE_MPI(MPI_Issend(memory.data(), bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, &request));
      } else {
        CROSSLANE_MPI(MPI_Irecv(memory.data(), bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD, &request));
      }
    }
    CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
    for (int i = 0; i < 2; ++i)
      CROSSLANE_CHECK(
          program.rank == 1 || memories[static_cast<std::size_t>(i)].read() == contents(program, 1, 2 * number + i),
          "message {}", 2 * number + i);
    written = counted_on_all("crosslane_written_messages");
    goes_on = std::chrono::steady_clock::now() < end ? 1 : 0;
    CROSSLANE_MPI(MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (number != 0) continue;
    before = written;
    arm();
  }
  CROSSLANE_CHECK(written != before, "no message was written");
}

// Rank 1 cannot ask about the copy of a message that it waits for. Memory that is known already: of new one a stream tells.
void failing_attended(Program& program, void (*arm)()) {
  CROSSLANE_STEP("rank 1 cannot ask about what it receives");
  Memory memory(MemoryKind::device, bytes);
  for (const bool fails : {false, true}) {
    const auto content = contents(program, 0, fails ? 1 : 0);
    if (program.rank == 0) memory.write(content);
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (fails) arm();
    const int code = program.rank == 0
                         ? MPI_Send(memory.data(), bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD)
                         : MPI_Recv(memory.data(), bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!fails) {
      CROSSLANE_CHECK(code == MPI_SUCCESS && (program.rank == 0 || memory.read() == content), "the message before");
    } else if (program.rank == 0) {
      expect_error(code, {"MPI_Send", "rank 1", "failed while it read the buffer"});
    } else {
      expect_error(code, {"MPI_Recv", "a copy between GPU and host", "CUDA_ERROR_"});
    }
  }
}

// Until each rank knows what memory it can open.
void meet(Program& program, int rounds) {
  CROSSLANE_STEP("meeting");
  constexpr int few = 5000;
  for (int round = 0; round < rounds; ++round) {
    Memory out(MemoryKind::device, few), in(MemoryKind::device, few);
    CROSSLANE_MPI(MPI_Sendrecv(out.data(), few, MPI_BYTE, 1 - program.rank, 0, in.data(), few, MPI_BYTE,
                               1 - program.rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
}

// Both ways, several times: whatever the failed one left behind must not be taken for a part of these.
void afterwards(Program& program) {
  CROSSLANE_STEP("messages after the failed one");
  for (int number = 1; number <= 4; ++number) {
    Memory out(program.kind(), bytes), in(program.kind(), bytes);
    out.write(contents(program, program.rank, number));
    CROSSLANE_MPI(MPI_Sendrecv(out.data(), bytes, MPI_BYTE, 1 - program.rank, 1, in.data(), bytes, MPI_BYTE,
                               1 - program.rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(in.read() == contents(program, 1 - program.rank, number), "message {} in {} memory", number,
                    name(in.kind()));
  }
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  const auto arm = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "crosslane_emulated_arm"));
  if (arm == nullptr) {
    fmt::print(stderr, "bad_input_chunked: skipped, a real driver has no faults on demand\n");
    return 77;
  }
  Program program(argc, argv, "bad_input_chunked");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  meet(program, program.option("meetings", 0));
  const auto fails = program.text_option("fails", "send");
  if (fails != "write" && fails != "attended") arm();
#if MPI_VERSION >= 4
  if (fails == "isendrecv") {
    failing_beside(program);
  } else
#else
  if (fails == "isendrecv") program.skip("this MPI has no MPI_Isendrecv");
#endif
      if (fails == "window" || fails == "kernel" || fails == "nothing") {
    failing_window(program, fails != "nothing", fails == "kernel");
  } else if (fails == "write") {
    failing_write(program, arm);
  } else if (fails == "attended") {
    failing_attended(program, arm);
  } else {
    failing(program, fails != "receive");
  }
  afterwards(program);
  return program.finish();
}
