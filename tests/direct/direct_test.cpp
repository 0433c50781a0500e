// Direct collectives between GPUs: collective x element and operation x size x in place x root, pairwise, on communicators of all
// kinds, under the preferences that the environment gives (CROSSLANE_ALLREDUCE ...).
//   --memory device       every rank passes memory of its GPU: each call must go direct, by --algorithm where that takes the call
//   --memory mixed|random some ranks pass host, managed or pinned memory, derived types, or memory of another GPU: any way is right
//   --node <n>            what CROSSLANE_NODE_SIZE says: communicators of ranks of several nodes must not go direct
//   --spans 1             but do by --algorithm, which spans nodes
//   --direct 0            nothing may go direct (no kernels, no mappings), and all must be right
//   --most <bytes>        the largest block
//   --any_order 1         reductions may combine in any order: with numbers for which it does not show
// Where kernels of ranks take turns on a GPU that they share, only what the host can drive goes direct.
#include "direct/jobs.h"
#include "support/plain_mpi.h"
#include "support/sharing.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

// Sizes of a block at which something changes: vectors of 16 bytes, low latency's slots, blocks, exposure, parts of the window.
std::vector<std::size_t> sizes(std::size_t most) {
  std::vector<std::size_t> all{0,         1,        17,       100,     1000,           4 * kib,
                               16 * kib,  32 * kib, 64 * kib, 66000,   128 * kib,      256 * kib,
                               300 * kib, 1 * mib,  1500000,  2 * mib, 5 * mib + 12345};
  std::erase_if(all, [&](std::size_t bytes) { return bytes > most; });
  return all;
}

// Draws tuples so that all pairs of values of two fields come soon: of several random ones, that with most new pairs.
class Pairs {
 public:
  explicit Pairs(std::vector<std::size_t> values) : values_(std::move(values)) {}

  std::vector<std::size_t> draw(Random& random) {
    std::vector<std::size_t> best;
    std::size_t most = 0;
    for (int tries = 0; tries < 12; ++tries) {
      std::vector<std::size_t> tuple;
      for (const std::size_t end : values_) tuple.push_back(random.below(end));
      const std::size_t fresh = visit(tuple, false);
      if (best.empty() || fresh > most) {
        most = fresh;
        best = tuple;
      }
    }
    visit(best, true);
    return best;
  }

 private:
  std::size_t visit(const std::vector<std::size_t>& tuple, bool remember) {
    std::size_t fresh = 0;
    for (std::size_t i = 0; i < tuple.size(); ++i) {
      for (std::size_t j = i + 1; j < tuple.size(); ++j) {
        const std::array<std::size_t, 4> pair{i, tuple[i], j, tuple[j]};
        if (seen_.contains(pair)) continue;
        ++fresh;
        if (remember) seen_.insert(pair);
      }
    }
    return fresh;
  }

  std::vector<std::size_t> values_;
  std::set<std::array<std::size_t, 4>> seen_;
};

class Test {
 public:
  explicit Test(Program& program)
      : program_(program),
        algorithm_(program.text_option("algorithm", "")),
        most_(static_cast<std::size_t>(program.option("most", 600000))),
        strict_(program.memory() == "device"),
        direct_(program.option("direct", 1) != 0),
        any_order_(program.option("any_order", 0) != 0),
        spans_(program.option("spans", 0) != 0) {
    int gpus = 0;
    CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
    if (!strict_ && gpus > 1) {
      other_ = std::make_unique<Device>(program.device()->ordinal() + 1);
      program.device()->make_current();
    }
    manners_ = {.kind = [this](Random& random) { return program_.kind(random); },
                .derived = strict_ ? 0U : 40U,
                .most_derived = plain_mpi_copies_to_itself_end_early() ? 64 * kib : most_,
                .other = other_.get()};
  }

  void run() {
    const Jobs jobs(program_);
    jobs.warm_up();
    const auto steps = sizes(most_);
    std::size_t rows = 0;  // element and operation
    for (const Element& element : elements()) rows += element.ops.size();
    Pairs pairs({kind_names.size(), rows, steps.size(), 2, 2, jobs.size()});
    const auto cases = program_.option("cases", 100);
    for (std::int64_t number = 0; number < cases; ++number) {
      Random random(mix(program_.seed, number));  // the same on all ranks
      const auto tuple = pairs.draw(random);
      Case what = make(tuple, steps[tuple[2]], random);
      const Job* const job = jobs.at(tuple[5]);
      if (job == nullptr) continue;
      shrink(what, *job);
      what.root = static_cast<int>(random.below(static_cast<std::uint64_t>(job->size())));
      run(what, *job);
    }
    for (std::size_t kind = 0; kind < kind_names.size(); ++kind) run_once(static_cast<Kind>(kind), *jobs.at(0));
  }

