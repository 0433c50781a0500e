// Enqueued reduces, gathers and scatters whose root alone knows where the whole is or belongs: in one of many buffers that all have mapped,
// at any offset, or in none of them; root after root, without a wait in between, and in graphs. The ranks' parts lie in a mapped buffer at
// one place on all ranks, on some, on none, or at places of their own.
//   --rounds <n>   --most <n>  words of a call   --reduce <name>  the algorithm by which reduces must go
#include "native/enqueued.h"

#include <crosslane/crosslane.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t word = sizeof(std::uint32_t);
constexpr std::size_t most_offset = 64;  // bytes

using Words = std::vector<std::uint32_t>;

struct Call {
  Kind kind;
  bool in_place;
  int root;
  std::size_t count;
  std::uint64_t seed;
  // The root's own affair.
  std::size_t buffer, offset;
  // Each rank's own affair, though all may do the same.
  std::size_t from;
};

class Roots {
 public:
  explicit Roots(Program& program)
      : program_(program),
        ranks_(static_cast<std::size_t>(program.size)),
        most_(static_cast<std::size_t>(program.option("most", 60'000))),
        reduce_(program.text_option("reduce", "pipelined")),
        named_(MemoryKind::device, 2 * calls * most_ * word),
        unnamed_(MemoryKind::device, calls * most_ * word) {
    // Some more than are told of by number, and some that nobody else knows.
    constexpr std::size_t prepared = 18, others = 2;
    for (std::size_t i = 0; i < prepared + others; ++i)
      results_.push_back(std::make_unique<Memory>(MemoryKind::device, ranks_ * most_ * word + most_offset));
    std::vector<void*> named{named_.data()};
    for (std::size_t i = 0; i < prepared; ++i) named.push_back(results_[i]->data());
    prepare(MPI_COMM_WORLD, 0, named);
  }

  void round(std::int64_t number) {
    Random random(mix(program_.seed, number, 17));  // the same on all ranks
    const bool graph = number % 3 == 2;
    std::vector<Call> all;
    std::vector<std::size_t> free(results_.size());
    std::iota(free.begin(), free.end(), std::size_t{0});
    program_.local().shuffle(free);
    for (std::size_t i = 0; i < calls; ++i) {
      Call call{random.pick(std::array{Kind::reduce, Kind::gather, Kind::scatter}),
                !graph && random.chance(30),
                0,
                0,
                random.next(),
                free[i],
                program_.local().below(most_offset / word) * word,
                some_place(random, i)};
      call.root = static_cast<int>(random.below(ranks_));
      call.count = 1 + random.below(random.chance(50) ? most_ : 100);
      all.push_back(call);
    }
    CROSSLANE_STEP("round {}{}", number, graph ? ", as a graph" : "");
    for (const Call& call : all) fill(call);
    std::optional<Graph> captured;
    if (graph) captured.emplace(stream_);
    for (const Call& call : all) {
      const NothingAllocated scope;
      enqueue(call);
    }
    if (graph) {
      captured->end();
      for (int replay = 0; replay < 4; ++replay) captured->launch();
    }
    stream_.finish();
    for (const Call& call : all) check(call);
    polite_barrier();  // nobody fills what others still read
  }

 private:
  static constexpr std::size_t calls = 6;

  // Where this rank's input of the call is: a send buffer, or the result's place. A scatter's is where the root's results are else.
  [[nodiscard]] bool own_place(const Call& call) const { return call.in_place && program_.rank == call.root; }
  void fill(const Call& call) {
    const bool scatters = call.kind == Kind::scatter;
    if (scatters && program_.rank != call.root) return;
    const Words input = words_of(call.seed, program_.rank, call.count * (scatters ? ranks_ : 1));
    const auto bytes = std::as_bytes(std::span(input));
    if (scatters || own_place(call)) {
      const std::size_t block =
          call.kind == Kind::gather ? static_cast<std::size_t>(program_.rank) * call.count * word : 0;
      results_[call.buffer]->write(bytes, call.offset + block);
    } else {
      const auto [memory, at] = place(call);
      memory->write(bytes, at);
    }
  }
  // Of call i: one of the two places for it in the buffer that all have named, or the one in what nobody has.
  std::size_t some_place(Random& random, std::size_t i) {
    const auto way = random.below(4);
    const std::size_t shared = random.below(3), own = program_.local().below(3);
    return i * 3 + (way == 0 ? own : way == 1 ? 2 : shared);
  }
  struct Place {
    Memory* memory;
    std::size_t at;
  };
  [[nodiscard]] Place place(const Call& call) {
    const std::size_t i = call.from / 3, which = call.from % 3;
    if (which == 2) return {&unnamed_, i * most_ * word};
    return {&named_, (which * calls + i) * most_ * word};
  }

  void enqueue(const Call& call) {
    const auto [memory, at] = place(call);
    void* const part = own_place(call) ? MPI_IN_PLACE : memory->as<std::byte>() + at;
    void* const whole = program_.rank == call.root ? results_[call.buffer]->as<std::byte>() + call.offset : nullptr;
    const auto n = static_cast<MPI_Count>(call.count);
    const MPI_Datatype type = MPI_UINT32_T;
    const MPI_Comm comm = MPI_COMM_WORLD;
    CUstream const on = stream_.handle();
    const char* const algorithm = call.kind == Kind::reduce ? reduce_.c_str() : "pipelined";
    const std::int64_t before = direct_calls(call.kind, algorithm);
    if (call.kind == Kind::gather)
      CROSSLANE_MPI(crosslane_gather_enqueue(part, n, type, whole, n, type, call.root, comm, on));
    if (call.kind == Kind::scatter)
      CROSSLANE_MPI(crosslane_scatter_enqueue(whole, n, type, part, n, type, call.root, comm, on));
    if (call.kind == Kind::reduce)
      CROSSLANE_MPI(crosslane_reduce_enqueue(part, whole, n, type, MPI_SUM, call.root, comm, on));
    CROSSLANE_CHECK_EQUAL(direct_calls(call.kind, algorithm) - before, 1);
  }

  void check(const Call& call) {
    Words expected;
    const Memory* memory = results_[call.buffer].get();
    std::size_t at = call.offset;
    if (call.kind == Kind::scatter) {
      if (own_place(call)) return;
      const Words all = words_of(call.seed, call.root, call.count * ranks_);
      const auto mine = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(program_.rank) * call.count);
      expected.assign(mine, mine + static_cast<std::ptrdiff_t>(call.count));
      std::tie(memory, at) = std::pair<const Memory*, std::size_t>(place(call).memory, place(call).at);
    } else {
      if (program_.rank != call.root) return;
      if (call.kind == Kind::reduce) expected.resize(call.count);
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const Words theirs = words_of(call.seed, static_cast<int>(rank), call.count);
        if (call.kind == Kind::gather) expected.insert(expected.end(), theirs.begin(), theirs.end());
        for (std::size_t k = 0; call.kind == Kind::reduce && k < call.count; ++k) expected[k] += theirs[k];
      }
    }
    const auto bytes = memory->read(at, expected.size() * word);
    CROSSLANE_CHECK(std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0,
                    "a {} of {} words with buffer {} of its root at {}{} is wrong",
                    kind_names.at(static_cast<std::size_t>(call.kind)), call.count, call.buffer, call.offset,
                    call.in_place ? ", in place" : "");
  }

  Program& program_;
  std::size_t ranks_, most_;
  std::string reduce_;
  Memory named_, unnamed_;
  std::vector<std::unique_ptr<Memory>> results_;
  Stream stream_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "native_roots");
  if (can_prepare(program)) {
    Roots roots(program);
    for (std::int64_t round = 0; round < program.option("rounds", 18); ++round) roots.round(round);
  }
  return program.finish();
}
