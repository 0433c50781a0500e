// MPI_Waitall over messages that come one after the other, with long pauses: what it tells of each is right, and its watchdog speaks of what is still
// awaited, whichever of them are over by then: sends and receives of GPU memory, one that is too long for its buffer, a persistent one, and one in
// host memory. Two ranks.
#include "support/program.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int messages = 6, bytes = 200'000, persistent = 4, in_host_memory = 5;
// Once none is pending, Open MPI tells of a persistent one's error in its status alone.
#ifdef CROSSLANE_TEST_MPI_MPICH
constexpr bool in_status_alone = false;
#else
constexpr bool in_status_alone = true;
#endif

class Early {
 public:
  explicit Early(Program& program)
      : program_(program), device_(MemoryKind::device, std::size_t{2 * messages} * bytes) {}

  void round(int number) {
    CROSSLANE_STEP("round {}", number);
    // Which one is too long, or none; and in which order they are sent.
    const int drawn = static_cast<int>(program_.shared().below(2 * messages)), none = 2 * messages;
    const int too_long = drawn < messages ? drawn : none;
    std::array<int, messages> order{};
    for (int i = 0; i < messages; ++i) order.at(static_cast<std::size_t>(i)) = (i * 5 + number) % messages;
    std::vector<char> host(bytes, 1);
    if (program_.rank == 1) {
      const auto receive = [&](int i) {
        CROSSLANE_MPI(MPI_Recv(part(i), bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      };
      receive(0);
      for (const int i : order) {
        std::this_thread::sleep_for(std::chrono::milliseconds{program_.local().below(40)});
        const int more = i == too_long ? 1000 : 0;
        CROSSLANE_MPI(MPI_Send(part(i), bytes - 1000 + more, MPI_BYTE, 0, i, MPI_COMM_WORLD));
      }
      for (int i = 1; i < messages; ++i) receive(i);
      return;
    }
    std::vector<MPI_Request> requests(2 * messages, MPI_REQUEST_NULL);
    // Sends are the messages behind these; first in the array, or last.
    const auto place = [&](int i) { return static_cast<std::size_t>((i + number % 2 * messages) % (2 * messages)); };
    const auto request = [&](int i) { return &requests[place(i)]; };
    for (int i = 0; i < messages; ++i) {
      void* const target = i == in_host_memory ? static_cast<void*>(host.data()) : part(messages + i);
      if (i == persistent) {
        CROSSLANE_MPI(MPI_Recv_init(target, bytes - 1000, MPI_BYTE, 1, i, MPI_COMM_WORLD, request(i)));
        CROSSLANE_MPI(MPI_Start(request(i)));
      } else {
        CROSSLANE_MPI(MPI_Irecv(target, bytes - 1000, MPI_BYTE, 1, i, MPI_COMM_WORLD, request(i)));
      }
    }
    for (int i = 0; i < messages; ++i)
      CROSSLANE_MPI(MPI_Isend(part(i), bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD, request(messages + i)));
    MPI_Request kept = *request(persistent);
    std::vector<MPI_Status> statuses(2 * messages);
    // An MPI may leave others pending where one has failed.
    int left = 2 * messages;
    std::array<bool, 2 * messages> over{};
    while (left > 0) {
      const int code = MPI_Waitall(2 * messages, requests.data(), statuses.data());
      CROSSLANE_CHECK(code == MPI_SUCCESS || (code == MPI_ERR_IN_STATUS && too_long < messages), "MPI_Waitall: {}",
                      code);
      const int before = left;
      for (int i = 0; i < 2 * messages; ++i) {
        auto& one_is_over = over.at(static_cast<std::size_t>(i));
        if (one_is_over) continue;
        const MPI_Status& status = statuses[place(i)];
        int error_class = MPI_SUCCESS;
        if (code != MPI_SUCCESS || (in_status_alone && i == persistent && i == too_long))
          CROSSLANE_MPI(MPI_Error_class(status.MPI_ERROR, &error_class));
        if (error_class == MPI_ERR_PENDING) continue;
        one_is_over = true;
        --left;
        CROSSLANE_CHECK_EQUAL(error_class, i == too_long ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
        if (i < messages && i != too_long) told(i, status);
      }
      if (left == before) break;
    }
    CROSSLANE_CHECK_EQUAL(left, 0);
    for (int i = 0; i < 2 * messages; ++i)
      CROSSLANE_CHECK(i == persistent || *request(i) == MPI_REQUEST_NULL, "request {} is not null", i);
    // Open MPI frees one that fails.
    if (*request(persistent) != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&kept));
  }

 private:
  [[nodiscard]] std::byte* part(int i) const { return device_.as<std::byte>() + std::ptrdiff_t{i} * bytes; }

  static void told(int i, const MPI_Status& status) {
    int count = 0;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    CROSSLANE_CHECK(status.MPI_SOURCE == 1 && status.MPI_TAG == i && count == bytes - 1000,
                    "message {}: source {}, tag {}, {} bytes", i, status.MPI_SOURCE, status.MPI_TAG, count);
  }

  Program& program_;
  Memory device_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_early");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);  // where MPICH 5.0 raises what MPI_Waitall meets
  {
    Early early(program);
    const auto rounds = static_cast<int>(program.option("cases", 12));
    for (int i = 0; i < rounds; ++i) early.round(i);
  }
  return program.finish();
}