 private:
  static Case make(const std::vector<std::size_t>& tuple, std::size_t bytes, Random& random) {
    Case what;
    what.kind = static_cast<Kind>(tuple[0]);
    std::size_t row = tuple[1];
    for (const Element& element : elements()) {
      if (row >= element.ops.size()) {
        row -= element.ops.size();
        continue;
      }
      what.element = &element;
      std::tie(what.op_name, what.op) = element.ops[row];
      break;
    }
    what.units = (bytes + what.element->base.extent - 1) / what.element->base.extent;
    // At the step, below it, above it.
    if (what.units > 1) what.units += random.below(3) - 1;
    what.in_place = tuple[3] == 1 && what.kind != Kind::broadcast;
    what.repeats = static_cast<int>(tuple[4]) + 2;
    what.seed = random.next();
    return what;
  }

  // All that a rank holds stays within twice the largest block.
  void shrink(Case& what, const Job& job) const {
    const std::size_t ranks = in_blocks(what.kind) ? static_cast<std::size_t>(job.size()) : 1;
    while (what.bytes() * ranks > 2 * most_) what.units /= 2;
  }

  // Whether the ranks of a communicator share a node, as far as Crosslane is told, and the call needs no kernels that wait where they
  // take turns: by preference, or as it is shipped for them.
  [[nodiscard]] bool may_go_direct(const Case& what, const Job& job) const {
    if (!direct_ || job.size() < 2 || what.units == 0) return false;
    const bool driven_here = driven() && takes(what, job);
    if (!job.on_one_node()) return spans_ && driven_here;
    if (job.in_turns() && !driven_here && !(drivable(what.kind) && what.sent_bytes() >= direct_in_turns_from))
      return false;
    return true;
  }

  // Whatever the dice said: each collective by its algorithm once.
  void run_once(Kind kind, const Job& world) {
    // Bytes, where the algorithm takes them.
    const char* const plain = algorithm_ == "ring" && !any_order_ ? "int" : "float";
    const Element& element = *std::ranges::find_if(elements(), [&](const Element& each) {
      return (!of_pipelined_kernels(kind) && !in_shares()) || each.base.name == plain;
    });
    Case what{.kind = kind, .element = &element, .op = element.ops[0].second, .op_name = element.ops[0].first};
    what.units = algorithm_.ends_with("ll") || algorithm_ == "ll128" ? 1000 : 300 * kib;
    what.repeats = 3;
    what.seed = mix(program_.seed, 77);
    run(what, world);
    if (algorithm_.empty() || !exists(kind) || !strict_ || !direct_ || (world.in_turns() && !driven())) return;
    CROSSLANE_CHECK(by_name(kind) > 0, "{} never ran by {} in all cases", kind_names.at(static_cast<std::size_t>(kind)),
                    name_of(kind));
  }

  void run(Case what, const Job& job) {
    bool may = may_go_direct(what, job);
    // MPI itself may combine in another order, and so does what is taken for ranks in turns unless it was asked for.
    if (!strict_ || !may || any_order_ || (job.in_turns() && !driven())) leave_to_mpi(what);
    may = may_go_direct(what, job);  // of other elements it may have become shorter
    std::int64_t before = direct_calls(what.kind), named = by_name(what.kind);
    job.run(what, manners_, program_.local(), [&](int repeat) {
      const std::int64_t direct = direct_calls(what.kind) - before, by = by_name(what.kind) - named;
      before += direct;
      named += by;
      if (!may) {
        CROSSLANE_CHECK(direct == 0, "a call that should go through the host went direct");
      } else if (strict_) {
        CROSSLANE_CHECK(direct == 1, "{} calls went direct instead of one", direct);
        if (!algorithm_.empty() && !either(what, job, repeat))
          CROSSLANE_CHECK(by == (takes(what, job) ? 1 : 0), "repetition {} of it: {} by {}", repeat, by,
                          name_of(what.kind));
      }
    });
    what.whole = true;
    if (what.seed % 7 == 0 && what.bytes() < 100000) job.compare_with_mpi(what);
  }

  // Whether the host can drive it (docs/collectives.md).
  [[nodiscard]] static bool drivable(Kind kind) {
    return kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::broadcast;
  }
  [[nodiscard]] bool driven() const {
    return algorithm_ == "gsb" || algorithm_ == "btb" || algorithm_.starts_with("hierarchy");
  }

  // The algorithm that --algorithm means for this collective.
  [[nodiscard]] std::string name_of(Kind kind) const {
    const bool all = kind == Kind::allreduce || kind == Kind::reduce;
    if (algorithm_ == "zero_copy" && all) return "two_shot";
    if (algorithm_ == "window" && all) return "one_shot";
    return algorithm_;
  }
  [[nodiscard]] bool exists(Kind kind) const {
    if (driven()) return drivable(kind);
    if (algorithm_ == "two_shot_window" || algorithm_ == "two_shot_ll")
      return kind == Kind::allreduce || kind == Kind::reduce;
    const bool reduction = kind == Kind::allreduce || kind == Kind::reduce || kind == Kind::reduce_scatter_block;
    if (algorithm_ == "pipelined") return reduction;
    if (algorithm_ == "ring") return reduction || kind == Kind::allgather || kind == Kind::broadcast;
    if (algorithm_ == "copy_engine")
      return kind == Kind::allreduce || kind == Kind::allgather || kind == Kind::alltoall || kind == Kind::gather ||
             kind == Kind::scatter;
    if (algorithm_ == "ll128") return !combining(kind);
    return algorithm_ != "zero_copy" || (kind != Kind::scan && kind != Kind::exscan);
  }
  [[nodiscard]] std::int64_t by_name(Kind kind) const { return direct_calls(kind, name_of(kind).c_str()); }

