// What Crosslane adds to calls that touch host memory alone: each call through the preloaded library and straight in
// the MPI library, in one process, in turns; first with no driver library in the process, then with one (--driver) and
// a context. One rank; start with Crosslane preloaded and without CROSSLANE_GPU. Without Crosslane it shows the noise.
// Then what the driver takes for the questions by which a library may tell what memory it is given: floors of calls on GPU memory.
#include "common/late_driver.h"
#include "common/options.h"
#include "common/plain_mpi.h"
#include "common/record.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::bench;

constexpr std::size_t page = 4096;
constexpr std::size_t many = 4096;  // pages: more than any cache of pages should need
constexpr int messages = 4;         // of the nonblocking exchange

/// Host memory of some kind. Calls go round its places, a page each; second buffers have pages of their own behind.
struct Buffer {
  std::string_view kind;
  char* base = nullptr;
  std::size_t places = 1;
  [[nodiscard]] double* first(int i) const { return reinterpret_cast<double*>(base + offset(i)); }
  [[nodiscard]] double* second(int i) const { return reinterpret_cast<double*>(base + places * page + offset(i)); }
  [[nodiscard]] std::size_t offset(int i) const { return static_cast<std::size_t>(i) % places * page; }
};

/// A loop over one kind of call. `calls`: MPI calls that one turn of the loop makes.
struct Case {
  std::string_view name;
  int calls;
  bool has_buffer;
  void (*loop)(const Calls& mpi, const Buffer& buffer, int turns);
};

