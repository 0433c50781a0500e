// What completes one-sided accesses, and what synchronises windows: locks of all ranks, requests that nobody flushes, a buffer that is
// gone among others, threads that share a window. It must not know Crosslane.
#include "one_sided/attribute.h"
#include "one_sided/parts.h"
#include "one_sided/plain.h"
#include "support/plain_mpi.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t slot = 20000;

// A window of some slots in device memory, if --memory allows that, with known contents.
class Exposed {
 public:
  explicit Exposed(Program& program, int slots, std::size_t bytes = slot)
      : program_(program), bytes_(bytes), memory_(program.kind(), static_cast<std::size_t>(slots) * bytes) {
    for (int i = 0; i < slots; ++i) memory_.write(contents(program.rank, i), static_cast<std::size_t>(i) * bytes);
    CROSSLANE_MPI(MPI_Win_create(memory_.data(), static_cast<MPI_Aint>(memory_.size()), 1, MPI_INFO_NULL,
                                 MPI_COMM_WORLD, &window_));
    CROSSLANE_MPI(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
  }
  ~Exposed() {
    polite_barrier();
    MPI_Win_free(&window_);
  }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

  [[nodiscard]] MPI_Win window() const { return window_; }
  /// What a slot of this rank's holds.
  [[nodiscard]] std::vector<std::byte> slot_now(int which) const {
    const auto all = memory_.read();
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(which * static_cast<std::ptrdiff_t>(bytes_));
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
  }
  [[nodiscard]] std::vector<std::byte> contents(int rank, int which) const {
    return pattern(mix(program_.seed, rank, which), bytes_);
  }

 private:
  Program& program_;
  std::size_t bytes_;
  Memory memory_;
  MPI_Win window_ = MPI_WIN_NULL;
};

int right_of(const Program& program) { return (program.rank + 1) % program.size; }

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// No flush comes: what a request has completed leaves nothing behind.
void requests_alone(Program& program) {
  CROSSLANE_STEP("requests that nobody flushes");
  const int to = right_of(program);
  constexpr std::size_t bytes = std::size_t{1} << 20, most = std::size_t{64} << 20;
  constexpr int rounds = 200;
  const Exposed exposed(program, 1, bytes);
  Memory in(program.kind(), bytes);
  CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, exposed.window()));
  std::size_t before = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == 20) before = resident_bytes();
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Rget(in.data(), bytes, MPI_BYTE, to, 0, bytes, MPI_BYTE, exposed.window(), &request));
    polite_wait(request);
  }
  CROSSLANE_CHECK(in.read() == exposed.contents(to, 0), "the last of {} rounds", rounds);
  const std::size_t after = resident_bytes();
  CROSSLANE_CHECK(after < before + most, "{} rounds of MPI_Rget and MPI_Wait: {} to {} bytes of memory", rounds, before,
                  after);
  CROSSLANE_MPI(MPI_Win_unlock(to, exposed.window()));
}

// Of several results one cannot be delivered: the call that completes them says so, and the others are there. Where there is one copy of the window,
// results may come before, and a program that frees their memory is wrong.
void one_is_gone(Program& program, const Exposed& exposed) {
  if (program.memory() != "device" || is_unified(exposed.window())) return;
  CROSSLANE_STEP("a buffer that is gone among others");
  const int to = right_of(program);
  Memory first(MemoryKind::device, slot), last(MemoryKind::device, slot);
  CUdeviceptr gone = 0;
  CROSSLANE_CUDA(cuMemAlloc(&gone, std::size_t{4} << 20));
  const auto get = [&](void* into, int which) {
    CROSSLANE_MPI(MPI_Get(into, slot, MPI_BYTE, to, static_cast<MPI_Aint>(which) * static_cast<MPI_Aint>(slot), slot,
                          MPI_BYTE, exposed.window()));
  };
  CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, exposed.window()));
  get(first.data(), 0);
  get(reinterpret_cast<void*>(gone), 1);
  get(last.data(), 2);
  CROSSLANE_CUDA(cuMemFree(gone));
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_Win_unlock(to, exposed.window()), &error_class);
  CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_BUFFER);
  CROSSLANE_CHECK(first.read() == exposed.contents(to, 0), "what came before");
  CROSSLANE_CHECK(last.read() == exposed.contents(to, 2), "what came after");
}

