// Messages that their sender writes to where they belong (CROSSLANE_PUT_BYTES, which is small here): they are right, with whatever lies around
// them, whoever of the two waits, comes late, or leaves its message alone. Two ranks, mostly on a GPU each.
//   --cases <n>   random sequences (default 60)
//   --writes 0    none is written; 2: some may be or not, and any may come through the host (default 1: some are)
//   --alone 1     instead messages whose receiver leaves them alone, for senders that wait as long as it takes
//   --left 1      instead messages that are asked for, and then left alone by both; and memory that is freed while its receiver waits for more
//   --full 1      instead messages whose sender's GPU has no room for kernels, which CUDA_DEVICE_MAX_CONNECTIONS=1 is needed for
#include "support/counted.h"
#include "support/linger.h"
#include "support/program.h"
#include "support/shared_word.h"
#include "support/sharing.h"

#include <pthread.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

std::atomic<int>* aside = nullptr;  // a word that counts down when a thread is

// A thread that is put aside wherever it is.
void sleep_here(int) {
  timespec rest{0, 30'000'000};
  aside->fetch_sub(1);
  while (nanosleep(&rest, &rest) != 0) {}
}

// Or until that word is 0 again; but not for ever, which is too long for any check.
std::atomic<bool> overslept{false};
void sleep_until_woken(int) {
  aside->store(-1);
  for (int naps = 0; aside->load() != 0; ++naps) {
    if (naps == 20'000) return overslept.store(true);
    const timespec rest{0, 1'000'000};
    nanosleep(&rest, nullptr);
  }
}

// Or it takes far too long.
template <class Done>
void until(Done&& done, std::chrono::milliseconds most = std::chrono::seconds{30}) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!done() && std::chrono::steady_clock::now() < end) linger(500);
}

/// While one lives, nothing begins that is enqueued behind it on that stream. Without a stream: on any of this rank's GPU, where that has one hardware
/// queue (CUDA_DEVICE_MAX_CONNECTIONS), in which something stands behind a host function.
class Blocked {
 public:
  Blocked() {
    int least = 0, greatest = 0;
    CROSSLANE_CUDA(cuCtxGetStreamPriorityRange(&least, &greatest));
    CROSSLANE_CUDA(cuStreamCreateWithPriority(&own_, CU_STREAM_NON_BLOCKING, greatest));
    CROSSLANE_CUDA(cuMemAlloc(&behind_, 1));
    block(own_);
    CROSSLANE_CUDA(cuMemsetD8Async(behind_, 0, 1, own_));
  }
  explicit Blocked(CUstream stream) { block(stream); }
  ~Blocked() {
    over_.store(true);
    CROSSLANE_CUDA(cuStreamSynchronize(stream_));
    if (own_ == nullptr) return;
    CROSSLANE_CUDA(cuStreamDestroy(own_));
    CROSSLANE_CUDA(cuMemFree(behind_));
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  void block(CUstream stream) {
    stream_ = stream;
    CROSSLANE_CUDA(cuLaunchHostFunc(
        stream_,
        [](void* over) {
          while (!static_cast<std::atomic<bool>*>(over)->load())
            std::this_thread::sleep_for(std::chrono::milliseconds{1});
        },
        &over_));
  }

  CUstream own_ = nullptr, stream_ = nullptr;
  CUdeviceptr behind_ = 0;
  std::atomic<bool> over_{false};
};

constexpr std::size_t kib = 1024, most = 2048 * kib, guard = 64;
constexpr int window = 6;
// More than is read and written at a time: the last ones are held.
constexpr int long_window = 16;

class Put {
 public:
  explicit Put(Program& program)
      : program_(program),
        peer_(1 - program.rank),
        send_(MemoryKind::device, long_window * most),
        receive_(MemoryKind::device, long_window * (most + guard) + guard) {}

  // The same again and again, one way or both: both wait at once, so that one is asked, unless this machine holds up the ranks for too long each time.
  void again() {
    CROSSLANE_STEP("again and again");
    for (const std::size_t bytes : {2 * kib, 100 * kib, 1024 * kib})
      for (int round = 0; round < 30; ++round) exchange(3, bytes, round % 3, mix(program_.seed, bytes, round));
  }

