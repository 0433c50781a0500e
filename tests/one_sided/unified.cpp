// Windows in GPU memory of which there is one copy (MPI_WIN_UNIFIED): what others have stored is there once they have flushed it, and what the rank stores
// others get, without another call on the window; locks exclude, accumulating calls are atomic, posts and starts meet; and calls out of order are refused.
// It must not know Crosslane.
//   --unified 0   windows are not so: nothing to try
//   --order 1     instead what is enqueued on default streams, of which nobody waits for the end but MPI
#include "one_sided/attribute.h"
#include "one_sided/parts.h"
#include "support/linger.h"
#include "support/plain_mpi.h"
#include "support/refused.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int slots = 8, slot_bytes = 30'000;

class Unified {
 public:
  explicit Unified(Program& program)
      : program_(program),
        right_((program.rank + 1) % program.size),
        left_((program.rank + program.size - 1) % program.size),
        memory_(MemoryKind::device, std::size_t{slots} * slot_bytes) {
    memory_.write(std::vector<std::byte>(memory_.size()));
    CROSSLANE_MPI(MPI_Win_create(memory_.data(), static_cast<MPI_Aint>(memory_.size()), 1, MPI_INFO_NULL,
                                 MPI_COMM_WORLD, &window_));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
  }
  ~Unified() {
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&window_));
  }
  Unified(const Unified&) = delete;
  Unified& operator=(const Unified&) = delete;

  [[nodiscard]] MPI_Win handle() const { return window_; }

  // Both ways at once: what this rank stores its left one gets, and what it puts its right one loads.
  void without_synchronising() {
    CROSSLANE_MPI(MPI_Win_lock_all(0, window_));
    for (int round = 0; round < 20; ++round) {
      CROSSLANE_STEP("one copy, round {}", round);
      const int bytes = 1 + static_cast<int>(program_.shared().below(slot_bytes));
      const auto stored = [&](int rank) {
        return pattern(mix(program_.seed, rank, round, 1), static_cast<std::size_t>(bytes));
      };
      const auto put = [&](int rank) {
        return pattern(mix(program_.seed, rank, round, 2), static_cast<std::size_t>(bytes));
      };
      const MPI_Aint here = MPI_Aint{round % 2} * slot_bytes, there = MPI_Aint{2 + round % 2} * slot_bytes;
      memory_.write(stored(program_.rank), static_cast<std::size_t>(here));
      Memory out(program_.kind(), static_cast<std::size_t>(bytes)),
          in(program_.kind(), static_cast<std::size_t>(bytes));
      out.write(put(program_.rank));
      CROSSLANE_MPI(MPI_Put(out.data(), bytes, MPI_BYTE, right_, there, bytes, MPI_BYTE, window_));
      CROSSLANE_MPI(round % 3 == 0 ? MPI_Win_flush_all(window_) : MPI_Win_flush(right_, window_));
      polite_barrier();
      CROSSLANE_CHECK(memory_.read(static_cast<std::size_t>(there), static_cast<std::size_t>(bytes)) == put(left_),
                      "what rank {} has put", left_);
      CROSSLANE_MPI(MPI_Get(in.data(), bytes, MPI_BYTE, right_, here, bytes, MPI_BYTE, window_));
      CROSSLANE_MPI(MPI_Win_flush_local(right_, window_));
      CROSSLANE_CHECK(in.read() == stored(right_), "what rank {} has stored", right_);
      polite_barrier();
    }
    CROSSLANE_MPI(MPI_Win_unlock_all(window_));
  }

  // What one rank reads and writes back no other changes meanwhile.
  void locks_exclude() {
    CROSSLANE_STEP("exclusive locks");
    constexpr int each = 25, where = 0;
    const MPI_Aint counter = MPI_Aint{4} * slot_bytes, watched = counter + 8;
    polite_barrier();
    for (int i = 0; i < each; ++i) {
      Memory value(program_.kind(), sizeof(long));
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, where, 0, window_));
      CROSSLANE_MPI(MPI_Get(value.data(), 1, MPI_LONG, where, counter, 1, MPI_LONG, window_));
      CROSSLANE_MPI(MPI_Win_flush(where, window_));
      value.fill(std::vector<long>{value.values<long>()[0] + 1});
      CROSSLANE_MPI(MPI_Put(value.data(), 1, MPI_LONG, where, counter, 1, MPI_LONG, window_));
      CROSSLANE_MPI(MPI_Put(value.data(), 1, MPI_LONG, where, watched, 1, MPI_LONG, window_));
      CROSSLANE_MPI(MPI_Win_unlock(where, window_));
      // Who shares the lock sees both, or neither.
      std::array<long, 2> both{};
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, where, 0, window_));
      CROSSLANE_MPI(MPI_Get(both.data(), 2, MPI_LONG, where, counter, 2, MPI_LONG, window_));
      CROSSLANE_MPI(MPI_Win_unlock(where, window_));
      CROSSLANE_CHECK(both[0] == both[1], "{} and {} under a shared lock", both[0], both[1]);
    }
    polite_barrier();
    if (program_.rank == where) {
      CROSSLANE_CHECK_EQUAL(values_at<long>(counter, 1)[0], static_cast<long>(each) * program_.size);
    }
    polite_barrier();
  }

  // All add to the same numbers at once, of a type with gaps and of one without.
  void accumulating_is_atomic() {
    CROSSLANE_STEP("accumulating at once");
    constexpr int numbers = 500, each = 12, where = 0;
    const MPI_Aint place = MPI_Aint{5} * slot_bytes;
    MPI_Datatype gaps = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_vector(numbers, 1, 2, MPI_DOUBLE, &gaps));
    CROSSLANE_MPI(MPI_Type_commit(&gaps));
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    std::vector<Memory> operands, results;
    for (int i = 0; i < each; ++i) {
      Memory& operand = operands.emplace_back(program_.kind(), numbers * sizeof(double));
      Memory& before = results.emplace_back(program_.kind(), sizeof(double));
      operand.fill(std::vector<double>(numbers, program_.rank + 1));
      if (i % 3 == 0)
        CROSSLANE_MPI(MPI_Get_accumulate(operand.data(), 1, MPI_DOUBLE, before.data(), 1, MPI_DOUBLE, where, place, 1,
                                         MPI_DOUBLE, MPI_SUM, window_));
      CROSSLANE_MPI(MPI_Accumulate(operand.data(), numbers, MPI_DOUBLE, where, place, 1, gaps, MPI_SUM, window_));
      CROSSLANE_MPI(MPI_Accumulate(operand.data(), numbers, MPI_DOUBLE, where, place + numbers * 16, numbers,
                                   MPI_DOUBLE, MPI_SUM, window_));
    }
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    CROSSLANE_MPI(MPI_Type_free(&gaps));
    if (program_.rank != where) return;
    const double all = program_.size * (program_.size + 1) / 2.0;
    const auto found = values_at<double>(place, 3 * numbers);
    for (int i = 0; i < numbers; ++i) {
      const double more = i == 0 ? all * (each / 3) : 0.0;
      const auto at = static_cast<std::size_t>(i);
      CROSSLANE_CHECK(found[2 * at] == all * each + more && found[2 * at + 1] == 0.0,
                      "number {} of a vector: {} and {}", i, found[2 * at], found[2 * at + 1]);
      CROSSLANE_CHECK(found[2 * numbers + at] == all * each, "number {}: {}", i, found[2 * numbers + at]);
    }
  }

  // Round after round without any other synchronisation: nobody runs ahead of who posts or completes.
  void posts_meet_starts() {
    CROSSLANE_STEP("posts and starts");
    const MPI_Group from = group_of(left_), to = group_of(right_);
    const MPI_Aint place = MPI_Aint{7} * slot_bytes;
    for (int round = 0; round < 30; ++round) {
      Memory out(program_.kind(), slot_bytes);
      const auto content = [&](int rank) { return pattern(mix(program_.seed, rank, round, 3), slot_bytes); };
      out.write(content(program_.rank));
      CROSSLANE_MPI(MPI_Win_post(from, 0, window_));
      CROSSLANE_MPI(MPI_Win_start(to, 0, window_));
      CROSSLANE_MPI(MPI_Put(out.data(), slot_bytes, MPI_BYTE, right_, place, slot_bytes, MPI_BYTE, window_));
      CROSSLANE_MPI(MPI_Win_complete(window_));
      if (round % 2 == 0) {
        CROSSLANE_MPI(MPI_Win_wait(window_));
      } else {
        for (int over = 0; over == 0;) CROSSLANE_MPI(MPI_Win_test(window_, &over));
      }
      CROSSLANE_CHECK(memory_.read(static_cast<std::size_t>(place), slot_bytes) == content(left_), "round {}", round);
    }
    for (MPI_Group group : {from, to}) MPI_Group_free(&group);
  }

  void fences_meet() {
    const MPI_Aint place = MPI_Aint{6} * slot_bytes;
    CROSSLANE_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window_));
    for (int round = 0; round < 30; ++round) {
      CROSSLANE_STEP("fences, round {}", round);
      const auto content = [&](int rank) { return pattern(mix(program_.seed, rank, round, 4), slot_bytes); };
      Memory out(program_.kind(), slot_bytes);
      out.write(content(program_.rank));
      if (program_.local().chance(30)) linger(program_.local().below(2000));
      CROSSLANE_MPI(MPI_Put(out.data(), slot_bytes, MPI_BYTE, right_, place, slot_bytes, MPI_BYTE, window_));
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      CROSSLANE_CHECK(memory_.read(static_cast<std::size_t>(place), slot_bytes) == content(left_),
                      "what rank {} has put", left_);
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
    }
  }

  // Who wants the lock alone gets it, however many others come and go.
  void sharers_let_pass() {
    CROSSLANE_STEP("an exclusive lock among shared ones");
    constexpr int where = 0;
    const MPI_Aint flag = MPI_Aint{7} * slot_bytes;
    if (program_.rank == where) memory_.write(std::vector<std::byte>(sizeof(int)), static_cast<std::size_t>(flag));
    polite_barrier();
    int seen = 0;
    const int set = 1;
    for (int i = 0; program_.rank == 1 && i < 20; ++i) {
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, where, 0, window_));
      if (i == 19) CROSSLANE_MPI(MPI_Put(&set, 1, MPI_INT, where, flag, 1, MPI_INT, window_));
      CROSSLANE_MPI(MPI_Win_unlock(where, window_));
    }
    while (program_.rank != 1 && seen == 0) {
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, where, 0, window_));
      CROSSLANE_MPI(MPI_Get(&seen, 1, MPI_INT, where, flag, 1, MPI_INT, window_));
      CROSSLANE_MPI(MPI_Win_unlock(where, window_));
    }
    polite_barrier();
  }

  // Who waits in a call on a window goes on with its messages meanwhile, which others wait for before they come.
  void waits_for_messages() {
    constexpr int many = 3000, bytes = 4096;
    const MPI_Aint flag = MPI_Aint{7} * slot_bytes;
    const std::vector<char> out(bytes, 'x');
    std::vector<char> in(bytes);
    std::vector<MPI_Request> sends(many, MPI_REQUEST_NULL);
    const auto send_all = [&] {
      for (MPI_Request& send : sends)
        CROSSLANE_MPI(MPI_Isend(out.data(), bytes, MPI_CHAR, 0, 5, MPI_COMM_WORLD, &send));
    };
    const auto receive_all = [&] {
      for (int i = 0; i < many; ++i)
        CROSSLANE_MPI(MPI_Recv(in.data(), bytes, MPI_CHAR, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    };
    const auto sent = [&] { CROSSLANE_MPI(MPI_Waitall(many, sends.data(), MPI_STATUSES_IGNORE)); };
    const int rank = program_.rank;
    {
      CROSSLANE_STEP("messages while a fence waits");
      if (rank == 0) receive_all();
      if (rank == 1) send_all();
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      if (rank == 1) sent();
      CROSSLANE_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window_));
    }
    {
      CROSSLANE_STEP("messages while a lock is waited for");
      if (rank == 0) CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window_));
      polite_barrier();
      if (rank == 1) {
        send_all();
        CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window_));
        CROSSLANE_MPI(MPI_Win_unlock(0, window_));
        sent();
      }
      if (rank == 0) {
        receive_all();
        CROSSLANE_MPI(MPI_Win_unlock(0, window_));
      }
    }
    {
      CROSSLANE_STEP("messages while memory is looked at");
      const int set = 1;
      if (rank == 1) memory_.write(std::vector<std::byte>(sizeof set), static_cast<std::size_t>(flag));
      polite_barrier();
      CROSSLANE_MPI(MPI_Win_lock_all(0, window_));
      if (rank == 0) {
        receive_all();
        CROSSLANE_MPI(MPI_Put(&set, 1, MPI_INT, 1, flag, 1, MPI_INT, window_));
        CROSSLANE_MPI(MPI_Win_flush(1, window_));
      }
      if (rank == 1) {
        send_all();
        while (memory_.read(static_cast<std::size_t>(flag), 1)[0] == std::byte{0}) CROSSLANE_MPI(MPI_Win_sync(window_));
        sent();
      }
      CROSSLANE_MPI(MPI_Win_unlock_all(window_));
    }
    {
      CROSSLANE_STEP("messages while a window is freed");
      MPI_Win other = MPI_WIN_NULL;
      CROSSLANE_MPI(MPI_Win_create(memory_.data(), slot_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other));
      if (rank == 0) receive_all();
      if (rank == 1) send_all();
      CROSSLANE_MPI(MPI_Win_free(&other));
      if (rank == 1) sent();
    }
  }

  // Its memory is no CPU's to load from.
  void shares_nothing() {
    CROSSLANE_STEP("MPI_Win_shared_query");
    MPI_Aint size = -1;
    int unit = -1;
    void* base = &size;
    CROSSLANE_MPI(MPI_Win_shared_query(window_, right_, &size, &unit, static_cast<void*>(&base)));
    CROSSLANE_CHECK(size == 0 && base == nullptr, "{} bytes at {}", size, base);
    CROSSLANE_MPI(MPI_Win_shared_query(window_, MPI_PROC_NULL, &size, &unit, static_cast<void*>(&base)));
    for (const int nobody : {program_.size, -12345})
      expect(MPI_Win_shared_query(window_, nobody, &size, &unit, static_cast<void*>(&base)), MPI_ERR_RANK,
             {"MPI_Win_shared_query", "rank"});
  }

  // Nothing of the call is done: each may be made again as it should have been.
  void wrong_assertions() {
    CROSSLANE_STEP("assertions that there are not");
    constexpr int wrong = 1 << 30;
    MPI_Group group = MPI_GROUP_NULL;
    CROSSLANE_MPI(MPI_Win_get_group(window_, &group));
    expect(MPI_Win_fence(wrong | MPI_MODE_NOSTORE, window_), MPI_ERR_ASSERT, {"MPI_Win_fence", "assert"});
    expect(MPI_Win_start(group, wrong, window_), MPI_ERR_ASSERT, {"MPI_Win_start", "assert"});
    expect(MPI_Win_post(group, wrong, window_), MPI_ERR_ASSERT, {"MPI_Win_post", "assert"});
    expect(MPI_Win_lock(MPI_LOCK_SHARED, right_, wrong, window_), MPI_ERR_ASSERT, {"MPI_Win_lock", "assert"});
    expect(MPI_Win_lock_all(wrong, window_), MPI_ERR_ASSERT, {"MPI_Win_lock_all", "assert"});
    CROSSLANE_MPI(MPI_Group_free(&group));
  }

  // One that is refused takes nothing along of those before it.
  void refused_among_others() {
    CROSSLANE_STEP("an access that is refused among others");
    const MPI_Aint here = 0;
    const auto content = [&](int rank) { return pattern(mix(program_.seed, rank, 5), slot_bytes); };
    memory_.write(content(program_.rank), static_cast<std::size_t>(here));
    polite_barrier();
    std::vector<std::byte> in(slot_bytes);
    const std::vector<float> numbers(4);
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, right_, 0, window_));
    CROSSLANE_MPI(MPI_Get(in.data(), slot_bytes, MPI_BYTE, right_, here, slot_bytes, MPI_BYTE, window_));
    expect(MPI_Accumulate(numbers.data(), 4, MPI_FLOAT, right_, slot_bytes, 4, MPI_FLOAT, MPI_BAND, window_),
           MPI_ERR_OP, {});
    CROSSLANE_MPI(MPI_Win_unlock(right_, window_));
    CROSSLANE_CHECK(in == content(right_), "what was got before");
    polite_barrier();
  }

  // Parts of a datatype that have no bytes do not say what it is made of.
  void parts_without_bytes() {
    CROSSLANE_STEP("datatypes with empty parts");
    constexpr int numbers = 10;
    const MPI_Aint place = MPI_Aint{6} * slot_bytes;
    memory_.write(std::vector<std::byte>(numbers * sizeof(int)), static_cast<std::size_t>(place));
    MPI_Datatype none = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_contiguous(0, MPI_DOUBLE, &none));
    std::array<int, 3> lengths{0, 1, numbers};
    std::array<MPI_Aint, 3> displacements{};
    std::array<MPI_Datatype, 3> types{MPI_CHAR, none, MPI_INT};
    MPI_Datatype made = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_create_struct(3, lengths.data(), displacements.data(), types.data(), &made));
    CROSSLANE_MPI(MPI_Type_commit(&made));
    CROSSLANE_MPI(MPI_Type_free(&none));
    const std::vector<int> operand(numbers, 200);
    for (int round = 0; round < 2; ++round) {
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      CROSSLANE_MPI(MPI_Accumulate(operand.data(), numbers, MPI_INT, right_, place, 1, made, MPI_SUM, window_));
    }
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    CROSSLANE_MPI(MPI_Type_free(&made));
    const auto found = values_at<int>(place, numbers);
    CROSSLANE_CHECK(found == std::vector<int>(numbers, 400), "the first is {}", found.front());
  }

  // From and to memory of another GPU, if the rank sees one, with a datatype of gaps that begins behind its address.
  void another_gpu() {
    int gpus = 0;
    CUdevice own = 0;
    CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
    CROSSLANE_CUDA(cuCtxGetDevice(&own));
    const CUdevice other = (own + 1) % std::max(gpus, 1);
    if (other == own) return;
    CROSSLANE_STEP("memory of another GPU");
    constexpr int blocks = 300, first = 100;
    constexpr std::size_t ints = first + 5 * blocks;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    CROSSLANE_CUDA(cuDevicePrimaryCtxRetain(&context, other));
    CROSSLANE_CUDA(cuCtxPushCurrent(context));
    CROSSLANE_CUDA(cuMemAlloc(&memory, ints * sizeof(int)));
    std::vector<int> numbers(ints), got(ints);
    for (std::size_t i = 0; i < ints; ++i) numbers[i] = static_cast<int>(i) + 10'000 * program_.rank;
    CROSSLANE_CUDA(cuMemcpyHtoD(memory, numbers.data(), ints * sizeof(int)));
    CROSSLANE_CUDA(cuCtxSynchronize());
    CROSSLANE_CUDA(cuCtxPopCurrent(nullptr));
    std::array<int, blocks> places{};
    for (int i = 0; i < blocks; ++i) places[static_cast<std::size_t>(i)] = first + 5 * i;
    MPI_Datatype gaps = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_create_indexed_block(blocks, 2, places.data(), MPI_INT, &gaps));
    CROSSLANE_MPI(MPI_Type_commit(&gaps));
    const MPI_Aint place = MPI_Aint{6} * slot_bytes;
    auto* const address = reinterpret_cast<void*>(memory);
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    CROSSLANE_MPI(MPI_Put(address, 1, gaps, right_, place, 2 * blocks, MPI_INT, window_));
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    CROSSLANE_CUDA(cuCtxPushCurrent(context));
    CROSSLANE_CUDA(cuMemsetD8(memory, 0x77, ints * sizeof(int)));
    CROSSLANE_CUDA(cuCtxSynchronize());
    CROSSLANE_CUDA(cuCtxPopCurrent(nullptr));
    CROSSLANE_MPI(MPI_Get(address, 1, gaps, program_.rank, place, 2 * blocks, MPI_INT, window_));
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    CROSSLANE_CUDA(cuMemcpyDtoH(got.data(), memory, ints * sizeof(int)));
    int wrong = 0;
    for (std::size_t i = 0; i < ints; ++i) {
      const bool named = i >= first && (i - first) % 5 < 2;
      wrong += got[i] != (named ? static_cast<int>(i) + 10'000 * left_ : 0x77777777) ? 1 : 0;
    }
    CROSSLANE_CHECK(wrong == 0, "{} of {} numbers are wrong", wrong, ints);
    CROSSLANE_MPI(MPI_Type_free(&gaps));
    CROSSLANE_CUDA(cuCtxPushCurrent(context));
    CROSSLANE_CUDA(cuMemFree(memory));
    CROSSLANE_CUDA(cuCtxPopCurrent(nullptr));
    CROSSLANE_CUDA(cuDevicePrimaryCtxRelease(other));
  }

  // CROSSLANE_ORDER=legacy: nobody waits for the default stream but the calls themselves.
  void behind_the_default_stream() {
    constexpr int bytes = slot_bytes;
    const MPI_Aint here = 0, there = MPI_Aint{6} * slot_bytes;
    Memory out(MemoryKind::device, bytes);
    CROSSLANE_MPI(MPI_Win_fence(0, window_));
    for (int round = 1; round <= 5; ++round) {
      CROSSLANE_STEP("behind the default stream, round {}", round);
      const auto byte_of = [&](int rank, int which) {
        return static_cast<unsigned char>(1 + 10 * round + 3 * rank + which);
      };
      const auto store = [](const Memory& memory, MPI_Aint at, unsigned char byte) {
        CROSSLANE_CUDA(cuLaunchHostFunc(CU_STREAM_LEGACY, [](void*) { linger(20'000); }, nullptr));
        CROSSLANE_CUDA(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(memory.data()) + static_cast<CUdeviceptr>(at),
                                       byte, bytes, CU_STREAM_LEGACY));
      };
      std::vector<std::byte> got(bytes);
      store(memory_, here, byte_of(program_.rank, 0));
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      CROSSLANE_MPI(MPI_Get(got.data(), bytes, MPI_BYTE, right_, here, bytes, MPI_BYTE, window_));
      for (int which = 1; which < 3; ++which) {
        store(out, 0, byte_of(program_.rank, which));
        CROSSLANE_MPI(MPI_Put(out.data(), bytes, MPI_BYTE, right_, there, bytes, MPI_BYTE, window_));
      }
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      CROSSLANE_CHECK(got == std::vector(bytes, static_cast<std::byte>(byte_of(right_, 0))),
                      "what rank {} had stored before its fence", right_);
      CROSSLANE_CHECK(memory_.read(static_cast<std::size_t>(there), bytes) ==
                          std::vector(bytes, static_cast<std::byte>(byte_of(left_, 2))),
                      "what rank {} put last", left_);
    }
  }

  // One rank's mistake is an error on all, and nobody waits.
  void made_wrong() {
    CROSSLANE_STEP("a window with a wrong displacement unit on one rank");
    MPI_Comm own = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &own));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN));
    MPI_Win window = MPI_WIN_NULL;
    const int unit = program_.rank == program_.size - 1 ? 0 : 1;
    const int result = MPI_Win_create(memory_.data(), 100, unit, MPI_INFO_NULL, own, &window);
    CROSSLANE_CHECK(result != MPI_SUCCESS, "the window was made");
    if (unit == 0) expect(result, MPI_ERR_DISP, {});
    const MPI_Aint size = program_.rank == 0 ? -1 : 100;
    const int sized = MPI_Win_create(memory_.data(), size, 1, MPI_INFO_NULL, own, &window);
    CROSSLANE_CHECK(sized != MPI_SUCCESS, "the window was made");
    if (size < 0) expect(sized, MPI_ERR_SIZE, {});
    CROSSLANE_MPI(MPI_Comm_free(&own));
  }

  void out_of_order() {
    CROSSLANE_STEP("calls out of order");
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window_));
    char byte = 0;
    const auto refused = [](int result, const char* call) { expect(result, MPI_ERR_RMA_SYNC, {call}); };
    refused(MPI_Put(&byte, 1, MPI_CHAR, right_, 0, 1, MPI_CHAR, window_), "MPI_Put");
    refused(MPI_Win_unlock(right_, window_), "MPI_Win_unlock");
    refused(MPI_Win_unlock_all(window_), "MPI_Win_unlock_all");
    refused(MPI_Win_flush(right_, window_), "MPI_Win_flush");
    refused(MPI_Win_flush_all(window_), "MPI_Win_flush_all");
    refused(MPI_Win_complete(window_), "MPI_Win_complete");
    refused(MPI_Win_wait(window_), "MPI_Win_wait");
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, right_, 0, window_));
    refused(MPI_Win_lock(MPI_LOCK_SHARED, right_, 0, window_), "MPI_Win_lock");
    refused(MPI_Win_lock_all(0, window_), "MPI_Win_lock_all");
    if (right_ != left_) refused(MPI_Get(&byte, 1, MPI_CHAR, left_, 0, 1, MPI_CHAR, window_), "MPI_Get");
    out_of_range();
    expect(MPI_Win_lock(-77, right_, 0, window_), MPI_ERR_LOCKTYPE, {});
    expect(MPI_Win_lock(MPI_LOCK_SHARED, program_.size, 0, window_), MPI_ERR_RANK, {});
    expect(MPI_Compare_and_swap(&byte, &byte, &byte, MPI_DOUBLE, right_, 0, window_), MPI_ERR_TYPE, {});
    MPI_Datatype derived = MPI_DATATYPE_NULL;
    CROSSLANE_MPI(MPI_Type_contiguous(1, MPI_CHAR, &derived));
    CROSSLANE_MPI(MPI_Type_commit(&derived));
    expect(MPI_Fetch_and_op(&byte, &byte, derived, right_, 0, MPI_REPLACE, window_), MPI_ERR_TYPE,
           {"MPI_Fetch_and_op", "datatype"});
    CROSSLANE_MPI(MPI_Type_free(&derived));
    expect(MPI_Win_attach(window_, memory_.data(), 16), MPI_ERR_RMA_FLAVOR, {"MPI_Win_attach", "win"});
    CROSSLANE_MPI(MPI_Put(&byte, 1, MPI_CHAR, MPI_PROC_NULL, 0, 1, MPI_CHAR, window_));
    CROSSLANE_MPI(MPI_Win_unlock(right_, window_));
  }

  // More than the target has, at either end, and more than an address can hold.
  void out_of_range() {
    std::array<char, 16> bytes{};
    const auto end = static_cast<MPI_Aint>(memory_.size());
    expect(MPI_Put(bytes.data(), 16, MPI_CHAR, right_, end - 15, 16, MPI_CHAR, window_), MPI_ERR_RMA_RANGE, {});
    expect(MPI_Get(bytes.data(), 16, MPI_CHAR, right_, -1, 16, MPI_CHAR, window_), MPI_ERR_DISP, {});
    expect(MPI_Put(bytes.data(), 16, MPI_CHAR, right_, MPI_Aint{1} << 62, 16, MPI_CHAR, window_), MPI_ERR_RMA_RANGE,
           {});
    expect(MPI_Put(bytes.data(), 16, MPI_CHAR, right_, 0, 15, MPI_CHAR, window_), MPI_ERR_TRUNCATE, {});
    CROSSLANE_MPI(MPI_Put(bytes.data(), 16, MPI_CHAR, right_, end - 16, 16, MPI_CHAR, window_));
  }

 private:
  [[nodiscard]] static MPI_Group group_of(int rank) {
    MPI_Group all = MPI_GROUP_NULL, one = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    CROSSLANE_MPI(MPI_Group_incl(all, 1, &rank, &one));
    MPI_Group_free(&all);
    return one;
  }

  // In this rank's memory.
  template <class Value>
  [[nodiscard]] std::vector<Value> values_at(MPI_Aint place, std::size_t count) const {
    std::vector<Value> found(count);
    std::memcpy(found.data(), memory_.read(static_cast<std::size_t>(place), count * sizeof(Value)).data(),
                count * sizeof(Value));
    return found;
  }

  Program& program_;
  const int right_, left_;
  Memory memory_;
  MPI_Win window_ = MPI_WIN_NULL;
};