// The same of a fence: what others put is there, too.
void one_is_gone_at_a_fence(Program& program, const Exposed& exposed) {
  if (program.memory() != "device" || is_unified(exposed.window())) return;
  CROSSLANE_STEP("a buffer that is gone at a fence that others put before");
  const int to = right_of(program), left = (program.rank + program.size - 1) % program.size;
  const auto stored = [&](int rank) { return pattern(mix(program.seed, rank, 11), slot); };
  Memory out(program.kind(), slot);
  out.write(stored(program.rank));
  CUdeviceptr gone = 0;
  CROSSLANE_CUDA(cuMemAlloc(&gone, std::size_t{4} << 20));
  const MPI_Win window = exposed.window();
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Put(out.data(), slot, MPI_BYTE, to, 2 * slot, slot, MPI_BYTE, window));
  CROSSLANE_MPI(MPI_Get(reinterpret_cast<void*>(gone), slot, MPI_BYTE, to, 0, slot, MPI_BYTE, window));
  CROSSLANE_CUDA(cuMemFree(gone));
  polite_barrier();
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_Win_fence(0, window), &error_class);
  CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_BUFFER);
  CROSSLANE_CHECK(exposed.slot_now(2) == stored(left), "what rank {} put", left);
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_fence(0, window));
}

// MPICH 4.0's local flush does not complete a get that a put came after; the data comes with the unlock in host memory.
void flushed_locally(Program& program) {
  if (left_out().flush_local) return;
  CROSSLANE_STEP("local flushes");
  constexpr int rounds = 40, count = 16;
  const int to = right_of(program);
  const auto number = [](int rank, int round, int i) { return 10000 * rank + 100 * round + i; };
  MPI_Win window = MPI_WIN_NULL;
  int* mine = nullptr;
  constexpr MPI_Aint ints = 1024;
  CROSSLANE_MPI(MPI_Win_allocate(ints * MPI_Aint{sizeof(int)}, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                                 static_cast<void*>(&mine), &window));
  Memory in(program.kind(), count * sizeof(int)), out(program.kind(), 4 * sizeof(int));
  out.fill(std::vector<int>(4, 7));
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    in.fill(std::vector<int>(count, -1));
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, program.rank, 0, window));
    for (int i = 0; i < count; ++i) mine[i] = number(program.rank, round, i);
    CROSSLANE_MPI(MPI_Win_unlock(program.rank, window));
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));  // all go on at once
    CROSSLANE_MPI(MPI_Win_lock_all(0, window));
    CROSSLANE_MPI(MPI_Get(in.data(), count, MPI_INT, to, 0, count, MPI_INT, window));
    CROSSLANE_MPI(MPI_Put(out.data(), 4, MPI_INT, to, 200, 4, MPI_INT, window));
    CROSSLANE_MPI(round % 2 == 0 ? MPI_Win_flush_local_all(window) : MPI_Win_flush_local(to, window));
    CROSSLANE_MPI(MPI_Win_unlock_all(window));
    std::vector<int> expected;
    for (int i = 0; i < count; ++i) expected.push_back(number(to, round, i));
    wrong += in.values<int>() != expected ? 1 : 0;
    CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CROSSLANE_CHECK(wrong == 0, "{} of {} into {} memory", wrong, rounds, name(in.kind()));
  CROSSLANE_MPI(MPI_Win_free(&window));
}

