// Start and end of a test program, and polite waiting. It must not know Crosslane.
#include "support/program.h"

#include "support/plain_mpi.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

namespace crosslane::tests {
namespace {

constexpr std::array<const char*, 6> memory_modes{"host", "device", "managed", "pinned", "mixed", "random"};

[[noreturn]] void usage(const std::string& problem) {
  fmt::print(stderr,
             "{}\nusage: program [--memory host|device|managed|pinned|mixed|random] [--seed <n>] [--cases <n>]"
             " [--watchdog <seconds>] [--capturing 0|1]\n",
             problem);
  std::exit(2);
}

std::uint64_t parse_number(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const auto value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') usage(fmt::format("{}: \"{}\" is not a number", name, text));
  return value;
}

std::map<std::string, std::string> parse(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (!option.starts_with("--") || i + 1 == argc) usage("not understood: " + option);
    options[option.substr(2)] = argv[i + 1];
  }
  if (const char* seed = std::getenv("CROSSLANE_TEST_SEED")) options.emplace("seed", seed);
  if (const char* memory = std::getenv("CROSSLANE_TEST_MEMORY")) options.emplace("memory", memory);
  return options;
}

// The default handler would abort without saying in which step.
void abort_with_step(MPI_Comm*, int* result, ...) {
  report_failure("an MPI call failed: " + describe_mpi_error(*result));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace

Program::Program(int argc, char** argv, const std::string& name, int thread_level)
    : options_(parse(argc, argv)), name_(name) {
  // Large messages come and go all the time: asking the system for their pages each time takes as long as the test itself.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  set_memory(text_option("memory", "random"));
  int provided = MPI_THREAD_SINGLE;
  if (thread_level == MPI_THREAD_SINGLE)
    MPI_Init(&argc, &argv);
  else
    MPI_Init_thread(&argc, &argv, thread_level, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (provided < thread_level) {
    if (rank == 0)
      fmt::print(stderr, "{}: skipped, the MPI gives thread level {} of {}\n", name, provided, thread_level);
    MPI_Finalize();
    std::exit(77);
  }
  if (options_.contains("seed"))
    seed = parse_number("--seed", options_["seed"]);
  else
    seed = mix(std::chrono::system_clock::now().time_since_epoch().count()) % 1'000'000'000;
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  describe_process(name, rank, seed);
  if (rank == 0) fmt::print(stderr, "{} --seed {} --memory {}, {} ranks\n", name, seed, memory_, size);
  shared_ = std::make_unique<Random>(mix(seed));
  local_ = std::make_unique<Random>(mix(seed, rank + 1));
  CROSSLANE_STEP("start");
  watchdog_ = std::make_unique<Watchdog>(static_cast<double>(option("watchdog", 60)));
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(abort_with_step, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);  // inherited by every communicator made from it
  MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
  MPI_Errhandler_free(&handler);
  // Before anything is done to the MPI: after failed calls MPICH 4.0 may wait forever for a message to itself.
  static_cast<void>(plain_mpi());
  if (memory_ != "host") {
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    int local_rank = 0;
    MPI_Comm_rank(node, &local_rank);
    MPI_Comm_free(&node);
    device_ = std::make_unique<Device>(local_rank);
    if (option("capturing", 0) != 0) capturing_ = std::make_unique<Capturing>(*device_);
  }
}

Program::~Program() = default;

void Program::set_memory(const std::string& mode) {
  for (const char* known : memory_modes) {
    if (mode != known) continue;
    memory_ = mode;
    return;
  }
  usage("--memory: not understood: " + mode);
}

MemoryKind Program::kind(Random& random) const {
  const auto choice = random.below(4);  // always drawn: the choices that follow do not depend on --memory
  if (memory_ == "host") return MemoryKind::host;
  if (memory_ == "device") return MemoryKind::device;
  if (memory_ == "pinned") return MemoryKind::pinned;
  const auto managed = device_->has_managed_memory() ? MemoryKind::managed : MemoryKind::device;
  if (memory_ == "managed") return managed;
  if (memory_ == "mixed") return choice < 2 ? MemoryKind::host : MemoryKind::device;
  return std::array{MemoryKind::host, MemoryKind::device, managed, MemoryKind::pinned}.at(choice);
}

std::int64_t Program::option(const std::string& name, std::int64_t otherwise) const {
  const auto found = options_.find(name);
  return found == options_.end() ? otherwise : static_cast<std::int64_t>(parse_number("--" + name, found->second));
}

std::string Program::text_option(const std::string& name, const std::string& otherwise) const {
  const auto found = options_.find(name);
  return found == options_.end() ? otherwise : found->second;
}

int Program::finish(const std::function<void()>& last) {
  CROSSLANE_STEP("finish");
  int mine = failures(), all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  polite_wait(request);
  if (last) last();
  CROSSLANE_STEP("MPI_Finalize");
  MPI_Finalize();
  // Told by this rank alone: there is no MPI any more.
  if (capturing_ != nullptr && !capturing_->end()) report_failure("a thread's capture of a graph was spoilt");
  capturing_.reset();
  device_.reset();
  watchdog_.reset();
  const int found = all + failures() - mine;  // in MPI_Finalize, too
  const bool skipped = found == 0 && !skipped_.empty();
  const std::string verdict = found != 0 ? fmt::format("{} checks FAILED", found)
                              : skipped  ? "skipped, " + skipped_
                                         : "passed";
  if (rank == 0) fmt::print(stderr, "{} --seed {}: {}\n", name_, seed, verdict);
  constexpr int not_run = 77;
  return skipped ? not_run : std::min(found, 1);
}

void polite_wait(MPI_Request& request, MPI_Status* status) {
  for (int done = 0;;) {
    CROSSLANE_MPI(MPI_Test(&request, &done, status));
    if (done != 0) return;
    sched_yield();
  }
}

void polite_waitall(std::vector<MPI_Request>& requests) {
  for (auto& request : requests) polite_wait(request);
}

void polite_barrier(MPI_Comm communicator) {
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Ibarrier(communicator, &request));
  polite_wait(request);
}

}  // namespace crosslane::tests
