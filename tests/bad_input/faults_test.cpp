// A driver that fails: calls with GPU memory return an error that names the MPI call and the driver's, or do without;
// the process survives, and host memory works on. What fails is given by CROSSLANE_EMULATED_FAULTS, and here as
// --expect error|success. It must not know Crosslane.
#include "support/program.h"

#include <dlfcn.h>

#include <array>
#include <string>
#include <string_view>

namespace crosslane::tests {
namespace {

void expect_error(int result, std::string_view call, const std::string& function) {
  CROSSLANE_CHECK(result != MPI_SUCCESS, "{} succeeded although {} fails", call, function);
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  const std::string_view message(text.data(), static_cast<std::size_t>(length));
  for (const std::string_view word : {call, std::string_view(function), std::string_view("CUDA_ERROR_")})
    CROSSLANE_CHECK(message.find(word) != std::string_view::npos, "\"{}\" is not named: {}", word, message);
}

void run(const Program& program, bool fails, const std::string& function) {
  constexpr int bytes = 50000;
  const MPI_Comm self = MPI_COMM_SELF;
  MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // for what is not tied to a communicator
  Memory device(MemoryKind::device, bytes), host(MemoryKind::host, bytes), other(MemoryKind::device, bytes);
  const auto sent = pattern(mix(program.seed, program.rank), bytes);
  device.write(sent);
  MPI_Request request = MPI_REQUEST_NULL;

  CROSSLANE_STEP("receive from GPU memory");
  CROSSLANE_MPI(MPI_Irecv(host.data(), bytes, MPI_BYTE, 0, 1, self, &request));
  const int send = MPI_Send(device.data(), bytes, MPI_BYTE, 0, 1, self);
  if (fails) {
    expect_error(send, "MPI_Send", function);
    CROSSLANE_MPI(MPI_Send(sent.data(), bytes, MPI_BYTE, 0, 1, self));  // for the receive
  } else {
    CROSSLANE_MPI(send);
  }
  CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CROSSLANE_CHECK(host.read() == sent, "host memory after the send");

  CROSSLANE_STEP("receive into GPU memory");
  CROSSLANE_MPI(MPI_Isend(host.data(), bytes, MPI_BYTE, 0, 2, self, &request));
  const int receive = MPI_Recv(other.data(), bytes, MPI_BYTE, 0, 2, self, MPI_STATUS_IGNORE);
  if (fails) {
    expect_error(receive, "MPI_Recv", function);
    // The receive may have failed before or after it matched.
    int there = 0;
    CROSSLANE_MPI(MPI_Iprobe(0, 2, self, &there, MPI_STATUS_IGNORE));
    if (there != 0) CROSSLANE_MPI(MPI_Recv(host.data(), bytes, MPI_BYTE, 0, 2, self, MPI_STATUS_IGNORE));
  } else {
    CROSSLANE_MPI(receive);
    CROSSLANE_CHECK(other.read() == sent, "GPU memory after the receive");
  }
  CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));

  CROSSLANE_STEP("nonblocking receive into GPU memory");
  int result = MPI_Irecv(other.data(), bytes, MPI_BYTE, 0, 3, self, &request);
  if (result == MPI_SUCCESS) {
    CROSSLANE_MPI(MPI_Send(sent.data(), bytes, MPI_BYTE, 0, 3, self));
    result = MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (fails) {
    CROSSLANE_CHECK(result != MPI_SUCCESS, "MPI_Irecv and MPI_Wait succeeded although {} fails", function);
  } else {
    CROSSLANE_MPI(result);
  }
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  if (dlsym(RTLD_DEFAULT, "crosslane_emulated_forbid") == nullptr) {
    fmt::print(stderr, "bad_input_faults: skipped, a real driver has no faults on demand\n");
    return 77;
  }
  Program program(argc, argv, "bad_input_faults");
  run(program, program.text_option("expect", "error") == "error", program.text_option("function", ""));
  return program.finish();
}