  // Of which some are read, some are written, and others are held until it is their turn.
  void long_windows() {
    CROSSLANE_STEP("long windows");
    until_counted("crosslane_held_messages", "held until others were over", [&](int round) {
      for (int sender = 0; sender <= both_send; ++sender)
        exchange(long_window, most, sender, mix(program_.seed, round, 82 + sender));
    });
  }

  void again_until_written() {
    until_counted("crosslane_written_messages", "written by their senders", [&](int) { again(); });
  }

  // The sender is put aside while it waits, for as long as the receiver does: that does not wait for it for long.
  void sender_is_aside() {
    CROSSLANE_STEP("the sender is aside");
    const SharedWord shared(program_.rank);  // -1: the sender is put aside; 0 again: all is there
    auto& word = *shared;
    aside = &word;
    std::signal(SIGUSR2, sleep_until_woken);
    const pthread_t here = pthread_self();
    constexpr int many = long_window;
    until_counted("crosslane_taken_back_messages", "read after all", [&](int round) {
      prepare(many, most, 0, mix(program_.seed, round, 90));
      std::vector<MPI_Request> requests(many, MPI_REQUEST_NULL);
      if (program_.rank == 0) {
        receive_each(many, most, requests.data());
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        until([&] { return word.load() != 0; });
        CROSSLANE_MPI(MPI_Waitall(many, requests.data(), MPI_STATUSES_IGNORE));
        check(many, most);
        word.store(0);
      } else {
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        send_each(many, most, requests.data());
        std::thread pause = put_aside_soon(here);
        CROSSLANE_MPI(MPI_Waitall(many, requests.data(), MPI_STATUSES_IGNORE));
        pause.join();
      }
      CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
    });
    CROSSLANE_CHECK(!overslept.load(), "the receiver waits until its sender goes on");
  }

  // The sender's GPU has no room for kernels, and will have none before the messages are there; as far as can be told: a real one may find some.
  void sender_has_no_room() {
    CROSSLANE_STEP("the sender's GPU has no room");
    const auto play = [&](int round) {
      prepare(long_window, most, 0, mix(program_.seed, round, 91));
      std::optional<Blocked> blocked;
      if (program_.rank == 1) blocked.emplace();
      CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
      pass(long_window, most, 1);
      CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
    };
    if (gpus_are_emulated())
      until_counted("crosslane_taken_back_messages", "read after all", play);
    else
      for (int round = 0; round < 5; ++round) play(round);
  }

  // What a receiver finds in passing arrives although it never comes back: this one looks at its memory alone. It begins all that there is where it
  // came back the last time after the end of what was under way: not each time, as the words that tell of the payloads come behind them.
  void left_alone() {
    const std::size_t bytes = 1024 * kib;
    int arrived = 0;
    for (int round = 0; round < 10; ++round) {
      CROSSLANE_STEP("left alone, round {}", round);
      prepare(window, bytes, 0, mix(program_.seed, round, 77));
      std::vector<MPI_Request> requests(2 * window);
      const auto send = [&] { send_each(window, bytes, requests.data() + window); };
      receive_each(window, bytes, requests.data());
      if (program_.rank != 0) send();
      CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
      if (program_.rank == 0) {
        send();  // each of these looks for what has come
        const auto all_there = [&] { return receive_.read(0, expected_.size()) == expected_; };
        until(all_there, std::chrono::seconds{1});
        arrived += all_there() ? 1 : 0;
        linger(20000);
      }
      CROSSLANE_MPI(MPI_Waitall(2 * window, requests.data(), MPI_STATUSES_IGNORE));
      check(window, bytes);
    }
    CROSSLANE_CHECK(program_.rank != 0 || arrived != 0, "nothing arrives while its receiver is away");
  }

