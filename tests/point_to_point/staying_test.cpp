// Messages that a kernel reads which stayed from the one before (CROSSLANE_LINGER_US, which is long here): what it brings is right whatever
// comes between two of them, and whoever waits for the GPU gets on. Two ranks, mostly on a GPU each.
//   --cases <n>  random sequences (default 60)
//   --carries 0  none stays; 2: they stay for so short that one may be there for the next message or not (default 1: some are)
#include "support/staying.h"
#include "support/counted.h"
#include "support/linger.h"
#include "support/program.h"
#include "support/sharing.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024, most = 3 * 1024 * kib;

std::int64_t carried_on_all() { return counted_on_all("crosslane_carried_messages"); }

class Staying {
 public:
  explicit Staying(Program& program)
      : program_(program),
        peer_(1 - program.rank),
        send_(MemoryKind::device, most),
        receive_(MemoryKind::device, most) {
    CROSSLANE_MPI(MPI_Type_vector(50, 40, 100, MPI_BYTE, &gaps_));
    CROSSLANE_MPI(MPI_Type_commit(&gaps_));
  }
  ~Staying() { MPI_Type_free(&gaps_); }
  Staying(const Staying&) = delete;
  Staying& operator=(const Staying&) = delete;

  // The same again and again: a kernel stays from the third message on, unless this machine holds up a rank for too long each time.
  void again() {
    one_at_a_time();
    windows();
  }

  // A thread of the program that waits for the GPU all the time: it gets on while messages do.
  void beside_a_waiter() {
    tests::beside_a_waiter(*program_.device(), [&](int round) {
      there_and_back(round % 2 == 0 ? 64 : 20 * kib, 0, 0, mix(program_.seed, round, 3));
    });
  }

  void sequence(std::int64_t number) {
    auto& shared = program_.shared();
    // On both sides of where more thread blocks read, and of the longest that a kernel does.
    const std::size_t bytes =
        shared.pick(std::array<std::size_t, 8>{8, 100, 255, 4 * kib, 8 * kib, 60 * kib, 256 * kib, 2048 * kib}) - 4 +
        shared.below(9);
    const std::size_t from = shared.below(40), to = shared.below(40);
    const auto rounds = shared.between(1, bytes > 100 * kib ? 3 : 12);
    CROSSLANE_STEP("sequence {}: {} messages of {} bytes", number, rounds, bytes);
    for (auto round = rounds; round > 0; --round) {
      there_and_back(bytes, from, to, shared.next());
      if (program_.local().chance(10)) linger(program_.local().below(300));
    }
    between(shared);
  }