int refuse_once(MPI_Win, int, void* times, void*) {
  return (*static_cast<int*>(times))-- > 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

// A callback of the application fails on one rank, where MPI_Win_free has to be called again: others are in theirs by then. Open MPI 4.1 does not mind.
void freed_again(Program& program) {
  CROSSLANE_STEP("freeing a window again");
  Memory memory(program.kind(), slot);
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create(memory.data(), slot, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CROSSLANE_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  int keyval = MPI_KEYVAL_INVALID, times = program.rank == 0 ? 1 : 0;
  CROSSLANE_MPI(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, refuse_once, &keyval, nullptr));
  CROSSLANE_MPI(MPI_Win_set_attr(window, keyval, &times));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  CROSSLANE_MPI(MPI_Win_fence(0, window));
  const int refused = MPI_Win_free(&window);
  CROSSLANE_CHECK(refused == MPI_SUCCESS || program.rank == 0, "MPI_Win_free: {}", refused);
  if (refused != MPI_SUCCESS) CROSSLANE_MPI(MPI_Win_free(&window));
  CROSSLANE_CHECK(window == MPI_WIN_NULL, "the window is there still");
  CROSSLANE_MPI(MPI_Win_free_keyval(&keyval));
}

// A request whose origin has gaps: when the access is over all has come, whatever the MPI took for its end.
void with_gaps(Program& program) {
  CROSSLANE_STEP("requests of origins with gaps");
  constexpr int rounds = 40, blocks = 500, run = 8, stride = 12;
  constexpr int bytes = blocks * run;
  const int to = right_of(program);
  const Exposed exposed(program, rounds, bytes);
  Memory in(program.kind(), std::size_t{blocks} * stride);
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(blocks, run, stride, MPI_BYTE, &gaps));
  CROSSLANE_MPI(MPI_Type_commit(&gaps));
  for (int round = 0; round < rounds; ++round) {
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, exposed.window()));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(
        MPI_Rget(in.data(), 1, gaps, to, MPI_Aint{round} * bytes, bytes, MPI_BYTE, exposed.window(), &request));
    polite_wait(request);
    CROSSLANE_MPI(MPI_Win_unlock(to, exposed.window()));
    const auto got = in.read(), expected = exposed.contents(to, round);
    bool same = true;
    for (int block = 0; block < blocks; ++block)
      same = same && std::equal(expected.begin() + block * run, expected.begin() + (block + 1) * run,
                                got.begin() + block * stride);
    CROSSLANE_CHECK(same, "round {} of {} from rank {} into {} memory", round, rounds, to, name(in.kind()));
  }
  CROSSLANE_MPI(MPI_Type_free(&gaps));
}

// Nothing else synchronises the window: locking all brings what others stored, unlocking all shows what this rank stored, and
// freeing brings the rest.
void by_locking_all(Program& program) {
  CROSSLANE_STEP("locks of all ranks, and freeing");
  const int right = right_of(program), left = (program.rank + program.size - 1) % program.size;
  const auto bytes_of = [&](int rank, int which) { return pattern(mix(program.seed, rank, which, 5), slot); };
  Memory memory(program.kind(), slot), buffer(program.kind(), slot);
  memory.write(bytes_of(program.rank, 0));
  MPI_Win window = MPI_WIN_NULL;
  CROSSLANE_MPI(MPI_Win_create(memory.data(), slot, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  const auto put = [&](int which) {
    buffer.write(bytes_of(program.rank, which));
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, window));
    polite_barrier();  // this brings what was stored before, too
    CROSSLANE_MPI(MPI_Put(buffer.data(), slot, MPI_BYTE, right, 0, slot, MPI_BYTE, window));
    CROSSLANE_MPI(MPI_Win_unlock(right, window));
    polite_barrier();
  };
  put(1);
  CROSSLANE_MPI(MPI_Win_lock_all(0, window));
  CROSSLANE_CHECK(memory.read() == bytes_of(left, 1), "what rank {} put, after MPI_Win_lock_all", left);
  memory.write(bytes_of(program.rank, 2));
  CROSSLANE_MPI(MPI_Win_unlock_all(window));
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window));
  CROSSLANE_MPI(MPI_Get(buffer.data(), slot, MPI_BYTE, right, 0, slot, MPI_BYTE, window));
  CROSSLANE_MPI(MPI_Win_unlock(right, window));
  CROSSLANE_CHECK(buffer.read() == bytes_of(right, 2), "what rank {} stored before MPI_Win_unlock_all", right);
  polite_barrier();
  put(3);
  CROSSLANE_MPI(MPI_Win_free(&window));
  CROSSLANE_CHECK(memory.read() == bytes_of(left, 3), "what rank {} put, after MPI_Win_free", left);
}

