// Failure reports and the watchdog. It must not know CUDA or Crosslane.
#include "support/check.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

namespace crosslane::tests {
namespace {

struct Place {
  std::string text;
  std::source_location where;
  pid_t thread;
};

struct Report {
  std::mutex mutex;
  std::string program = "a test";
  int rank = -1;
  std::uint64_t seed = 0;
  int failures = 0;
  std::uint64_t steps = 0;  // entered so far, by all threads
  std::map<std::thread::id, Place> places;
};

Report& report() {
  static Report the_report;
  return the_report;
}

constexpr int printed_failures = 8, most_failures = 100;

void print(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

std::string head(const Report& state) {
  return fmt::format("{}, rank {}, --seed {}", state.program, state.rank, state.seed);
}

// A crash says where it was, too. Nothing here is safe in a signal's handler, and nothing is left to lose: the alarm ends
// what gets stuck.
void tell_crash(int signal_number) {
  alarm(5);
  auto& state = report();
  const std::unique_lock lock(state.mutex, std::try_to_lock);
  if (lock.owns_lock()) {
    const auto place = state.places.find(std::this_thread::get_id());
    print(fmt::format("CRASHED {}: signal {}{}", head(state), signal_number,
                      place == state.places.end() ? "" : fmt::format("\n  in step: {}", place->second.text)));
  }
  raise(signal_number);  // the handler is the default's again
}

// Who has a handler already (a sanitizer, an MPI) tells more.
void tell_crashes() {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = tell_crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(number, &action, nullptr);
  }
}

// What a hanging thread is in the middle of. Not safe in a signal's handler where it holds malloc's lock: the watchdog ends it.
void print_stack(int) {
  std::array<void*, 64> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), static_cast<int>(frames.size())), STDERR_FILENO);
}

// One after the other, that their lines do not mix. Threads that have ended are no more there to be asked.
void print_stacks(const Report& state) {
  struct sigaction action{};
  action.sa_handler = print_stack;
  action.sa_flags = SA_RESTART;
  if (sigaction(SIGUSR2, &action, nullptr) != 0) return;
  for (const auto& [id, place] : state.places)
    if (syscall(SYS_tgkill, getpid(), place.thread, SIGUSR2) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

}  // namespace

void report_failure(const std::string& text, std::source_location where) {
  auto& state = report();
  const std::lock_guard lock(state.mutex);
  ++state.failures;
  if (state.failures <= printed_failures) {
    const auto place = state.places.find(std::this_thread::get_id());
    print(fmt::format("FAILED {}: {}:{}: {}{}", head(state), where.file_name(), where.line(), text,
                      place == state.places.end() ? "" : fmt::format("\n  in step: {}", place->second.text)));
  }
  if (state.failures == most_failures) {
    print(fmt::format("FAILED {}: {} checks failed, giving up", head(state), most_failures));
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }
}

int failures() {
  auto& state = report();
  const std::lock_guard lock(state.mutex);
  return state.failures;
}

void enter_step(std::string text, std::source_location where) {
  auto& state = report();
  const std::lock_guard lock(state.mutex);
  ++state.steps;
  state.places.insert_or_assign(std::this_thread::get_id(), Place{std::move(text), where, gettid()});
}

void describe_process(std::string program, int rank, std::uint64_t seed) {
  auto& state = report();
  const std::lock_guard lock(state.mutex);
  state.program = std::move(program);
  state.rank = rank;
  state.seed = seed;
  tell_crashes();
}

std::string describe_mpi_error(int result) {
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int error_class = result, length = 0;
  MPI_Error_class(result, &error_class);
  if (MPI_Error_string(result, text.data(), &length) != MPI_SUCCESS) return fmt::format("error {}", result);
  text.resize(static_cast<std::size_t>(length));
  return fmt::format("error class {}: {}", error_class, text);
}

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  std::thread thread;

  void watch(std::chrono::duration<double> limit) {
    // Looks eight times in that time, so that it does not take up to twice as long to see it.
    constexpr int looks = 8;
    std::uint64_t seen = 0;
    int unchanged = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      if (wake.wait_for(lock, limit / looks, [this] { return done; })) return;
      auto& state = report();
      const std::lock_guard reporting(state.mutex);
      unchanged = state.steps == seen ? unchanged + 1 : 0;
      seen = state.steps;
      if (unchanged < looks) continue;
      for (const auto& [id, place] : state.places)
        print(fmt::format("HANGS {}: at {}:{}: {}", head(state), place.where.file_name(), place.where.line(),
                          place.text));
      print_stacks(state);
      break;
    }
    // The launcher kills the other ranks as soon as one has ended: let them say where they are.
    wake.wait_for(lock, limit / 4, [this] { return done; });
    std::_Exit(124);
  }
};

Watchdog::Watchdog(double seconds) : state_(new State) {
  state_->thread = std::thread([state = state_, seconds] { state->watch(std::chrono::duration<double>(seconds)); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->done = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
  delete state_;
}

}  // namespace crosslane::tests