const std::array cases{
    Case{"MPI_Comm_rank", 1, false,
         [](const Calls& mpi, const Buffer&, int turns) {
           int rank = 0;
           for (int i = 0; i < turns; ++i) mpi.comm_rank(MPI_COMM_SELF, &rank);
         }},
    Case{"MPI_Send to MPI_PROC_NULL", 1, true,
         [](const Calls& mpi, const Buffer& buffer, int turns) {
           for (int i = 0; i < turns; ++i) mpi.send(buffer.first(i), 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
         }},
    Case{"MPI_Sendrecv, MPI_PROC_NULL", 1, true,
         [](const Calls& mpi, const Buffer& buffer, int turns) {
           for (int i = 0; i < turns; ++i)
             mpi.sendrecv(buffer.first(i), 1, MPI_DOUBLE, MPI_PROC_NULL, 0, buffer.second(i), 1, MPI_DOUBLE,
                          MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
         }},
    Case{"4 x MPI_Irecv, MPI_Isend, MPI_Waitall to self", 2 * messages + 1, true,
         [](const Calls& mpi, const Buffer& buffer, int turns) {
           std::array<MPI_Request, 2 * messages> requests{};
           std::array<MPI_Status, 2 * messages> statuses{};
           for (int i = 0; i < turns; ++i) {
             for (int k = 0; k < messages; ++k) {
               mpi.irecv(buffer.first(i) + k, 1, MPI_DOUBLE, 0, k, MPI_COMM_SELF,
                         &requests[static_cast<std::size_t>(k)]);
               mpi.isend(buffer.second(i) + k, 1, MPI_DOUBLE, 0, k, MPI_COMM_SELF,
                         &requests[static_cast<std::size_t>(messages + k)]);
             }
             mpi.waitall(2 * messages, requests.data(), statuses.data());
           }
         }},
    Case{"MPI_Allreduce on MPI_COMM_SELF", 1, true,
         [](const Calls& mpi, const Buffer& buffer, int turns) {
           for (int i = 0; i < turns; ++i)
             mpi.allreduce(buffer.first(i), buffer.second(i), 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
         }},
    Case{"MPI_Bcast on MPI_COMM_SELF", 1, true,
         [](const Calls& mpi, const Buffer& buffer, int turns) {
           for (int i = 0; i < turns; ++i) mpi.bcast(buffer.first(i), 1, MPI_DOUBLE, 0, MPI_COMM_SELF);
         }},
};

class Measurement {
 public:
  Measurement(const Options& options, Csv& csv) : csv_(csv), runs_(static_cast<int>(options.number("--runs"))) {}

  void all(const char* driver, const std::vector<Buffer>& buffers, double target_ns) {
    fmt::print(stdout,
               "\n{}: ns a call, medians of {} runs; added: median of the runs' differences (smallest, largest)\n",
               driver, runs_);
    fmt::print(stdout, "{:46} {:14} {:>9} {:>9} {:>8}\n", "call", "buffer", "plain", "Crosslane", "added");
    for (const Case& one : cases) {
      for (const Buffer& buffer : buffers) {
        measure(driver, one, buffer, target_ns);
        if (!one.has_buffer) break;
      }
    }
  }
  [[nodiscard]] int over() const noexcept { return over_; }

 private:
  void measure(const char* driver, const Case& one, const Buffer& buffer, double target_ns) {
    const std::string_view kind = one.has_buffer ? buffer.kind : "none";
    const int turns = turns_for(one, buffer);
    std::array<std::vector<double>, 2> times;
    std::vector<double> added;
    for (int run = 0; run < runs_; ++run) {
      // Who goes first changes from run to run.
      for (const int turn : {0, 1}) {
        const int side = (run + turn) % 2;
        const double ns = time(side == 0 ? plain_ : bound_, one, buffer, turns);
        times[static_cast<std::size_t>(side)].push_back(ns);
      }
      added.push_back(times[1].back() - times[0].back());
      for (const int side : {0, 1})
        csv_.row({driver, std::string(one.name), std::string(kind), side == 0 ? "plain" : "crosslane",
                  std::to_string(run), fmt::format("{:.2f}", times[static_cast<std::size_t>(side)].back())});
    }
    const auto [least, most] = std::minmax_element(added.begin(), added.end());
    const double middle = median(added);
    const bool within = middle <= target_ns;
    over_ += within ? 0 : 1;
    fmt::print(stdout, "{:46} {:14} {:9.1f} {:9.1f} {:8.1f} ({:.1f}, {:.1f}){}\n", one.name, kind, median(times[0]),
               median(times[1]), middle, *least, *most, within ? "" : fmt::format("  above {:.0f}", target_ns));
  }

  /// So many turns that a run takes about a millisecond.
  int turns_for(const Case& one, const Buffer& buffer) const {
    const double ns = time(bound_, one, buffer, 200) * one.calls;
    return static_cast<int>(std::clamp(1e6 / std::max(ns, 1.0), 100.0, 200'000.0));
  }
  static double time(const Calls& mpi, const Case& one, const Buffer& buffer, int turns) {
    one.loop(mpi, buffer, std::max(turns / 20, 1));
    const auto begun = now_ns();
    one.loop(mpi, buffer, turns);
    return static_cast<double>(now_ns() - begun) / turns / one.calls;
  }

  const Calls plain_ = Calls::plain();
  const Calls bound_ = Calls::bound();
  Csv& csv_;
  const int runs_;
  int over_ = 0;
};

void questions(const LateDriver& driver, const void* pinned, const void* host, int runs, Csv& csv) {
  constexpr int many_questions = 1000;
  struct Question {
    std::string_view name;
    std::optional<CUpointer_attribute> attribute;  // else cuMemGetAddressRange
  };
  constexpr std::array<Question, 5> asked{{{"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
                                           {"CONTEXT", CU_POINTER_ATTRIBUTE_CONTEXT},
                                           {"BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID},
                                           {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
                                           {"range", std::nullopt}}};
  struct Place {
    std::string_view kind;
    CUdeviceptr address;
  };
  const std::array<Place, 3> places{{{"device", driver.memory()},
                                     {"pinned", reinterpret_cast<CUdeviceptr>(pinned)},
                                     {"heap", reinterpret_cast<CUdeviceptr>(host)}}};
  fmt::print(stdout, "\nquestions to the driver: ns each, medians of {} runs (\"no\": it has no answer)\n{:14}", runs,
             "memory");
  for (const Question& question : asked) fmt::print(stdout, " {:>17}", question.name);
  fmt::print(stdout, "\n");
  for (const Place& place : places) {
    fmt::print(stdout, "{:14}", place.kind);
    for (const Question& question : asked) {
      const auto ask = [&] {
        return question.attribute ? driver.ask(*question.attribute, place.address) : driver.ask_range(place.address);
      };
      std::vector<double> times;
      bool answered = false;
      for (int run = 0; run <= runs; ++run) {  // the first warms up
        const auto begun = now_ns();
        for (int i = 0; i < many_questions; ++i) answered = ask();
        const double ns = static_cast<double>(now_ns() - begun) / many_questions;
        if (run == 0) continue;
        times.push_back(ns);
        csv.row({"driver", std::string(question.name), std::string(place.kind), "question", std::to_string(run - 1),
                 fmt::format("{:.2f}", ns)});
      }
      fmt::print(stdout, " {:14.1f} {:2}", median(times), answered ? "" : "no");
    }
    fmt::print(stdout, "\n");
  }
}

char* mapped(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory");
  return static_cast<char*>(memory);
}

int run(int count, char** words) {
  const Options options(count, words, {{"--driver", ""}, {"--csv", ""}, {"--runs", "21"}});
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 1) throw std::runtime_error("start one rank: others would only disturb");
  alignas(64) static std::array<char, 2 * page> data{};
  alignas(64) std::array<char, 2 * page> stack{};
  const std::unique_ptr<char, decltype(&std::free)> heap(static_cast<char*>(std::malloc(2 * page)), &std::free);
  std::vector<Buffer> buffers{{"stack", stack.data()},
                              {"data", data.data()},
                              {"heap", heap.get()},
                              {"mapped", mapped(2 * page)},
                              {"mapped, many", mapped(2 * many * page), many}};
  Csv csv(options.text("--csv"), {"host_calls", "none"}, {"driver", "call", "buffer", "side", "run", "ns_a_call"});
  fmt::print(stdout, "host_calls: {}, {}, calls reach {} first{}\n", processor(), mpi_version(), bound_to(),
             preloaded() ? "" : ", which is not Crosslane: what follows is noise");
  Measurement measurement(options, csv);
  measurement.all("no driver", buffers, 20);
  if (const auto& library = options.text("--driver"); !library.empty()) {
    LateDriver driver(library);
    csv.set_gpu(driver.description());
    driver.use_gpu();
    buffers.push_back({"pinned", static_cast<char*>(driver.pinned(2 * page))});
    measurement.all("driver", buffers, 150);
    questions(driver, buffers.back().base, heap.get(), static_cast<int>(options.number("--runs")), csv);
  }
  fmt::print(stdout, "\nhost_calls: {}\n",
             measurement.over() == 0 ? "every call within 20 ns without a driver, 150 ns with one"
                                     : fmt::format("{} rows above their target", measurement.over()));
  return 0;  // a measurement, not a test
}

}  // namespace

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int status = 0;
  try {
    status = run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "host_calls: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return status;
}
