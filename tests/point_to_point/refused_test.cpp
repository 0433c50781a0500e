// Receives of messages that their senders have put aside, each while one allocation on its way is refused: whichever that is, the receive has an error or
// the data, and the messages behind it come. The program's own malloc refuses the library's that MPI_Recv is of. It must not know Crosslane.
#include "support/check.h"
#include "support/memory.h"
#include "support/program.h"
#include "support/sharing.h"

#include <dlfcn.h>
#include <link.h>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

extern "C" void* __libc_malloc(std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)

namespace {

struct Range {
  std::uintptr_t begin = 0, end = 0;
};
constinit Range library;
constinit thread_local int before_refusal =
    -1;  // so many of this thread's are not refused before one is; negative: none is
constinit thread_local int refused = 0;

}  // namespace

// Of this program and of the libraries that it loads, operator new included.
extern "C" void* malloc(std::size_t bytes) noexcept {
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  if (before_refusal < 0 || caller < library.begin || caller >= library.end || before_refusal-- != 0)
    return __libc_malloc(bytes);
  ++refused;
  return nullptr;
}

namespace crosslane::tests {
namespace {

// What a send returns with before it is received.
constexpr int bytes = 48 << 10;
constexpr int sender = 0, receiver = 1, next_tag = 10'000;

Range range_of(void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0) return {};
  struct Search {
    std::uintptr_t base;
    Range found;
  } search{reinterpret_cast<std::uintptr_t>(info.dli_fbase), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* each, std::size_t, void* sought) {
        auto& [base, found] = *static_cast<Search*>(sought);
        if (each->dlpi_addr != base) return 0;
        found.begin = base;
        for (int i = 0; i < each->dlpi_phnum; ++i)
          if (each->dlpi_phdr[i].p_type == PT_LOAD)
            found.end =
                std::max<std::uintptr_t>(found.end, base + each->dlpi_phdr[i].p_vaddr + each->dlpi_phdr[i].p_memsz);
        return 1;
      },
      &search);
  return search.found;
}

class Messages {
 public:
  explicit Messages(Program& program) : program_(program), memory_(MemoryKind::device, 2 << 20) {}

  void pass(int tag) {
    if (program_.rank == sender) send(tag);
    if (program_.rank != receiver) return;
    clear();
    CROSSLANE_MPI(MPI_Recv(memory_.data(), bytes, MPI_BYTE, sender, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    expect(tag);
  }

  /// One whose receiver is refused its allocation of that number, and one behind it; true on both ranks where it has none such.
  bool pass_refused(int allocation) {
    CROSSLANE_STEP("allocation {} is refused", allocation);
    int was_refused = 0;
    if (program_.rank == sender) {
      send(allocation);
      send(next_tag + allocation);
    }
    polite_barrier();  // both are put aside
    if (program_.rank == receiver) {
      clear();
      const int before = refused;
      before_refusal = allocation;
      const int code = MPI_Recv(memory_.data(), bytes, MPI_BYTE, sender, allocation, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      before_refusal = -1;
      was_refused = refused - before;
      if (code == MPI_SUCCESS) expect(allocation);
      clear();
      int there = 0;  // where it was refused before it had begun
      CROSSLANE_MPI(MPI_Iprobe(sender, allocation, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE));
      if (there != 0)
        CROSSLANE_MPI(MPI_Recv(memory_.data(), bytes, MPI_BYTE, sender, allocation, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      clear();
      CROSSLANE_MPI(
          MPI_Recv(memory_.data(), bytes, MPI_BYTE, sender, next_tag + allocation, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      expect(next_tag + allocation);
    }
    CROSSLANE_MPI(MPI_Bcast(&was_refused, 1, MPI_INT, receiver, MPI_COMM_WORLD));
    return was_refused == 0;
  }

 private:
  [[nodiscard]] std::vector<std::byte> content(int tag) const {
    return pattern(mix(program_.seed, static_cast<std::uint64_t>(tag)), bytes);
  }
  void send(int tag) {
    memory_.write(content(tag));
    CROSSLANE_MPI(MPI_Send(memory_.data(), bytes, MPI_BYTE, receiver, tag, MPI_COMM_WORLD));
  }
  void clear() { memory_.write(std::vector<std::byte>(bytes)); }
  void expect(int tag) {
    auto got = memory_.read();
    got.resize(bytes);
    CROSSLANE_CHECK(got == content(tag), "what was received");
  }

  Program& program_;
  Memory memory_;
};

int run(int argc, char** argv) {
  Program program(argc, argv, "point_to_point_refused");
  if (take_turns(MPI_COMM_WORLD)) {
    program.skip("ranks take turns on a GPU that they share: no message is put aside");
    return program.finish();
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  library = range_of(dlsym(RTLD_DEFAULT, "MPI_Recv"));
  Messages messages(program);
  // That they are read where they lie is found out first.
  for (int first = 0; first < 12; ++first) {
    messages.pass(first);
    polite_barrier();
  }
  int allocation = 0;
  while (!messages.pass_refused(allocation)) ++allocation;
  CROSSLANE_CHECK(allocation > 2, "nothing was refused");
  return program.finish();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
