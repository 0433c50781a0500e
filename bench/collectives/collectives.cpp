// Collectives on GPU memory, in tables. algorithms: all-reduce, reduce and broadcast by each algorithm of the library
// and by what it chooses, as COLL's figures 6 to 10 compare them. blocking: MPI's calls. stream: calls on a CUDA stream; graph: the same recorded
// as a CUDA graph and replayed, so that no host enqueues anything meanwhile. Beside them NCCL
// where its library is, and copies by hand where the calls block. All columns in one process and one run, in turns; each call sends
// what the one before it brought; results are verified.
//   bench_collectives --table algorithms|blocking|stream|graph|stream_algorithms [--collectives allreduce,...] [--sizes BYTES,...] [--gpus N]
//                     [--runs N] [--milliseconds N] [--nccl FILE] [--csv FILE]
// BYTES are of a whole vector; where each rank has a block of it, that is 1/n.
#include "collectives/chain.h"
#include "collectives/graphs.h"
#include "collectives/preferences.h"
#include "common/device.h"
#include "common/mpi_program.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"
#include "operation/native.h"
#include "operation/nccl.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace crosslane::bench;

constexpr const char* chosen = "Crosslane";

/// A way to make the calls of a chain.
struct Column {
  std::string name;
  std::size_t more_bytes = 0;  // than the row's size: which algorithm is preferred
  ChainCalls run;              // to their end
  std::string wants;           // the algorithm that must have been taken; empty: any
  ChainMemory memory;
  std::shared_ptr<Graphs> graphs = nullptr;  // what `run` replays: of the one chain that this column is run with
};

class Benchmark {
 public:
  Benchmark(const Options& options, const World& world)
      : world_(world),
        table_(options.text("--table")),
        on_stream_(table_ != "blocking" && table_ != "algorithms"),
        each_(table_.ends_with("algorithms")),
        runs_(static_cast<int>(options.number("--runs"))),
        budget_(static_cast<double>(options.number("--milliseconds")) / 1e3),
        sizes_(options.numbers("--sizes")),
        device_(world.local, static_cast<int>(options.number("--gpus"))),
        buffers_(static_cast<std::size_t>(*std::max_element(sizes_.begin(), sizes_.end())) +
                     (std::size_t{64} * most_preference_step + 4) * static_cast<std::size_t>(world.ranks),
                 !on_stream_),
        csv_(world.rank == 0 ? options.text("--csv") : "",
             {"collectives", fmt::format("{} x {}", device_.count(), device_.name())},
             {"table", "collective", "bytes", "ranks", "gpus", "node_size", "turns", "column", "algorithm", "run",
              "seconds"}) {
    gpus_ = std::min(device_.count(), world.ranks);
    turns_ = gpus_ < world.ranks && device_.takes_turns() ? "yes" : "no";
    const char* const node = std::getenv("CROSSLANE_NODE_SIZE");
    node_size_ = node == nullptr ? "0" : node;
    std::string reason;
    nccl_ = Nccl::open(options.text("--nccl"), world.local < device_.count(), emulated(), reason);
    say(fmt::format("collectives: {}, {} ranks on {} x {}{}, nodes of {}, {}; us a call, medians of {} runs",
                    processor(), world.ranks, gpus_, device_.name(), turns_ == "yes" ? ", without MPS" : "",
                    node_size_ == "0" ? "all" : node_size_, mpi_version(), runs_));
    if (nccl_ == nullptr) say(fmt::format("collectives: NCCL left out, {}", reason));
    if (nccl_ != nullptr && !each_) {
      for (auto& memory : symmetric_) memory = NcclMemory::open(*nccl_, buffers_.first.size());
      if (!symmetric()) say("collectives: NCCL's symmetric memory left out: this NCCL has none, or no memory for it");
    }
  }

  void table(const std::vector<std::string>& collectives) {
    if (on_stream_ && !prepare()) return;
    for (const auto& name : collectives) {
      if (each_) check_apart(name, sizes_, static_cast<std::size_t>(world_.ranks), on_stream_);
      header(name);
      for (const long size : sizes_) row(name, static_cast<std::size_t>(size));
    }
  }