// Ranks without a part, which have passed no GPU memory to MPI yet.
void empty_parts(const Program& program) {
  CROSSLANE_STEP("ranks without a part");
  constexpr int bytes = 1000;
  const bool has = program.rank == 0;
  Memory memory(has ? MemoryKind::device : MemoryKind::host, bytes), own(MemoryKind::device, bytes);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(
      MPI_Win_create(has ? memory.data() : nullptr, has ? bytes : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_CHECK(is_unified(window), "not one copy");
  const auto content = pattern(mix(program.seed, 6), bytes);
  if (program.rank == program.size - 1) own.write(content);
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  if (program.rank == program.size - 1)
    CROSSLANE_MPI(MPI_Put(own.data(), bytes, MPI_BYTE, 0, 0, bytes, MPI_BYTE, window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  if (has) CROSSLANE_CHECK(memory.read() == content, "what the last rank put");
  CROSSLANE_MPI(MPI_Win_free(&window));
}

// A window that is left goes with MPI_COMM_SELF, as MPI_Finalize begins, and may be accessed until then.
struct Left {
  Memory memory{MemoryKind::device, 1000};
  MPI_Win window = MPI_WIN_NULL;
};
int free_left(MPI_Comm, int, void* value, void*) {
  const std::unique_ptr<Left> left(static_cast<Left*>(value));
  constexpr std::size_t sent_from = 500, ints = 2;
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const std::array numbers{100 + rank, 200 + rank};
  left->memory.write(std::as_bytes(std::span(numbers)), sent_from);
  CROSSLANE_MPI(MPI_Win_fence(0, left->window));
  const int right = (rank + 1) % size;
  CROSSLANE_MPI(MPI_Put(numbers.data(), 1, MPI_INT, right, 0, 1, MPI_INT, left->window));
  CROSSLANE_MPI(MPI_Put(left->memory.as<std::byte>() + sent_from + sizeof(int), 1, MPI_INT, right, sizeof(int), 1,
                        MPI_INT, left->window));
  CROSSLANE_MPI(MPI_Win_fence(0, left->window));
  const int before = (rank + size - 1) % size;
  std::array<int, ints> got{};
  const auto read = left->memory.read(0, sizeof got);
  std::memcpy(got.data(), read.data(), sizeof got);
  CROSSLANE_CHECK(got == (std::array{100 + before, 200 + before}), "what rank {} put while MPI is finalized: {} and {}",
                  before, got[0], got[1]);
  return MPI_Win_free(&left->window);
}
void leave_one() {
  auto left = std::make_unique<Left>();
  CROSSLANE_MPI(MPI_Win_create(left->memory.data(), static_cast<MPI_Aint>(left->memory.size()), 1, MPI_INFO_NULL,
                               MPI_COMM_WORLD, &left->window));
  int key = MPI_KEYVAL_INVALID;
  CROSSLANE_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_left, &key, nullptr));
  CROSSLANE_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, key, left.release()));
}

}  // namespace

void one_sided_unified(Program& program) {
  // Where there is one copy the MPI's own windows do not matter.
  const bool one_copy = program.option("unified", 1) != 0;
  if (!one_copy && !plain_mpi_has_windows(MPI_COMM_WORLD)) return program.skip("MPI_Win_create of host memory fails");
  if (one_copy) empty_parts(program);
  Unified unified(program);
  CROSSLANE_CHECK_EQUAL(is_unified(unified.handle()), one_copy);
  if (!is_unified(unified.handle())) return;
  if (program.option("order", 0) != 0) return unified.behind_the_default_stream();
  unified.without_synchronising();
  unified.locks_exclude();
  unified.sharers_let_pass();
  unified.accumulating_is_atomic();
  unified.posts_meet_starts();
  unified.fences_meet();
  unified.waits_for_messages();
  unified.shares_nothing();
  unified.wrong_assertions();
  unified.refused_among_others();
  unified.parts_without_bytes();
  unified.another_gpu();
  unified.made_wrong();
  unified.out_of_order();
  leave_one();
}

}  // namespace crosslane::tests
