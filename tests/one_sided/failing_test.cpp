// Dynamic windows over an MPI that fails (failing_mpi.cpp): whoever asked hears of it, nothing is attached by halves, and all goes on behind
// it. --library <path> of that MPI. It must not know Crosslane.
#include "one_sided/to_next.h"
#include "support/plain_mpi.h"
#include "support/preload.h"
#include "support/program.h"
#include "support/refused.h"

#include <dlfcn.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {
namespace {

using Fail = void (*)(const char* procedure);
using HandlersSet = int (*)();

class Failing {
 public:
  Failing(Program& program, Fail fail)
      : program_(program), fail_(fail), memory_(MemoryKind::device, count * sizeof(int)) {}

  void no_tables() {
    CROSSLANE_STEP("an MPI that makes no window for tables");
    fail_("MPI_Win_create");
    create();
    fail_(nullptr);
    expect_refused(MPI_Win_attach(window_, memory_.data(), bytes()),
                   {"MPI_Win_attach", "base", "GPU", "MPI_Win_create"});
    Memory host(MemoryKind::host, count * sizeof(int));
    attached_and_used(host);
    free();
  }

  void nothing_by_halves() {
    create();
    for (const char* const procedure : telling) {
      CROSSLANE_STEP("attached over an MPI whose {} fails", procedure);
      fail_(procedure);
      expect_failed(MPI_Win_attach(window_, memory_.data(), bytes()), procedure);
      fail_(nullptr);
      // It is as if it had not been called: what is attached already would be refused.
      polite_barrier();
      attached_and_used(memory_);
    }
    for (const char* const procedure : telling) {
      CROSSLANE_STEP("detached over an MPI whose {} fails", procedure);
      CROSSLANE_MPI(MPI_Win_attach(window_, memory_.data(), bytes()));
      use(memory_);
      fail_(procedure);
      expect_failed(MPI_Win_detach(window_, memory_.data()), procedure);
      fail_(nullptr);
      polite_barrier();
      attached_and_used(memory_);
    }
    free();
  }

  void still_attached() {
    CROSSLANE_STEP("an MPI that does not detach");
    create();
    CROSSLANE_MPI(MPI_Win_attach(window_, memory_.data(), bytes()));
    fail_("MPI_Win_detach");
    expect_failed(MPI_Win_detach(window_, memory_.data()), "");
    fail_(nullptr);
    use(memory_);
    CROSSLANE_MPI(MPI_Win_detach(window_, memory_.data()));
    CROSSLANE_CHECK(memory_.values<int>() == put_, "not what was put, after MPI_Win_detach");
    free();
  }

  // Another thread may use them.
  void handlers_stay(HandlersSet handlers_set) {
    CROSSLANE_STEP("the program's error handlers while an operation is refused");
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create(memory_.data(), bytes(), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    const Memory out(MemoryKind::device, sizeof(long double));
    const int before = handlers_set();
    int error_class = MPI_SUCCESS;
    MPI_Error_class(
        MPI_Accumulate(out.data(), 1, MPI_LONG_DOUBLE, program_.rank, 0, 1, MPI_LONG_DOUBLE, MPI_BAND, window_),
        &error_class);
    CROSSLANE_CHECK_EQUAL(handlers_set() - before, 0);
    CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_OP);
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    free();
  }

 private:
  static constexpr int count = 1000;
  static constexpr std::array telling{"MPI_Put", "MPI_Win_sync", "MPI_Win_flush"};
  [[nodiscard]] static MPI_Aint bytes() { return count * static_cast<MPI_Aint>(sizeof(int)); }

  void create() {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
  }
  void free() {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&window_));
  }

  static void expect_failed(int result, std::string_view word) {
    const std::string message = describe_mpi_error(result);
    CROSSLANE_CHECK(result != MPI_SUCCESS, "a call succeeded over an MPI that fails");
    CROSSLANE_CHECK(message.find(word) != std::string::npos, "\"{}\" is not named: {}", word, message);
  }

  void attached_and_used(Memory& memory) {
    CROSSLANE_MPI(MPI_Win_attach(window_, memory.data(), bytes()));
    use(memory);
    CROSSLANE_MPI(MPI_Win_detach(window_, memory.data()));
    CROSSLANE_CHECK(memory.values<int>() == put_, "not what was put, after MPI_Win_detach");
    polite_barrier();
  }

  // The rank before puts numbers of its own into it.
  void use(Memory& memory) {
    const int before = (program_.rank + program_.size - 1) % program_.size;
    const auto numbers = [&](int rank) { return std::vector<int>(count, 10 * round_ + rank); };
    ++round_;
    const MPI_Aint theirs = address_at_next(program_, memory);
    Memory out(MemoryKind::device, count * sizeof(int));
    out.fill(numbers(program_.rank));
    put_to_next(program_, window_, out.data(), static_cast<int>(bytes()), theirs);
    put_ = numbers(before);
    CROSSLANE_CHECK(memory.values<int>() == put_, "not what rank {} put, round {}", before, round_);
    polite_barrier();
  }

  Program& program_;
  const Fail fail_;
  Memory memory_;
  std::vector<int> put_;
  MPI_Win window_ = MPI_WIN_NULL;
  int round_ = 0;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  preload_again_with(argv, argument(argc, argv, "--library"));
  Program program(argc, argv, "one_sided_failing");
  const auto fail = reinterpret_cast<Fail>(dlsym(RTLD_DEFAULT, "crosslane_test_fail"));
  if (fail == nullptr) {
    CROSSLANE_CHECK(false, "the MPI that fails is not loaded");
  } else if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
  } else {
    Failing test(program, fail);
    test.no_tables();
    test.nothing_by_halves();
    test.still_attached();
    test.handlers_stay(reinterpret_cast<HandlersSet>(dlsym(RTLD_DEFAULT, "crosslane_test_handlers_set")));
  }
  return program.finish();
}