 private:
  void say(const std::string& line) const {
    if (world_.rank != 0) return;
    fmt::print(stdout, "{}\n", line);
    std::fflush(stdout);
  }

  /// False, on all ranks, where there are no calls on a stream.
  bool prepare() {
    std::vector<void*> named{buffers_.first.pointer(), buffers_.second.pointer()};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int error = native_.prepare(MPI_COMM_WORLD, static_cast<MPI_Count>(buffers_.first.size()), 2, named.data());
    if (error != MPI_SUCCESS) {
      std::vector<char> why(MPI_MAX_ERROR_STRING);
      int length = 0;
      MPI_Error_string(error, why.data(), &length);
      say(fmt::format("collectives: calls on a stream left out, {}", why.data()));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    return error == MPI_SUCCESS;
  }

  [[nodiscard]] bool symmetric() const noexcept { return symmetric_[0] != nullptr && symmetric_[1] != nullptr; }

  [[nodiscard]] std::vector<Column> columns(const std::string& name, std::size_t size) {
    const ChainMemory memory = buffers_.memory();
    const ChainCalls blocking = [memory](const Chain& chain, int calls) {
      chain.run(memory, calls, [](const Collective& collective, CUdeviceptr send, CUdeviceptr receive) {
        collective.mpi(reinterpret_cast<const void*>(send), reinterpret_cast<void*>(receive));
      });
    };
    const ChainCalls enqueued = [this, memory](const Chain& chain, int calls) {
      chain.run(memory, calls, [&](const Collective& collective, CUdeviceptr send, CUdeviceptr receive) {
        if (collective.enqueue(native_, send, receive, device_.stream()) != MPI_SUCCESS)
          throw std::runtime_error("an enqueued call failed");
      });
    };
    const auto by_nccl = [this](const ChainMemory& on) -> ChainCalls {
      return [this, on](const Chain& chain, int calls) {
        chain.run(on, calls, [&](const Collective& collective, CUdeviceptr send, CUdeviceptr receive) {
          collective.nccl(*nccl_, send, receive, device_.stream());
          if (!on_stream_) device_.wait();
        });
      };
    };
    std::vector<Column> result;
    std::size_t more = 0;
    const auto column = [&](const std::string& named, const std::string& wants, const ChainMemory& on,
                            const ChainCalls& calls) {
      Column made{named, more, calls, wants, on};
      return on_stream_ ? triggered(std::move(made)) : made;
    };
    const std::size_t step = preference_step(name, size, static_cast<std::size_t>(world_.ranks));
    if (each_) {
      for (const auto& algorithm : algorithms_of(name, on_stream_)) {
        result.push_back(
            column(algorithm == "mpi" ? "staged" : algorithm, algorithm, memory, on_stream_ ? enqueued : blocking));
        more += step;
      }
    }
    // What is chosen, and what there is to compare it with.
    result.insert(result.begin(), column(chosen, "", memory, on_stream_ ? enqueued : blocking));
    if (nccl_ != nullptr) result.push_back(column("NCCL", "", memory, by_nccl(memory)));
    // Which NCCL has kernels for.
    const bool of_symmetric = name == "allreduce" || name == "allgather" || name == "reduce_scatter";
    if (symmetric() && of_symmetric) {
      const ChainMemory its{{symmetric_[0]->address(), symmetric_[1]->address()}, {}};
      result.push_back(column("NCCL symmetric", "", its, by_nccl(its)));
    }
    if (!on_stream_) {
      const auto by_hand = [memory](const Chain& chain, int calls) { chain.run_by_hand(memory, calls); };
      result.push_back({"by hand", more, by_hand, "", memory});
    }
    return result;
  }

  /// A column whose calls only put work on the stream, made to run to their end: by a replay of their graph in the table of graphs.
  [[nodiscard]] Column triggered(Column column) const {
    if (table_ == "graph") {
      column.graphs = std::make_shared<Graphs>(device_.stream(), std::move(column.run));
      column.run = [graphs = column.graphs](const Chain& chain, int calls) { graphs->replay(chain, calls); };
    } else {
      column.run = [this, enqueue = std::move(column.run)](const Chain& chain, int calls) {
        enqueue(chain, calls);
        device_.wait();
      };
    }
    return column;
  }

  void header(const std::string& name) {
    if (world_.rank != 0) return;
    fmt::print(stdout, "{:>14} {:>10}", name, "bytes");
    for (const auto& column : columns(name, 0)) fmt::print(stdout, " {:>18}", column.name);
    fmt::print(stdout, " {:>9} {:>9}  {}\n", "best/ours", "bus GB/s", "taken");
  }

  /// ChainCalls of the collective by an algorithm on this rank up to now; all of them for null.
  [[nodiscard]] std::uint64_t direct_calls(const std::string& name, const char* algorithm) const {
    const auto known = name == "bcast" ? "broadcast" : name == "reduce_scatter" ? "reduce_scatter_block" : name;
    return native_.direct_calls(known.c_str(), algorithm);
  }

  /// By which algorithms further calls of a column go: what every rank counts; "staged" where none does.
  std::string taken(const Column& column, const Chain& chain) {
    std::vector<std::string> known{"ll",       "ll128", "one_shot",  "two_shot_ll", "two_shot_window", "two_shot_told",
                                   "two_shot", "ring",  "pipelined", "window",      "zero_copy",       "copy_engine"};
    for (const auto& algorithm : algorithms_of("allreduce", on_stream_))
      if (std::find(known.begin(), known.end(), algorithm) == known.end() && algorithm != "mpi")
        known.push_back(algorithm);
    std::vector<std::uint64_t> before;
    for (const auto& algorithm : known) before.push_back(direct_calls(chain.name(), algorithm.c_str()));
    column.run(chain, 2);
    std::vector<int> counted;
    for (std::size_t i = 0; i < known.size(); ++i)
      counted.push_back(direct_calls(chain.name(), known[i].c_str()) > before[i] ? 1 : 0);
    MPI_Allreduce(MPI_IN_PLACE, counted.data(), static_cast<int>(counted.size()), MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    std::string names;
    for (std::size_t i = 0; i < known.size(); ++i)
      if (counted[i] != 0) names += (names.empty() ? "" : "+") + known[i];
    return names.empty() ? "staged" : names;
  }

  void row(const std::string& name, std::size_t size) {
    std::vector<Column> all = columns(name, size), some;
    std::vector<std::unique_ptr<Chain>> chains;
    std::vector<std::string> ways;
    for (const auto& column : all) {
      auto chain = std::make_unique<Chain>(name, size + column.more_bytes, world_.rank, world_.ranks);
      verify(column, *chain);
      std::string way = column.name;
      if (column.name == chosen || !column.wants.empty()) {
        // First uses of communicator and buffers take other ways.
        column.run(*chain, chain->roots() == 1 ? 6 : 2 * world_.ranks + 4);
        way = taken(column, *chain);
        if (!column.wants.empty() && way != (column.wants == "mpi" ? "staged" : column.wants)) continue;
      }
      some.push_back(column);
      chains.push_back(std::move(chain));
      ways.push_back(way);
    }
    std::vector<int> calls(some.size());
    const auto once = [&](std::size_t i) {
      // As many calls as fill the time; at least two, so that the second waits for the first.
      if (calls[i] == 0) calls[i] = std::max(repeats_for(seconds(some[i], *chains[i], 2), budget_, 500), 2);
      return seconds(some[i], *chains[i], calls[i]);
    };
    const auto record = [&](std::size_t i, int run, double time) {
      csv_.row({table_, name, std::to_string(size), std::to_string(world_.ranks), std::to_string(gpus_), node_size_,
                turns_, some[i].name, ways[i], std::to_string(run), fmt::format("{:.9f}", time)});
    };
    const auto times = in_turns(some.size(), runs_, once, record);
    for (std::size_t i = 0; i < some.size(); ++i) verify(some[i], *chains[i]);
    print(size, all, some, times, *chains[0], ways[0]);
  }

  double seconds(const Column& column, const Chain& chain, int calls) const {
    if (column.graphs != nullptr) column.graphs->record(chain, calls);
    return seconds_of(1, [&] { column.run(chain, calls); }) / calls;
  }

  void verify(const Column& column, Chain& chain) const {
    demand_everywhere(chain.right(column.memory, [&](int calls) { column.run(chain, calls); }),
                      fmt::format("{} of {} bytes: a result is wrong ({})", chain.name(), chain.bytes(), column.name));
  }

  void print(std::size_t size, const std::vector<Column>& all, const std::vector<Column>& some,
             const std::vector<std::vector<double>>& times, const Chain& chain, const std::string& way) const {
    if (world_.rank != 0) return;
    fmt::print(stdout, "{:>14} {:10}", chain.name(), size);
    const double ours = median(times[0]);
    double best = 0;
    for (const auto& column : all) {
      const auto found =
          std::find_if(some.begin(), some.end(), [&](const Column& one) { return one.name == column.name; });
      if (found == some.end()) {
        fmt::print(stdout, " {:>18}", "-");
        continue;
      }
      const double time = median(times[static_cast<std::size_t>(found - some.begin())]);
      if (column.name != chosen) best = best == 0 ? time : std::min(best, time);
      fmt::print(stdout, " {:18.1f}", time * 1e6);
    }
    const std::string ratio = best == 0 ? "-" : fmt::format("{:.2f}", best / ours);
    fmt::print(stdout, " {:>9} {:9.2f}  {}\n", ratio, chain.bus_bytes() / ours / 1e9, way);
    std::fflush(stdout);
  }

  const World world_;
  const std::string table_;
  const bool on_stream_, each_;  // calls that a stream triggers; a column for each algorithm
  const int runs_;
  const double budget_;
  const std::vector<long> sizes_;
  const Device device_;
  const Native native_ = Native::find();
  const ChainBuffers buffers_;
  Csv csv_;
  int gpus_ = 1;
  std::string turns_, node_size_;
  std::unique_ptr<Nccl> nccl_;
  std::array<std::unique_ptr<NcclMemory>, 2> symmetric_;
};

constexpr const char* algorithm_sizes = "262144,524288,1048576,2097152,4194304,8388608,16777216";
constexpr const char* blocking_sizes = "8,64,512,4096,32768,262144,2097152";
constexpr const char* graph_sizes = "8,512,4096,32768,262144";
constexpr const char* stream_sizes = "8,512,4096,32768,262144,2097152,16777216,134217728";

Options parse(int count, char** words) {
  std::map<std::string, std::string> known{{"--csv", ""},         {"--runs", "5"}, {"--milliseconds", "30"},
                                           {"--gpus", "64"},      {"--nccl", ""},  {"--table", "blocking"},
                                           {"--collectives", ""}, {"--sizes", ""}};
  const Options given(count, words, known);
  const auto& table = given.text("--table");
  if (table != "algorithms" && table != "blocking" && table != "stream" && table != "graph" &&
      table != "stream_algorithms")
    throw std::runtime_error(
        fmt::format("no table is called {}; there are algorithms, blocking, stream, graph, stream_algorithms", table));
  known["--sizes"] = table == "algorithms" ? algorithm_sizes
                     : table == "blocking" ? blocking_sizes
                     : table == "graph"    ? graph_sizes
                                           : stream_sizes;
  known["--collectives"] = table == "algorithms"
                               ? "allreduce,reduce,bcast"
                               : "allreduce,allgather,reduce_scatter,bcast,reduce,alltoall,gather,scatter";
  return {count, words, known};
}

void run(int count, char** words) {
  if (!preloaded()) throw std::runtime_error("Crosslane is not preloaded: the MPI would crash on a device pointer");
  const Options options = parse(count, words);
  Benchmark(options, World::find()).table(options.words("--collectives"));
}

}  // namespace

int main(int count, char** words) {
  try {
    // The library reads its settings in its first call.
    const Options options = parse(count, words);
    if (const auto table = options.text("--table"); table.ends_with("algorithms"))
      prefer_each(options.numbers("--sizes"), table.starts_with("stream"));
  } catch (const std::exception&) {
    // Said in `run`, where it ends all ranks.
  }
  return mpi_program("collectives", count, words, run);
}