// The same of targets with gaps, in a window that MPI allocates: MPICH 4.0 takes it for complete ahead of that, in host memory too.
void from_gaps(Program& program) {
  CROSSLANE_STEP("requests of targets with gaps");
  constexpr int rounds = 3000, blocks = 3, run = 2, stride = 5;
  const int to = right_of(program);
  MPI_Win window = MPI_WIN_NULL;
  int* mine = nullptr;
  constexpr MPI_Aint ints = 1024;  // whole pages: MPICH 4.0 mistakes where odd lengths begin
  CROSSLANE_MPI(MPI_Win_allocate(ints * MPI_Aint{sizeof(int)}, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                                 static_cast<void*>(&mine), &window));
  for (int i = 0; i < ints; ++i) mine[i] = 1000 * program.rank + i;
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_vector(blocks, run, stride, MPI_INT, &gaps));
  CROSSLANE_MPI(MPI_Type_commit(&gaps));
  polite_barrier();
  std::vector<int> expected;
  for (int i = 0; i < blocks * run; ++i) expected.push_back(1000 * to + i / run * stride + i % run);
  Memory in(program.kind(), expected.size() * sizeof(int));
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    in.fill(std::vector<int>(expected.size(), -1));
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window));
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Rget(in.data(), blocks * run, MPI_INT, to, 0, 1, gaps, window, &request));
    polite_wait(request);
    CROSSLANE_MPI(MPI_Win_unlock(to, window));
    wrong += in.values<int>() != expected ? 1 : 0;
  }
  CROSSLANE_CHECK(wrong == 0, "{} of {} into {} memory", wrong, rounds, name(in.kind()));
  MPI_Type_free(&gaps);
  polite_barrier();
  CROSSLANE_MPI(MPI_Win_free(&window));
}

}  // namespace

void one_sided_completion(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) return program.skip("MPI_Win_create of host memory fails");
  const Exposed exposed(program, 3);
  by_locking_all(program);
  requests_alone(program);
  with_gaps(program);
  from_gaps(program);
  one_is_gone(program, exposed);
  one_is_gone_at_a_fence(program, exposed);
  flushed_locally(program);
  freed_again(program);
}

// Each thread waits for its own accesses alone, while the others' are in all states.
void one_sided_sharing(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) return program.skip("MPI_Win_create of host memory fails");
  const auto threads = static_cast<int>(program.option("threads", 3));
  const auto rounds = program.option("cases", 150);
  const Exposed exposed(program, threads);
  CROSSLANE_MPI(MPI_Win_lock_all(0, exposed.window()));
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      if (program.device() != nullptr) program.device()->make_current();
      Random local(mix(program.seed, program.rank, thread, 3));
      Memory in(program.kind(local), slot);
      const std::vector<std::byte> blank(slot);
      const auto place = static_cast<MPI_Aint>(thread) * static_cast<MPI_Aint>(slot);
      for (std::int64_t round = 0; round < rounds; ++round) {
        const int to = static_cast<int>(local.below(static_cast<std::uint64_t>(program.size)));
        const std::size_t bytes = 1 + local.below(slot);
        const auto way = local.below(3);
        CROSSLANE_STEP("thread {}, round {}: {} bytes from rank {}, way {}", thread, round, bytes, to, way);
        in.write(blank);
        const int count = static_cast<int>(bytes);
        if (way == 0) {
          MPI_Request request = MPI_REQUEST_NULL;
          CROSSLANE_MPI(MPI_Rget(in.data(), count, MPI_BYTE, to, place, count, MPI_BYTE, exposed.window(), &request));
          polite_wait(request);
        } else {
          CROSSLANE_MPI(MPI_Get(in.data(), count, MPI_BYTE, to, place, count, MPI_BYTE, exposed.window()));
          CROSSLANE_MPI(way == 1 ? MPI_Win_flush(to, exposed.window()) : MPI_Win_flush_all(exposed.window()));
        }
        const auto expected = exposed.contents(to, thread);
        const auto got = in.read();
        CROSSLANE_CHECK(std::equal(got.begin(), got.begin() + count, expected.begin()),
                        "thread {}, round {}: {} bytes from rank {} into {} memory", thread, round, bytes, to,
                        name(in.kind()));
      }
    });
  }
  for (auto& thread : running) thread.join();
  CROSSLANE_MPI(MPI_Win_unlock_all(exposed.window()));
}

}  // namespace crosslane::tests
