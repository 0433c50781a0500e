// Under CROSSLANE_CHECK=1: ranks that call a collective with different arguments are told which, whatever differs and whoever comes
// first; no data moves, and the communicator works afterwards. It must not know Crosslane's sources.
#include "support/linger.h"
#include "support/program.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr int most = 5000;

class Test {
 public:
  explicit Test(Program& program)
      : program_(program),
        odd_(static_cast<int>(program.shared().below(static_cast<std::uint64_t>(program.size)))),
        send_(MemoryKind::device, buffer_bytes()),
        receive_(MemoryKind::device, buffer_bytes()) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Op_create(
        [](void* in, void* inout, int* count, MPI_Datatype*) {
          for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
        },
        1, &own_);
    // Until such calls go direct everywhere.
    for (int i = 0; i < 6; ++i) works();
  }
  ~Test() {
    MPI_Op_free(&own_);
    MPI_Comm_free(&comm_);
  }
  Test(const Test&) = delete;
  Test& operator=(const Test&) = delete;

  void run() {
    const bool odd = program_.rank == odd_;
    differs("bytes", [&] { return reduce(odd ? 100 : 101, MPI_INT, MPI_SUM); }, "\"400\"", "\"404\"");
    differs("bytes", [&] { return reduce(odd ? 0 : 7, MPI_INT, MPI_SUM); }, "\"0\"", "\"28\"");
    differs("op", [&] { return reduce(100, MPI_INT, odd ? MPI_MAX : MPI_SUM); }, "\"max\"", "\"sum\"");
    differs("op", [&] { return reduce(100, MPI_INT, odd ? own_ : MPI_SUM); }, "application's own", "\"sum\"");
    differs("datatype", [&] { return reduce(100, odd ? MPI_FLOAT : MPI_INT, MPI_SUM); }, "\"f32\"", "\"i32\"");
    differs("root", [&] { return MPI_Bcast(receive_.data(), most, MPI_INT, odd ? 1 : 0, comm_); }, "\"1\"", "\"0\"");
    differs(
        "collective",
        [&] { return odd ? MPI_Bcast(receive_.data(), 100, MPI_INT, 0, comm_) : reduce(100, MPI_INT, MPI_SUM); },
        "\"broadcast\"", "\"allreduce\"");
    differs(
        "bytes",
        [&] {
          return MPI_Gather(send_.data(), odd ? 9 : 10, MPI_INT, receive_.data(), odd ? 9 : 10, MPI_INT, 0, comm_);
        },
        "\"36\"", "\"40\"");
    blocks();
    // Alike, but for the host: nothing to tell.
    CROSSLANE_STEP("an operation of the application's own");
    send_.fill(std::vector<int>(most, 2));
    CROSSLANE_MPI(reduce(most, MPI_INT, own_));
    CROSSLANE_CHECK_EQUAL(receive_.values<int>()[most - 1], 2 * program_.size);
    works();
  }

 private:
  // Of different sizes, which only a pair of ranks, or all, must see alike.
  void blocks() {
    const bool odd = program_.rank == odd_;
    const auto n = static_cast<std::size_t>(program_.size);
    std::string fives = "20", sixes = "24";
    for (std::size_t rank = 1; rank < n; ++rank) {
      fives += " 20";
      sixes += " 20";
    }
    std::vector<int> shares(n, 5);
    if (odd) shares[0] = 6;
    differs(
        "bytes of the blocks",
        [&] { return MPI_Reduce_scatter(send_.data(), receive_.data(), shares.data(), MPI_INT, MPI_SUM, comm_); },
        "\"" + sixes + "\"", "\"" + fives + "\"");
    const std::vector<int> sent(n, odd ? 3 : 2), got(n, 2);
    std::vector<int> places(n);
    for (std::size_t rank = 0; rank < n; ++rank) places[rank] = 3 * static_cast<int>(rank);
    fails(
        [&] {
          return MPI_Alltoallv(send_.data(), sent.data(), places.data(), MPI_INT, receive_.data(), got.data(),
                               places.data(), MPI_INT, comm_);
        },
        {fmt::format("rank {} sends 12 bytes to rank 0, which expects 8", odd_), "MPI_Alltoallv"});
    fails(
        [&] {
          return MPI_Allgatherv(send_.data(), odd ? 1 : 2, MPI_INT, receive_.data(), got.data(), places.data(), MPI_INT,
                                comm_);
        },
        {fmt::format("rank {} sends 4 bytes to rank 0, which expects 8", odd_), "MPI_Allgatherv"});
    along_edges();
  }

  // In a ring, between neighbours alone.
  void along_edges() {
    MPI_Comm ring = MPI_COMM_NULL;
    const int periodic = 1;
    CROSSLANE_MPI(MPI_Cart_create(MPI_COMM_WORLD, 1, &program_.size, &periodic, 0, &ring));
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    constexpr std::array<int, 2> two{2, 2}, three{3, 3}, places{0, 3};
    const auto exchange = [&](const std::array<int, 2>& sent) {
      return MPI_Neighbor_alltoallv(send_.data(), sent.data(), places.data(), MPI_INT, receive_.data(), two.data(),
                                    places.data(), MPI_INT, ring);
    };
    for (int i = 0; i < 6; ++i) CROSSLANE_MPI(exchange(two));
    const bool odd = program_.rank == odd_;
    const int next = (odd_ + 1) % program_.size, before = (odd_ + program_.size - 1) % program_.size;
    fails([&] { return exchange(odd ? three : two); },
          {fmt::format("rank {} sends 12 bytes to rank {}, which expects 8", odd_, std::min(next, before)),
           "MPI_Neighbor_alltoallv"});
    const std::vector<int> none(static_cast<std::size_t>(program_.size));
    differs(
        "collective",
        [&] {
          if (!odd) return exchange(two);
          return MPI_Alltoallv(send_.data(), none.data(), none.data(), MPI_INT, receive_.data(), none.data(),
                               none.data(), MPI_INT, ring);
        },
        "\"alltoallv\"", "\"neighbourhood alltoallv\"");
    CROSSLANE_MPI(exchange(two));
    CROSSLANE_MPI(MPI_Comm_free(&ring));
  }

  [[nodiscard]] std::size_t buffer_bytes() const {
    return most * sizeof(int) * static_cast<std::size_t>(program_.size);
  }

  int reduce(int count, MPI_Datatype type, MPI_Op op) {
    return MPI_Allreduce(send_.data(), receive_.data(), count, type, op, comm_);
  }

  void works() {
    CROSSLANE_STEP("a reduction that is right");
    send_.fill(std::vector<int>(most, program_.rank + 1));
    receive_.fill(std::vector<int>(most, -1));
    CROSSLANE_MPI(reduce(most, MPI_INT, MPI_SUM));
    CROSSLANE_CHECK_EQUAL(receive_.values<int>()[most - 1], program_.size * (program_.size + 1) / 2);
  }

  // `call` must fail on all ranks, with a message that names what differs, both values and who has which; and touch nothing.
  void differs(const std::string& what, const std::function<int()>& call, const std::string& mine,
               const std::string& others) {
    CROSSLANE_STEP("{}: {} on rank {}, {} on the others", what, mine, odd_, others);
    fails(call, {what + " is ", mine, others, fmt::format("on rank {}", odd_), "MPI_"});
  }

  // The same of any message.
  void fails(const std::function<int()>& call, const std::vector<std::string>& words) {
    receive_.fill(std::vector<int>(most, -7));
    // In another order each time.
    linger(program_.local().below(2000));
    const int code = call();
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    CROSSLANE_CHECK_EQUAL(error_class, MPI_ERR_ARG);
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    const std::string told(text.data(), static_cast<std::size_t>(length));
    for (const std::string& word : words)
      CROSSLANE_CHECK(told.find(word) != std::string::npos, "no {} in: {}", word, told);
    const auto values = receive_.values<int>();
    CROSSLANE_CHECK(std::ranges::all_of(values.begin(), values.begin() + most, [](int value) { return value == -7; }),
                    "the buffer was written");
    works();
  }

  Program& program_;
  int odd_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Op own_ = MPI_OP_NULL;
  Memory send_, receive_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "direct_check");
  { Test(program).run(); }
  return program.finish();
}