 private:
  void one_at_a_time() {
    CROSSLANE_STEP("again and again");
    const std::int64_t before = carried_on_all();
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{3000}, 8 * kib, 100 * kib, 1024 * kib})
      for (int round = 0; round < 60; ++round) there_and_back(bytes, 0, 0, mix(program_.seed, bytes, round));
    // Where ranks share a GPU kernels do not stay.
    const std::int64_t wanted = share_a_gpu(MPI_COMM_WORLD) ? 0 : program_.option("carries", 1);
    CROSSLANE_CHECK(wanted == 2 || (carried_on_all() != before) == (wanted == 1),
                    "whether messages were read by a kernel that had stayed is not as it should be");
  }

  // The same of several at a time: most of a window is there when its first message has been read.
  void windows() {
    CROSSLANE_STEP("windows again and again");
    const std::int64_t before = carried_on_all();
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{3000}, 40 * kib, 150 * kib}) {
      for (int round = 0; round < 30; ++round) {
        const auto ends = round % 3 == 0 ? Ends::one_by_one : Ends::together;
        window(2 + round % 19, bytes, mix(program_.seed, bytes, round), ends);
      }
    }
    // Nor are several kept for such a kernel where ranks share processors.
    const std::int64_t wanted = share_a_gpu(MPI_COMM_WORLD)               ? 0
                                : std::thread::hardware_concurrency() < 2 ? 2
                                                                          : program_.option("carries", 1);
    // A machine that holds up ranks has kernels leave in vain, after which up to 256 calls go by without one.
    constexpr int at_most = 80;
    for (int more = 0; more < at_most && wanted == 1 && carried_on_all() == before; ++more)
      for (int round = 0; round < 25; ++round) window(4, 8, mix(program_.seed, more, round), Ends::together);
    CROSSLANE_CHECK(wanted == 2 || (carried_on_all() != before) == (wanted == 1),
                    "whether messages of windows were read by a kernel that had stayed is not as it should be");
  }

  // From rank 0 to 1, and what came there back.
  void there_and_back(std::size_t bytes, std::size_t from, std::size_t to, std::uint64_t seed) {
    const auto expected = pattern(seed, bytes);
    const auto count = static_cast<int>(bytes);
    // With what is before and behind, which no word may reach.
    std::vector<std::byte> image(to + bytes + 40, std::byte{0x5a});
    receive_.write(image);
    std::ranges::copy(expected, image.begin() + static_cast<std::ptrdiff_t>(to));
    const auto receive = [&] {
      MPI_Status status{};
      CROSSLANE_MPI(MPI_Recv(receive_.as<char>() + to, count + 7, MPI_BYTE, peer_, 0, MPI_COMM_WORLD, &status));
      int got = 0;
      CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &got));
      CROSSLANE_CHECK_EQUAL(got, count);
      CROSSLANE_CHECK(receive_.read(0, image.size()) == image, "{} bytes arrived wrong", bytes);
    };
    if (program_.rank == 0) {
      send_.write(expected, from);
      CROSSLANE_MPI(MPI_Send(send_.as<char>() + from, count, MPI_BYTE, peer_, 0, MPI_COMM_WORLD));
      receive();
    } else {
      receive();
      CROSSLANE_MPI(MPI_Send(receive_.as<char>() + to, count, MPI_BYTE, peer_, 0, MPI_COMM_WORLD));
    }
  }

  // Both ways at once: one message each, or several, of up to so many bytes.
  enum class Ends { together, one_by_one, politely };
  void window(int many, std::size_t most_bytes, std::uint64_t seed, Ends ends) {
    const auto count = static_cast<std::size_t>(many);
    const auto mine = pattern(mix(seed, program_.rank), count * most_bytes);
    auto theirs = pattern(mix(seed, peer_), count * most_bytes);
    send_.write(mine);
    receive_.write(std::vector<std::byte>(count * most_bytes, std::byte{0x5a}));
    std::vector<MPI_Request> requests(2 * count, MPI_REQUEST_NULL);
    Random sizes(seed);
    for (std::size_t i = 0; i < count; ++i) {
      // Mostly of one length.
      const std::size_t bytes = sizes.chance(70) ? most_bytes : sizes.below(most_bytes + 1);
      std::fill(theirs.begin() + static_cast<std::ptrdiff_t>(i * most_bytes + bytes),
                theirs.begin() + static_cast<std::ptrdiff_t>((i + 1) * most_bytes), std::byte{0x5a});
      const auto tag = static_cast<int>(i);
      CROSSLANE_MPI(MPI_Irecv(receive_.as<char>() + i * most_bytes, static_cast<int>(most_bytes), MPI_BYTE, peer_, tag,
                              MPI_COMM_WORLD, &requests[i]));
      CROSSLANE_MPI(MPI_Isend(send_.as<char>() + i * most_bytes, static_cast<int>(bytes), MPI_BYTE, peer_, tag,
                              MPI_COMM_WORLD, &requests[count + i]));
    }
    const auto wait_for_one = [&] {
      int index = 0;
      CROSSLANE_MPI(MPI_Waitany(2 * many, requests.data(), &index, MPI_STATUS_IGNORE));
      return index != MPI_UNDEFINED;
    };
    switch (ends) {
      case Ends::together:
        CROSSLANE_MPI(MPI_Waitall(2 * many, requests.data(), MPI_STATUSES_IGNORE));
        break;
      case Ends::one_by_one:
        while (wait_for_one()) continue;
        break;
      case Ends::politely:
        polite_waitall(requests);
        break;
    }
    CROSSLANE_CHECK(receive_.read(0, count * most_bytes) == theirs, "{} messages of up to {} bytes arrived wrong", many,
                    most_bytes);
  }

  // What else a program does.
  void between(Random& shared) {
    const std::uint64_t seed = shared.next();
    switch (shared.below(8)) {
      case 0:
        window(static_cast<int>(shared.between(2, 9)),
               shared.pick(std::array<std::size_t, 4>{8, 1000, 40 * kib, 300 * kib}), seed,
               shared.pick(std::array{Ends::together, Ends::one_by_one, Ends::politely}));
        break;
      case 4:
        for (auto times = shared.between(1, 6); times > 0; --times)
          window(1, shared.pick(std::array<std::size_t, 4>{8, 1000, 40 * kib, 300 * kib}), mix(seed, times),
                 Ends::together);
        break;
      case 1: {
        // The driver frees memory when the GPU is done with it.
        const Memory passing(MemoryKind::device, 1 + program_.local().below(256 * kib));
        break;
      }
      case 2: {
        // To itself.
        const auto expected = pattern(seed, 5 * kib);
        send_.write(expected);
        CROSSLANE_MPI(MPI_Sendrecv(send_.data(), 5 * kib, MPI_BYTE, program_.rank, 2, receive_.data(), 5 * kib,
                                   MPI_BYTE, program_.rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CROSSLANE_CHECK(receive_.read(0, 5 * kib) == expected, "what was sent to oneself arrived wrong");
        break;
      }
      case 3: {
        // With gaps on one side.
        const auto sent = pattern(mix(seed, program_.rank), 2000), expected = pattern(mix(seed, peer_), 2000);
        send_.write(sent);
        receive_.write(std::vector<std::byte>(5000, std::byte{0x5a}));
        CROSSLANE_MPI(MPI_Sendrecv(send_.data(), 2000, MPI_BYTE, peer_, 3, receive_.data(), 1, gaps_, peer_, 3,
                                   MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        const auto got = receive_.read(0, 5000);
        for (std::size_t at = 0; at < 4940; ++at)
          CROSSLANE_CHECK(got[at] == (at % 100 < 40 ? expected[at / 100 * 40 + at % 100] : std::byte{0x5a}),
                          "byte {} of a buffer with gaps", at);
        break;
      }
      default:
        break;
    }
  }

  Program& program_;
  const int peer_;
  Memory send_, receive_;
  MPI_Datatype gaps_ = MPI_DATATYPE_NULL;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  return crosslane::tests::run_staying<crosslane::tests::Staying>(argc, argv, "point_to_point_staying", 60);
}