  // Each learns that the other one reaches its memory.
  void meet() {
    Memory little(MemoryKind::device, 8 * kib);
    for (int i = 0; i < 3; ++i)
      CROSSLANE_MPI(MPI_Sendrecv(little.data(), 4 * kib, MPI_BYTE, peer_, 0, little.as<char>() + 4 * kib, 4 * kib,
                                 MPI_BYTE, peer_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }

  // Each of many comes from memory of its own that its sender frees once it is over, and that may come again at that address: what the receiver,
  // who waits for the last one or only posts them, still held of it would keep it from opening the next one, and after several it would read no more.
  void freed_and_reused(bool waits) {
    CROSSLANE_STEP("freed and reused, {}", waits ? "waiting" : "posting");
    constexpr int many = 11;
    const std::size_t bytes = 1024 * kib;
    prepare(many, bytes, 0, mix(program_.seed, waits, 81));
    const SharedWord shared(program_.rank);  // how many sends have begun
    auto& begun = *shared;
    if (program_.rank == 0) {
      std::vector<MPI_Request> requests;
      for (int i = 0; i < many; ++i) {
        CROSSLANE_MPI(MPI_Irecv(target(i, bytes, 0), static_cast<int>(bytes), MPI_BYTE, 1, i, MPI_COMM_WORLD,
                                &requests.emplace_back()));
        if (waits) continue;
        until([&] { return begun.load() > i; });
        linger(5000);  // the next one of these calls sees it
      }
      CROSSLANE_MPI(MPI_Wait(&requests.back(), MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Waitall(many, requests.data(), MPI_STATUSES_IGNORE));
      check(many, bytes);
    } else {
      for (int i = 0; i < many; ++i) {
        Memory memory(MemoryKind::device, bytes);
        memory.write(send_.read(static_cast<std::size_t>(i) * bytes, bytes));
        MPI_Request request = MPI_REQUEST_NULL;
        CROSSLANE_MPI(MPI_Isend(memory.data(), static_cast<int>(bytes), MPI_BYTE, 0, i, MPI_COMM_WORLD, &request));
        begun.store(i + 1);
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      }
    }
  }

  // The receiver asks for some of the long ones while the sender waits, but is put aside, and goes when a word of the host's is there; then so does the
  // sender. The long ones arrive all the same, though neither comes back before; nor is there room on the sender's GPU meanwhile, if `full`.
  void left_by_both(int rounds, int many, std::size_t bytes, bool full = false) {
    const SharedWord shared(program_.rank);  // -1: the sender is put aside; 0 again: all is there
    auto& word = *shared;
    aside = &word;
    std::signal(SIGUSR2, sleep_here);
    const pthread_t here = pthread_self();
    for (int round = 0; round < rounds; ++round) {
      CROSSLANE_STEP("left by both, {} messages, {}, round {}", many, full ? "no room" : "room", round);
      prepare(many, bytes, 0, mix(program_.seed, round, 80));
      std::optional<Blocked> blocked;
      if (full && program_.rank == 1) blocked.emplace();
      std::vector<MPI_Request> requests(static_cast<std::size_t>(many) + 1, MPI_REQUEST_NULL);
      char token = 0, after = 0;
      int index = 0;
      if (program_.rank == 0) {
        receive_each(many, bytes, requests.data());
        CROSSLANE_MPI(MPI_Irecv(&token, 1, MPI_CHAR, 1, many, MPI_COMM_WORLD, &requests.back()));
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        // What was sent before is known to MPI then.
        CROSSLANE_MPI(MPI_Recv(&after, 1, MPI_CHAR, 1, many + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        until([&] { return word.load() != 0; });
        CROSSLANE_MPI(MPI_Waitany(many + 1, requests.data(), &index, MPI_STATUS_IGNORE));
        until([&] { return receive_.read(0, expected_.size()) == expected_; });
        check(many, bytes);
        word.store(0);
      } else {
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        send_each(many, bytes, requests.data());
        CROSSLANE_MPI(MPI_Send(&after, 1, MPI_CHAR, 0, many + 1, MPI_COMM_WORLD));
        CROSSLANE_MPI(MPI_Issend(&token, 1, MPI_CHAR, 0, many, MPI_COMM_WORLD, &requests.back()));
        std::thread pause = put_aside_soon(here);
        CROSSLANE_MPI(MPI_Waitany(many + 1, requests.data(), &index, MPI_STATUS_IGNORE));
        pause.join();
        until([&] { return word.load() == 0; });
      }
      CROSSLANE_MPI(MPI_Waitall(many + 1, requests.data(), MPI_STATUSES_IGNORE));
    }
  }

  // Rank 0 begins to read a long one alone while it waits for something else, which may be over first; then it sits in a call of MPI's own until
  // the sender knows that it was read.
  void another_is_over_first() {
    const std::size_t bytes = window * most, few = 1000;
    for (int round = 0; round < 20; ++round) {
      CROSSLANE_STEP("another is over first, round {}", round);
      prepare(1, bytes, 0, mix(program_.seed, round, 78));
      Memory little(MemoryKind::device, few);
      char word = 0;
      MPI_Request request = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
      if (program_.rank == 0) {
        CROSSLANE_MPI(
            MPI_Irecv(target(0, bytes, 0), static_cast<int>(bytes), MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request));
        CROSSLANE_MPI(MPI_Isend(little.data(), few, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &other));
        CROSSLANE_MPI(MPI_Wait(&other, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Recv(&word, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        check(1, bytes);
      } else {
        CROSSLANE_MPI(MPI_Isend(source(0, bytes), static_cast<int>(bytes), MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request));
        linger(program_.local().below(2000));
        CROSSLANE_MPI(MPI_Recv(little.data(), few, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Send(&word, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD));
      }
    }
  }

  // The same where the call that waits goes on inside MPI, which alone can complete the last of what it waits for: nothing is looked at there.
  void waits_inside_mpi() {
    const std::size_t bytes = window * most, few = 1000;
    Memory little(MemoryKind::device, few);
    MPI_Request persistent = MPI_REQUEST_NULL;
    if (program_.rank == 0)
      CROSSLANE_MPI(MPI_Recv_init(little.data(), few, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &persistent));
    for (int round = 0; round < 20; ++round) {
      CROSSLANE_STEP("waits inside MPI, round {}", round);
      prepare(1, bytes, 0, mix(program_.seed, round, 79));
      char word = 0;
      MPI_Request request = MPI_REQUEST_NULL;
      if (program_.rank == 0) {
        CROSSLANE_MPI(
            MPI_Irecv(target(0, bytes, 0), static_cast<int>(bytes), MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request));
        CROSSLANE_MPI(MPI_Start(&persistent));
        std::array<MPI_Request, 2> both{persistent, MPI_REQUEST_NULL};
        CROSSLANE_MPI(MPI_Irecv(&word, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &both[1]));
        CROSSLANE_MPI(MPI_Waitall(2, both.data(), MPI_STATUSES_IGNORE));
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        check(1, bytes);
      } else {
        CROSSLANE_MPI(MPI_Isend(source(0, bytes), static_cast<int>(bytes), MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request));
        linger(program_.local().below(2000));
        CROSSLANE_MPI(MPI_Send(little.data(), few, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
        CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Send(&word, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD));
      }
    }
    if (program_.rank == 0) CROSSLANE_MPI(MPI_Request_free(&persistent));
  }

  // Of several that are found together one is for memory that MPI sees for the first time, and has to wait for what the application has enqueued on
  // its default streams. The others have not, nor what comes after them.
  void waits_for_nobody_else() {
    const std::size_t bytes = 100 * kib;
    constexpr int groups = 4, of_each = 2, many = groups * of_each;
    const SharedWord shared(program_.rank);  // so many groups are sent
    auto& word = *shared;
    for (int round = 0; round < 3; ++round) {
      CROSSLANE_STEP("waits for nobody else, round {}", round);
      prepare(many, bytes, 0, mix(program_.seed, round, 92));
      std::vector<MPI_Request> requests(many, MPI_REQUEST_NULL);
      const auto group = [&](int g) {
        return std::span(requests).subspan(static_cast<std::size_t>(g * of_each), of_each);
      };
      if (program_.rank == 0) {
        Memory fresh(MemoryKind::device, bytes);
        std::optional<Blocked> blocked(CU_STREAM_LEGACY);
        for (int i = 0; i < many; ++i)
          CROSSLANE_MPI(MPI_Irecv(i == 0 ? fresh.data() : target(i, bytes, 0), static_cast<int>(bytes), MPI_BYTE, 1, i,
                                  MPI_COMM_WORLD, &requests[static_cast<std::size_t>(i)]));
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int g = 0; g < groups; ++g) {
          until([&] { return word.load() > g; });
          if (g != 0) {
            CROSSLANE_MPI(MPI_Waitall(of_each, group(g).data(), MPI_STATUSES_IGNORE));
            continue;
          }
          int index = 0;
          CROSSLANE_MPI(MPI_Waitany(of_each, group(g).data(), &index, MPI_STATUS_IGNORE));
          CROSSLANE_CHECK(index == 1, "what waits for a default stream arrives before that goes on");
        }
        blocked.reset();
        CROSSLANE_MPI(MPI_Waitall(many, requests.data(), MPI_STATUSES_IGNORE));
        receive_.write(fresh.read(), place(0, bytes, 0));
        check(many, bytes);
        word.store(0);
      } else {
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = 0; i < many; ++i) {
          CROSSLANE_MPI(MPI_Isend(source(i, bytes), static_cast<int>(bytes), MPI_BYTE, 0, i, MPI_COMM_WORLD,
                                  &requests[static_cast<std::size_t>(i)]));
          if (i % of_each != of_each - 1) continue;
          word.store(i / of_each + 1);
          if (i / of_each != 0) CROSSLANE_MPI(MPI_Waitall(of_each, group(i / of_each).data(), MPI_STATUSES_IGNORE));
        }
        CROSSLANE_MPI(MPI_Waitall(many, requests.data(), MPI_STATUSES_IGNORE));
      }
    }
  }

  void sequence(std::int64_t number) {
    auto& shared = program_.shared();
    const std::size_t bytes =
        shared.pick(std::array<std::size_t, 6>{1000, 4 * kib, 60 * kib, 256 * kib, 1024 * kib, 2048 * kib}) - 4 +
        shared.below(5);
    const std::size_t off = shared.below(40);
    const int how = static_cast<int>(shared.below(6)), many = bytes > 300 * kib ? 2 : window;
    const int sender = how == 0 || how == 4 ? both_send : static_cast<int>(shared.below(3));
    CROSSLANE_STEP("sequence {}: {} bytes, way {}, sender {}", number, bytes, how, sender);
    const auto seed = shared.next();
    auto& local = program_.local();
    const auto late = [&] {
      if (local.chance(40)) linger(local.below(300));
    };
    prepare(many, bytes, off, seed);
    std::vector<MPI_Request> receives(static_cast<std::size_t>(many), MPI_REQUEST_NULL), sends = receives;
    const auto receive = [&](int i) {
      if (!receives_from(sender)) return;
      CROSSLANE_MPI(MPI_Irecv(target(i, bytes, off), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD,
                              &receives[static_cast<std::size_t>(i)]));
    };
    const auto send = [&](int i) {
      if (!sends_as(sender)) return;
      CROSSLANE_MPI(MPI_Isend(source(i, bytes), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD,
                              &sends[static_cast<std::size_t>(i)]));
    };
    switch (how) {
      case 0:
        // One after the other, there and back.
        for (int i = 0; i < many; ++i) {
          late();
          const auto there = [&] {
            CROSSLANE_MPI(MPI_Send(source(i, bytes), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD));
          };
          if (program_.rank == 0) there();
          CROSSLANE_MPI(MPI_Recv(target(i, bytes, off), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE));
          if (program_.rank != 0) there();
        }
        break;
      case 1:
        for (int i = 0; i < many; ++i) receive(i);
        late();
        for (int i = 0; i < many; ++i) send(i);
        polite_waitall(receives);
        polite_waitall(sends);
        break;
      case 2:
        // One side waits for one of them at a time, the other one for all.
        for (int i = 0; i < many; ++i) send(i);
        for (int i = many; i-- > 0;) receive(i);
        late();
        if (program_.rank == 0) {
          for (int i = 0; i < many; ++i) {
            int index = 0;
            CROSSLANE_MPI(MPI_Waitany(many, receives.data(), &index, MPI_STATUS_IGNORE));
            late();
          }
          CROSSLANE_MPI(MPI_Waitall(many, sends.data(), MPI_STATUSES_IGNORE));
        } else {
          std::vector<MPI_Request> all(receives);
          all.insert(all.end(), sends.begin(), sends.end());
          CROSSLANE_MPI(MPI_Waitall(2 * many, all.data(), MPI_STATUSES_IGNORE));
        }
        break;
      case 3:
        // Asked for, perhaps, while it waits for another one; then both sit in a call of MPI's own.
        for (int i = 0; i < many; ++i) receive(i);
        for (int i = 0; i < many; ++i) send(i);
        CROSSLANE_MPI(MPI_Wait(&receives[0], MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
        CROSSLANE_MPI(MPI_Waitall(many, receives.data(), MPI_STATUSES_IGNORE));
        CROSSLANE_MPI(MPI_Waitall(many, sends.data(), MPI_STATUSES_IGNORE));
        break;
      case 4:
        // Its sender blocks, its receiver has started and sits in a barrier.
        if (program_.rank == 0) {
          for (int i = 0; i < many; ++i)
            CROSSLANE_MPI(MPI_Ssend(source(i, bytes), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD));
          CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
          for (int i = 0; i < many; ++i) receive(i);
          CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
          CROSSLANE_MPI(MPI_Waitall(many, receives.data(), MPI_STATUSES_IGNORE));
        } else {
          for (int i = 0; i < many; ++i) receive(i);
          late();
          CROSSLANE_MPI(MPI_Wait(&receives[0], MPI_STATUS_IGNORE));
          CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
          CROSSLANE_MPI(MPI_Waitall(many, receives.data(), MPI_STATUSES_IGNORE));
          CROSSLANE_MPI(MPI_Barrier(MPI_COMM_WORLD));
          for (int i = 0; i < many; ++i)
            CROSSLANE_MPI(MPI_Send(source(i, bytes), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD));
        }
        break;
      default:
        // Tested, not waited for, on one side.
        for (int i = 0; i < many; ++i) receive(i);
        for (int i = 0; i < many; ++i) send(i);
        if (program_.rank == 0) {
          for (int over = 0; over == 0;) CROSSLANE_MPI(MPI_Testall(many, sends.data(), &over, MPI_STATUSES_IGNORE));
          CROSSLANE_MPI(MPI_Waitall(many, receives.data(), MPI_STATUSES_IGNORE));
        } else {
          CROSSLANE_MPI(MPI_Waitall(many, receives.data(), MPI_STATUSES_IGNORE));
          late();
          CROSSLANE_MPI(MPI_Waitall(many, sends.data(), MPI_STATUSES_IGNORE));
        }
    }
    if (receives_from(sender)) check(many, bytes);
    // Memory that was written to goes, and comes again, perhaps at its address.
    if (shared.chance(10)) receive_ = Memory(MemoryKind::device, receive_.size());
  }

 private:
  // One rank sends, or each of them does.
  static constexpr int both_send = 2;
  [[nodiscard]] bool sends_as(int sender) const { return sender == both_send || sender == program_.rank; }
  [[nodiscard]] bool receives_from(int sender) const { return sender == both_send || sender == peer_; }
  // A window of messages, for which all wait.
  void exchange(int many, std::size_t bytes, int sender, std::uint64_t seed) {
    prepare(many, bytes, 0, seed);
    pass(many, bytes, sender);
  }
  void pass(int many, std::size_t bytes, int sender) {
    const std::size_t each = static_cast<std::size_t>(many), received = receives_from(sender) ? each : 0;
    std::vector<MPI_Request> requests(received + (sends_as(sender) ? each : 0));
    if (receives_from(sender)) receive_each(many, bytes, requests.data());
    if (sends_as(sender)) send_each(many, bytes, requests.data() + received);
    CROSSLANE_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    if (receives_from(sender)) check(many, bytes);
  }
  // Begins all of them, with so many requests.
  void receive_each(int many, std::size_t bytes, MPI_Request* requests) const {
    for (int i = 0; i < many; ++i)
      CROSSLANE_MPI(
          MPI_Irecv(target(i, bytes, 0), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD, requests + i));
  }
  void send_each(int many, std::size_t bytes, MPI_Request* requests) const {
    for (int i = 0; i < many; ++i)
      CROSSLANE_MPI(
          MPI_Isend(source(i, bytes), static_cast<int>(bytes), MPI_BYTE, peer_, i, MPI_COMM_WORLD, requests + i));
  }
  // Most likely in what that thread waits for next.
  [[nodiscard]] static std::thread put_aside_soon(pthread_t thread) {
    return std::thread([thread] {
      linger(3000);
      pthread_kill(thread, SIGUSR2);
    });
  }

  // Once, and then until one of these messages is counted so: for that both have to wait at once, and this machine may hold up either. None is where
  // ranks share a GPU, or no messages are to be written.
  template <class Round>
  void until_counted(const char* counter, const char* what, Round&& play) {
    const std::int64_t wanted = share_a_gpu(MPI_COMM_WORLD) ? 0 : program_.option("writes", 1);
    const std::int64_t before = counted_on_all(counter);
    bool counted = false;
    for (int round = 0; round == 0 || (round < 100 && wanted == 1 && !counted); ++round) {
      play(round);
      counted = counted_on_all(counter) != before;
    }
    CROSSLANE_CHECK(wanted == 2 || counted == (wanted == 1), "whether messages were {} is not as it should be", what);
  }

  [[nodiscard]] char* source(int i, std::size_t bytes) const {
    return send_.as<char>() + static_cast<std::size_t>(i) * bytes;
  }
  [[nodiscard]] static std::size_t place(int i, std::size_t bytes, std::size_t off) {
    return guard + off + static_cast<std::size_t>(i) * (bytes + guard);
  }
  [[nodiscard]] char* target(int i, std::size_t bytes, std::size_t off) const {
    return receive_.as<char>() + place(i, bytes, off);
  }

  // Messages to be sent, and what is to lie here when theirs have come, which no word around them may have changed.
  void prepare(int many, std::size_t bytes, std::size_t off, std::uint64_t seed) {
    const auto content = [&](int rank) {
      std::vector<std::byte> made(static_cast<std::size_t>(many) * bytes);
      Noise noise(mix(seed, rank));
      for (auto& byte : made) byte = static_cast<std::byte>(noise.next());
      return made;
    };
    send_.write(content(program_.rank));
    expected_.assign(place(many, bytes, off), std::byte{0x5a});
    receive_.write(expected_);
    const auto theirs = content(peer_);
    for (int i = 0; i < many; ++i)
      std::copy_n(theirs.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * bytes), bytes,
                  expected_.begin() + static_cast<std::ptrdiff_t>(place(i, bytes, off)));
  }

  void check(int many, std::size_t bytes) {
    CROSSLANE_CHECK(receive_.read(0, expected_.size()) == expected_, "{} messages of {} bytes arrived wrong", many,
                    bytes);
  }

  Program& program_;
  const int peer_;
  Memory send_, receive_;
  std::vector<std::byte> expected_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_put");
  {
    Put put(program);
    if (program.option("alone", 0) != 0) {
      put.again();
      // Where ranks take turns on a GPU such messages go through the host, from which the receiver takes them itself.
      if (!take_turns(MPI_COMM_WORLD)) put.left_alone();
      return program.finish();
    }
    if (program.option("left", 0) != 0) {
      put.meet();
      // Where ranks take turns on a GPU such messages go through the host, which needs both.
      const bool direct = !take_turns(MPI_COMM_WORLD);
      put.freed_and_reused(true);
      if (direct) put.freed_and_reused(false);
      put.again_until_written();
      if (direct) {
        put.left_by_both(10, 2, 1024 * kib);
        put.left_by_both(3, long_window, most);
        put.sender_is_aside();
      }
      return program.finish();
    }
    if (program.option("full", 0) != 0) {
      put.meet();
      put.again_until_written();
      // Where ranks take turns on a GPU such messages go through the host, by copies that their sender's GPU makes.
      if (!take_turns(MPI_COMM_WORLD)) {
        put.sender_has_no_room();
        put.left_by_both(3, long_window, most, true);
      }
      put.again_until_written();
      return program.finish();
    }
    put.again_until_written();
    put.long_windows();
    // Where ranks take turns on a GPU, or cannot open each other's memory, such messages go through the host: what is first seen is waited for in the
    // call that begins or completes its message.
    const bool may_be_staged = take_turns(MPI_COMM_WORLD) || program.option("writes", 1) == 2;
    if (!may_be_staged) put.waits_for_nobody_else();
    put.another_is_over_first();
    put.waits_inside_mpi();
    const std::int64_t cases = program.option("cases", 60);
    for (std::int64_t i = 0; i < cases; ++i) put.sequence(i);
  }
  return program.finish();
}