  [[nodiscard]] bool of_pipelined_kernels(Kind kind) const {
    return algorithm_ == "pipelined" || (algorithm_ == "ring" && combining(kind)) ||
           (algorithm_ == "copy_engine" && kind == Kind::allreduce);
  }
  // Whether the kernels of shares in low-latency words do it, which know the same.
  [[nodiscard]] bool in_shares() const { return algorithm_ == "two_shot_ll"; }
  // Whether the pipelined kernels know the operation and the numbers, by `crosslane algorithms`.
  [[nodiscard]] static bool pipelined(const Case& what) {
    const std::string_view name = what.element->base.name;
    const bool plain = name.find("place") == name.npos && name.find("complex") == name.npos;
    return plain && what.element->base.extent >= 4 &&
           (what.op == MPI_SUM || what.op == MPI_PROD || what.op == MPI_MIN || what.op == MPI_MAX);
  }

  // Whether what the algorithm needs may be there already, or not yet. Buffers are shown from the second use on, and mapped by the third; the
  // copies that stand for them before, and always for what has gaps, may have been mapped for other calls. A reduce needs nobody's
  // buffer, but windows that an earlier call on the communicator may have wanted.
  [[nodiscard]] bool either(const Case& what, const Job& job, int repeat) const {
    return (straight() || large()) && repeat < 2 && takes(what, job);
  }
  // Whether the algorithm goes straight between the ranks' buffers.
  [[nodiscard]] bool straight() const { return algorithm_ == "zero_copy" || algorithm_ == "copy_engine"; }
  // Whether it goes through large windows, or between buffers and them.
  [[nodiscard]] bool large() const { return algorithm_ == "pipelined" || algorithm_ == "ring"; }
  // Whether the algorithm takes this call, by docs/collectives.md, once what it needs is there.
  [[nodiscard]] bool takes(const Case& what, const Job& job) const {
    if (!exists(what.kind) || (job.in_turns() && !driven())) return false;
    if (driven()) {
      // Zeros of either sign make even pairs of a number and a place depend on the order.
      const bool number = what.element->base.name.starts_with("float") || what.element->base.name.starts_with("double");
      return algorithm_ == "gsb" || any_order_ || !combining(what.kind) || (what.element->exact && !number);
    }
    if (algorithm_ == "ll") return what.sent_bytes() <= (job.size() <= 4 ? 256 : 64) * kib;
    if (algorithm_ == "ll128") {
      const std::size_t page = 4 * kib, share = 2192 * kib / static_cast<std::size_t>(job.size());
      return what.sent_bytes() <= std::min(548 * kib, (share + page - 1) / page * page) / 128 * 120;
    }
    if (in_shares()) {
      // Of two ranks a reduction's root has all for its share. A slot has room for it twice.
      const auto n = static_cast<std::size_t>(job.size());
      const bool root = what.kind == Kind::reduce;
      const std::size_t owners = !root ? n : n > 2 ? n - 1 : 1;
      return pipelined(what) && (what.sent_bytes() + owners - 1) / owners <= 128 * kib;
    }
    if (of_pipelined_kernels(what.kind) && !pipelined(what)) return false;
    if (!straight() && !large()) return true;
    // A ring has three at least, and begins shards at each of them. What goes to the next one alone need not be shown.
    const bool ring = algorithm_ == "ring";
    if (ring && (job.size() < 3 || (combining(what.kind) && !any_order_ && !what.element->exact))) return false;
    // Saved first, or not shown, in place.
    const bool copied =
        !ring && what.in_place && (what.kind == Kind::reduce_scatter_block || what.kind == Kind::scatter);
    const std::size_t blocks = in_blocks(what.kind) ? static_cast<std::size_t>(job.size()) : 1;
    return !copied && what.sent_bytes() * blocks >= 256 * kib;
  }

  Program& program_;
  std::string algorithm_;
  std::size_t most_;
  bool strict_, direct_, any_order_, spans_;
  std::unique_ptr<Device> other_;
  Manners manners_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "direct");
  CROSSLANE_CHECK(direct_calls(Kind::allreduce) >= 0, "Crosslane is not there, or too old");
  if (program.text_option("algorithm", "") == "ll128" && !lines_stay_whole(MPI_COMM_WORLD)) {
    program.skip("lines of 128 bytes are for GPUs of their own that NVLink joins");
  } else if (program.text_option("algorithm", "") == "ring" && share_a_gpu(MPI_COMM_WORLD)) {
    program.skip("rings are for GPUs of their own");
  } else {
    Test(program).run();
  }
  return program.finish();
}
