// Wrong GPU buffers in one-sided calls: refused with the class and the names that MPI has for them, through the window's error handler,
// after which the window works as before. It must not know Crosslane.
#include "one_sided/parts.h"
#include "support/plain_mpi.h"
#include "support/refused.h"

#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t small_bytes = 1000;
// Far enough for an allocation to end under it, whatever the driver rounds to.
constexpr int too_many = 256 << 20;

// An error handler of the program, and what it was called with.
struct Heard {
  int calls = 0;
  MPI_Win window = MPI_WIN_NULL;
  int code = MPI_SUCCESS;
};
Heard& heard() {
  static Heard value;
  return value;
}
void hear(MPI_Win* window, int* code, ...) { heard() = {heard().calls + 1, *window, *code}; }

class Wrong {
 public:
  explicit Wrong(const Program& program)
      : program_(program),
        right_((program.rank + 1) % program.size),
        left_((program.rank + program.size - 1) % program.size),
        memory_(MemoryKind::device, 2 * sizeof(int)),
        live_(MemoryKind::device, 64),
        out_(MemoryKind::device, sizeof(int)),
        in_(MemoryKind::device, sizeof(int)) {
    memory_.fill(std::vector<int>{0, 0});
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create(memory_.data(), static_cast<MPI_Aint>(memory_.size()), sizeof(int), MPI_INFO_NULL,
                                 MPI_COMM_WORLD, &window_));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    fence();
  }
  ~Wrong() {
    fence();
    CROSSLANE_MPI(MPI_Win_free(&window_));
  }
  Wrong(const Wrong&) = delete;
  Wrong& operator=(const Wrong&) = delete;

  void between_fences(void* wrong, int count, const char* what) {
    CROSSLANE_STEP("between fences, {}", what);
    void* const good = live_.data();
    const int me = program_.rank;
    const MPI_Win w = window_;
    const MPI_Datatype type = MPI_INT;
    const auto refused = [this](int result, const char* call, const char* argument) {
      expect_refused(result, {call, argument});
      still_works(call);
    };
    refused(MPI_Put(wrong, count, type, me, 0, count, type, w), "MPI_Put", "origin_addr");
    refused(MPI_Get(wrong, count, type, me, 0, count, type, w), "MPI_Get", "origin_addr");
    refused(MPI_Accumulate(wrong, count, type, me, 0, count, type, MPI_SUM, w), "MPI_Accumulate", "origin_addr");
    refused(MPI_Get_accumulate(wrong, count, type, good, count, type, me, 0, count, type, MPI_SUM, w),
            "MPI_Get_accumulate", "origin_addr");
    // Nothing is read from where MPI_NO_OP would read.
    refused(MPI_Get_accumulate(good, 1, type, wrong, count, type, me, 0, count, type, MPI_NO_OP, w),
            "MPI_Get_accumulate", "result_addr");
    // Nobody's memory is not accessed, nor is this.
    CROSSLANE_MPI(MPI_Put(wrong, count, type, MPI_PROC_NULL, 0, count, type, w));
    CROSSLANE_MPI(MPI_Get(wrong, count, type, MPI_PROC_NULL, 0, count, type, w));
    CROSSLANE_MPI(MPI_Accumulate(wrong, count, type, MPI_PROC_NULL, 0, count, type, MPI_SUM, w));
    CROSSLANE_MPI(MPI_Fetch_and_op(wrong, good, type, MPI_PROC_NULL, 0, MPI_SUM, w));
    still_works("MPI_PROC_NULL");
    // No elements are in no memory.
    CROSSLANE_MPI(MPI_Put(wrong, 0, type, me, 0, 0, type, w));
    CROSSLANE_MPI(MPI_Get(wrong, 0, type, me, 0, 0, type, w));
    still_works("calls of no elements");
  }

  // Calls of one element.
  void of_one(void* wrong) {
    CROSSLANE_STEP("one element of freed memory");
    void* const good = live_.data();
    auto* const other = live_.as<char>() + 32;
    const int me = program_.rank;
    const MPI_Win w = window_;
    expect_refused(MPI_Fetch_and_op(wrong, good, MPI_INT, me, 0, MPI_SUM, w), {"MPI_Fetch_and_op", "origin_addr"});
    expect_refused(MPI_Fetch_and_op(good, wrong, MPI_INT, me, 0, MPI_SUM, w), {"MPI_Fetch_and_op", "result_addr"});
    still_works("MPI_Fetch_and_op");
    expect_refused(MPI_Compare_and_swap(wrong, good, other, MPI_INT, me, 0, w),
                   {"MPI_Compare_and_swap", "origin_addr"});
    expect_refused(MPI_Compare_and_swap(good, wrong, other, MPI_INT, me, 0, w),
                   {"MPI_Compare_and_swap", "compare_addr"});
    expect_refused(MPI_Compare_and_swap(good, other, wrong, MPI_INT, me, 0, w),
                   {"MPI_Compare_and_swap", "result_addr"});
    still_works("MPI_Compare_and_swap");
  }

  void under_a_lock(void* wrong, int count, const char* what) {
    CROSSLANE_STEP("under a lock, {}", what);
    void* const good = live_.data();
    const MPI_Win w = window_;
    const MPI_Datatype type = MPI_INT;
    MPI_Request request = MPI_REQUEST_NULL;
    const int to = right_;
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, w));
    expect_refused(MPI_Rput(wrong, count, type, to, 0, count, type, w, &request), {"MPI_Rput", "origin_addr"});
    expect_refused(MPI_Rget(wrong, count, type, to, 0, count, type, w, &request), {"MPI_Rget", "origin_addr"});
    expect_refused(MPI_Raccumulate(wrong, count, type, to, 0, count, type, MPI_SUM, w, &request),
                   {"MPI_Raccumulate", "origin_addr"});
    expect_refused(MPI_Rget_accumulate(wrong, count, type, good, count, type, to, 0, count, type, MPI_SUM, w, &request),
                   {"MPI_Rget_accumulate", "origin_addr"});
    expect_refused(MPI_Rget_accumulate(good, 1, type, wrong, count, type, to, 0, count, type, MPI_NO_OP, w, &request),
                   {"MPI_Rget_accumulate", "result_addr"});
    out_.fill(std::vector<int>{++value_});
    CROSSLANE_MPI(MPI_Put(out_.data(), 1, type, to, 1, 1, type, w));
    CROSSLANE_MPI(MPI_Win_flush(to, w));
    CROSSLANE_MPI(MPI_Get(in_.data(), 1, type, to, 1, 1, type, w));
    CROSSLANE_MPI(MPI_Win_unlock(to, w));
    CROSSLANE_CHECK_EQUAL(in_.values<int>()[0], value_);
    polite_barrier();
    fence();
    CROSSLANE_CHECK_EQUAL(memory_.values<int>()[1], value_);
  }

  // The window's own handler hears of it, once, with this window.
  void handler(void* wrong) {
    CROSSLANE_STEP("a handler of the program");
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    CROSSLANE_MPI(MPI_Win_create_errhandler(hear, &handler));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, handler));
    CROSSLANE_MPI(MPI_Errhandler_free(&handler));
    heard() = {};
    const int result = MPI_Put(wrong, 1, MPI_INT, program_.rank, 0, 1, MPI_INT, window_);
    expect_refused(result, {"MPI_Put", "origin_addr"});
    CROSSLANE_CHECK_EQUAL(heard().calls, 1);
    CROSSLANE_CHECK(heard().window == window_, "the handler was called for another window");
    CROSSLANE_CHECK_EQUAL(heard().code, result);
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    still_works("an error handler");
  }

  // Told to the communicator: there is no window yet.
  void created(void* freed, void* small) {
    CROSSLANE_STEP("MPI_Win_create");
    MPI_Comm own = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN));
    MPI_Win window = MPI_WIN_NULL;
    expect_refused(MPI_Win_create(small, too_many, 1, MPI_INFO_NULL, own, &window), {"MPI_Win_create", "base"});
    expect_refused(MPI_Win_create(freed, 64, 1, MPI_INFO_NULL, own, &window), {"MPI_Win_create", "base"});
    // Of one rank alone: the others are told as well, and wait for nobody.
    const bool mine = program_.rank == 0;
    expect_refused(MPI_Win_create(small, mine ? too_many : small_bytes, 1, MPI_INFO_NULL, own, &window),
                   {"MPI_Win_create", mine ? "base" : "rank 0"});
    std::vector<int> host(16);
    expect_refused(mine ? MPI_Win_create(freed, 64, 1, MPI_INFO_NULL, own, &window)
                        : MPI_Win_create(host.data(), 64, 1, MPI_INFO_NULL, own, &window),
                   {"MPI_Win_create", mine ? "base" : "rank 0"});
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create(small, small_bytes, 1, MPI_INFO_NULL, own, &window));
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&window));
    CROSSLANE_MPI(MPI_Comm_free(&own));
    still_works("MPI_Win_create");
  }

 private:
  void fence() const {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
  }

  // The right rank gets a number from GPU memory, and gives it back.
  void still_works(const char* after) {
    out_.fill(std::vector<int>{1000 * program_.rank + ++value_});
    CROSSLANE_MPI(MPI_Put(out_.data(), 1, MPI_INT, right_, 0, 1, MPI_INT, window_));
    fence();
    CROSSLANE_MPI(MPI_Get(in_.data(), 1, MPI_INT, right_, 0, 1, MPI_INT, window_));
    const int got = memory_.values<int>()[0];
    CROSSLANE_CHECK(got == 1000 * left_ + value_, "after {}: {}, expected {}", after, got, 1000 * left_ + value_);
    fence();
    CROSSLANE_CHECK(in_.read() == out_.read(), "after {}: MPI_Get", after);
  }

  const Program& program_;
  int right_, left_;
  // Nothing is allocated once something was freed, which it might get the place of.
  Memory memory_, live_, out_, in_;
  MPI_Win window_ = MPI_WIN_NULL;
  int value_ = 0;
};

}  // namespace

void one_sided_wrong(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  Allocation never_seen(megabytes), seen(megabytes);
  const Allocation small(small_bytes);
  Wrong wrong(program);
  // What is remembered of it is out of date.
  CROSSLANE_MPI(MPI_Sendrecv(seen.data(), 99, MPI_BYTE, program.rank, 0, static_cast<char*>(seen.data()) + 1000, 99,
                             MPI_BYTE, program.rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  never_seen.free();
  seen.free();
  constexpr int few = 2;
  wrong.between_fences(never_seen.data(), few, "freed memory, never used before");
  wrong.between_fences(seen.data(), few, "freed memory, used before");
  wrong.between_fences(small.data(), too_many, "more than there is");
  wrong.of_one(seen.data());
  wrong.under_a_lock(seen.data(), few, "freed memory");
  wrong.under_a_lock(small.data(), too_many, "more than there is");
  wrong.handler(seen.data());
  wrong.created(seen.data(), small.data());
}

}  // namespace crosslane::tests
