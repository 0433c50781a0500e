// A message for a kernel that stays (CROSSLANE_LINGER_US) and is held up by the one before: another way brings it, and whoever waits for it gets
// on. The emulated GPU's kernel is held in its rest between two looks, by the C library's call for that, as long as the other message takes.
//   --cases <n>  so often (default 5)
#include "support/counted.h"
#include "support/linger.h"
#include "support/program.h"
#include "support/shared_word.h"
#include "support/sharing.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

// Of the kernel that waits on this rank's GPU.
std::atomic<bool> hold{false}, held{false};

constexpr std::size_t bytes = 8192;
constexpr int first_tag = 1, second_tag = 2;

// Rank 1 sends, rank 0 receives.
class Queued {
 public:
  explicit Queued(Program& program) : program_(program), stage_(program.rank), memory_(MemoryKind::device, 2 * bytes) {}

  // One of two messages is told to a kernel that is held, which the other one then cannot wait for.
  void behind_one_that_is_held(std::int64_t number) {
    CROSSLANE_STEP("case {}", number);
    for (int tries = 0; tries < 100; ++tries) {
      const std::uint64_t seed = mix(program_.seed, number, tries);
      if (!hold_a_kernel(seed)) continue;
      *stage_ = nothing_told;
      CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
      const bool told = program_.rank == 0 ? receive_both(seed) : send_both(seed);
      if (told) return;
    }
    CROSSLANE_CHECK(false, "no kernel was told of a message while it was held");
  }

 private:
  enum Stage { nothing_told, first_told, first_read_otherwise, second_there };

  static std::int64_t carried() {
    void* const symbol = dlsym(RTLD_DEFAULT, "crosslane_carried_messages");
    CROSSLANE_CHECK(symbol != nullptr, "the library under test does not count");
    return symbol == nullptr ? 0 : static_cast<std::int64_t>(reinterpret_cast<std::uint64_t (*)()>(symbol)());
  }

  // Collective. Two messages at a time until one is read by a kernel that stays, which is then held. False where none is seen to wait.
  bool hold_a_kernel(std::uint64_t seed) {
    int is_held = 0;
    for (int round = 0; round < 300 && is_held == 0; ++round) {
      const std::int64_t before = program_.rank == 0 ? carried() : 0;
      if (program_.rank == 0) {
        std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
        receive(requests);
        CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
        if (carried() != before) is_held = try_to_hold() ? 1 : 0;
      } else {
        memory_.write(pattern(mix(seed, round), 2 * bytes));
        for (const int tag : {first_tag, second_tag})
          CROSSLANE_MPI(MPI_Ssend(part(tag), bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD));
      }
      CROSSLANE_MPI(MPI_Bcast(&is_held, 1, MPI_INT, 0, MPI_COMM_WORLD));
    }
    return is_held != 0;
  }

  // The kernel may leave just now.
  static bool try_to_hold() {
    held = false;
    hold = true;
    for (int looks = 0; looks < 10'000 && !held; ++looks) linger(100);
    if (!held) hold = false;
    return held;
  }

  void receive(std::vector<MPI_Request>& requests) {
    for (const int tag : {first_tag, second_tag})
      CROSSLANE_MPI(MPI_Irecv(part(tag), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD,
                              &requests[static_cast<std::size_t>(tag - first_tag)]));
  }

  bool receive_both(std::uint64_t seed) {
    const std::int64_t before = carried();
    memory_.write(std::vector<std::byte>(2 * bytes, std::byte{0x5a}));
    // Whoever looks at the messages meanwhile sits in MPI_Waitall.
    std::thread beside([&] {
      while (*stage_ == nothing_told && carried() == before) linger(100);
      int expected = nothing_told;
      (*stage_).compare_exchange_strong(expected, first_told);
      while (*stage_ == first_told) linger(100);
      hold = false;
    });
    std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
    receive(requests);
    CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
    beside.join();
    CROSSLANE_CHECK(memory_.read() == pattern(seed, 2 * bytes), "what came in two ways is wrong");
    const bool told = *stage_ == second_there;
    if (told) CROSSLANE_CHECK_EQUAL(carried() - before, std::int64_t{1});
    return told;
  }

  // The second message waits for nobody: only then is the kernel let go, and with it the first one.
  bool send_both(std::uint64_t seed) {
    memory_.write(pattern(seed, 2 * bytes));
    MPI_Request first = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Issend(part(first_tag), bytes, MPI_BYTE, 0, first_tag, MPI_COMM_WORLD, &first));
    int over = 0;
    while (*stage_ == nothing_told) {
      CROSSLANE_MPI(MPI_Test(&first, &over, MPI_STATUS_IGNORE));
      int expected = nothing_told;
      if (over != 0) (*stage_).compare_exchange_strong(expected, first_read_otherwise);
      linger(10);
    }
    CROSSLANE_MPI(MPI_Ssend(part(second_tag), bytes, MPI_BYTE, 0, second_tag, MPI_COMM_WORLD));
    const bool told = *stage_ == first_told;
    if (told) {
      CROSSLANE_MPI(MPI_Test(&first, &over, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(over == 0, "the kernel was not held");
      *stage_ = second_there;
    }
    CROSSLANE_MPI(MPI_Wait(&first, MPI_STATUS_IGNORE));
    return told;
  }

  [[nodiscard]] char* part(int tag) const {
    return memory_.as<char>() + static_cast<std::size_t>(tag - first_tag) * bytes;
  }

  Program& program_;
  const SharedWord stage_;
  Memory memory_;
};

}  // namespace
}  // namespace crosslane::tests

// The rest of an emulated kernel between two looks (kernel/block.h): of what our library runs, nothing else naps so long.
extern "C" __attribute__((visibility("default"))) int nanosleep(const timespec* wanted, timespec* left) {
  using crosslane::tests::held, crosslane::tests::hold;
  constexpr long rest_of_a_kernel = 20'000;
  Dl_info caller{};
  if (hold && wanted->tv_sec == 0 && wanted->tv_nsec == rest_of_a_kernel &&
      dladdr(__builtin_return_address(0), &caller) != 0 &&
      std::string_view(caller.dli_fname).find("/libcrosslane_") != std::string_view::npos) {
    held = true;
    while (hold) syscall(SYS_sched_yield);
  }
  return static_cast<int>(syscall(SYS_nanosleep, wanted, left));
}

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_queued");
  if (!gpus_are_emulated() || share_a_gpu(MPI_COMM_WORLD) || std::thread::hardware_concurrency() < 2) {
    program.skip("messages are queued for an emulated kernel where each rank has a GPU, and a processor");
  } else {
    Queued queued(program);
    for (std::int64_t i = 0; i < program.option("cases", 5); ++i) queued.behind_one_that_is_held(i);
  }
  return program.finish();
}
