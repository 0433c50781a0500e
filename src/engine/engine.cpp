// The engine's turn and its wait.
#include "engine/engine.h"

#include "base/clock.h"
#include "base/cpu_relax.h"
#include "base/error.h"

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <new>
#include <thread>
#include <utility>

namespace crosslane::engine {
namespace {

// About ten microseconds: longer than a small GPU collective, shorter than a time slice lost by not yielding. Where ranks
// share processors the one that is waited for may need this very processor.
constexpr int spins = 300, shared_spins = 10;
// A look at requests and tasks takes as long as a yield: most of a wait is to be spent looking.
constexpr unsigned looks_a_yield = 64, shared_looks_a_yield = 16;
// Among many that wait a yield leads from one to the next, and the one that they wait for has its turn late.
constexpr unsigned yields_before_naps = 200, looks_a_nap = 8;  // some MPIs move a fragment a look
constexpr std::chrono::microseconds nap{20};
// Longer than any copy between a GPU and the host takes by itself.
constexpr base::Duration apart = std::chrono::seconds(1);

/// What a wait does between looks: yields; and after many in vain, where ranks share processors, naps.
class Rests {
 public:
  explicit Rests(bool naps) noexcept : naps_(naps) {}
  void rest() noexcept {
    ++in_vain_;
    if (!naps_ || in_vain_ < yields_before_naps || in_vain_ % looks_a_nap != 0)
      sched_yield();
    else
      std::this_thread::sleep_for(nap);
  }
  void moved() noexcept { in_vain_ = 0; }

 private:
  const bool naps_;
  unsigned in_vain_ = 0;
};

std::uint64_t events_of(const Watch& watch) noexcept { return watch.events != nullptr ? *watch.events : 0; }

}  // namespace

/// Ownership of the engine by this thread, if it was free. What the last owner wrote is visible to the next one. In one order with what is
/// posted: see enter().
class Engine::Inside {
 public:
  explicit Inside(std::atomic<std::thread::id>& inside) noexcept : inside_(inside) {
    std::thread::id nobody{};
    owns_ = inside_.compare_exchange_strong(nobody, std::this_thread::get_id(), std::memory_order_seq_cst);
  }
  ~Inside() {
    if (owns_) inside_.store(std::thread::id{}, std::memory_order_seq_cst);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  explicit operator bool() const noexcept { return owns_; }

 private:
  std::atomic<std::thread::id>& inside_;
  bool owns_;
};

Engine::Engine(const mpi::Functions& below, double watchdog_seconds, MpiIdle mpi_idle)
    : below_(below),
      watchdog_seconds_(watchdog_seconds),
      mpi_idle_(mpi_idle),
      spins_(spins),
      looks_a_yield_(looks_a_yield),
      requests_(below) {}

Engine::~Engine() { abandon(); }  // tasks may refer to what this class has beyond the runner

void Engine::keep_mpi_progressing(std::optional<MPI_Comm> communicator) noexcept { poked_ = communicator; }

void Engine::share_processors() noexcept {
  shares_processors_ = true;
  spins_ = shared_spins;
  looks_a_yield_ = shared_looks_a_yield;
}

void Engine::adopt(const Completion& completion) {
  switch (completion.kind_) {
    case Completion::Kind::request:
      requests_.adopt(std::static_pointer_cast<RequestState>(completion.state_));
      break;
    case Completion::Kind::all:
    case Completion::Kind::any:
      for (const Completion& member : completion.members()) adopt(member);
      break;
    default:
      break;
  }
}

Completion Engine::spawn(Task<> task) {
  Completion completion = post(std::move(task));
  enter([this] { start_posted(); });
  return completion;
}

// A thread that finds another one in the engine leaves to it what it has posted, and may not come again for long: so who leaves looks whether
// something was posted meanwhile. One of the two sees what the other did.
template <class Body>
void Engine::enter(Body&& body) {
  bool first = true;
  do {
    const Inside inside{inside_};
    if (!inside) return;
    if (std::exchange(first, false))
      body();
    else
      start_posted();
  } while (posted());
}

// Tasks go on, and may free memory, where there is none to test requests with: those are tested in a later turn.
bool Engine::turn_inside() {
  bool moved = false;
  try {
    moved = !requests_.empty() && requests_.test();
  } catch (const std::bad_alloc&) {
    moved = false;
  }
  if (!Runner::idle()) moved = turn() || moved;
  return moved;
}

bool Engine::progress() {
  if (idle()) return false;
  bool moved = false;
  enter([&] { moved = turn_inside(); });
  return moved;
}

void Engine::wait(const Completion& completion, const Watch& watch) {
  const trace::Span span(tracer_, trace::Kind::wait, watch.call);
  if (completion.is_word() && soon([&] { return completion.done(); })) return;
  wait_slowly(completion, watch);
  completion.rethrow();
}

void Engine::run(Task<> task, const Watch& watch) {
  const Completion ended = spawn(std::move(task));
  for (;;) {
    try {
      return wait(ended, watch);
    } catch (const std::bad_alloc&) {
      if (ended.done()) return ended.rethrow();
      // What this thread did while it waited found no memory, and may find it next time.
    }
  }
}

void Engine::wait_apart(const Completion& completion, const Watch& watch) {
  const trace::Span span(tracer_, trace::Kind::wait, watch.call);
  const base::Time begun = base::now();
  Rests rests(shares_processors_);
  do {
    if (soon([&] { return completion.done(); })) return;
    rests.rest();
  } while (base::now() - begun < apart);
  wait_slowly(completion, watch);
  completion.rethrow();
}

bool Engine::soon(base::FunctionRef<bool()> done) const {
  for (int spin = 0; spin < spins_; ++spin) {
    if (done()) return true;
    base::cpu_relax();
  }
  return false;
}

void Engine::until(base::FunctionRef<bool()> done, const Watch& watch) {
  if (inside_.load(std::memory_order_relaxed) == std::this_thread::get_id())
    throw base::Error(base::ErrorClass::intern, "a task must co_await, not block: {}", describe(watch));
  const trace::Span span(tracer_, trace::Kind::wait, watch.call);
  Watchdog watchdog{watch, watchdog_seconds_};
  Rests rests(shares_processors_);
  std::uint64_t seen = events_of(watch);
  for (unsigned looks = 1; !done(); ++looks) {
    bool moved = false;
    if (!idle()) enter([&] { moved = turn_inside(); });
    const std::uint64_t events = events_of(watch);
    moved = std::exchange(seen, events) != events || moved;
    if (moved) {
      rests.moved();
      watchdog.look(true);
    } else if (looks % looks_a_yield_ == 0) {
      watchdog.look(false);
      rests.rest();
    }
  }
}

void Engine::until_apart(base::FunctionRef<bool()> done, const Watch& watch) const {
  const trace::Span span(tracer_, trace::Kind::wait, watch.call);
  Watchdog watchdog{watch, watchdog_seconds_};
  Rests rests(shares_processors_);
  while (!soon(done)) {
    watchdog.look(false);
    rests.rest();
  }
}

bool Engine::may_sleep(const Completion& completion) const {
  return mpi_idle_ == MpiIdle::sleep && !completion.done() && completion.needs_no_polling() && needs_no_polling() &&
         !requests_.empty();
}

// An answer is not wanted; the question makes MPI progress. Its failure is not this wait's.
void Engine::make_mpi_progress() {
  if (!poked_) return;
  int flag = 0;
  static_cast<void>(below_.Iprobe(mpi::any_source, mpi::any_tag, *poked_, &flag, mpi::status_ignore()));
}

void Engine::wait_slowly(const Completion& completion, const Watch& watch) {
  if (inside_.load(std::memory_order_relaxed) == std::this_thread::get_id())
    throw base::Error(base::ErrorClass::intern, "a task must co_await, not block: {}", describe(watch));
  adopt(completion);
  Watchdog watchdog{watch, watchdog_seconds_};
  Rests rests(shares_processors_);
  while (!completion.done()) {
    bool moved = false;
    enter([&] {
      moved = turn_inside();
      if (!moved && may_sleep(completion)) {
        requests_.sleep();
        moved = true;
      } else if (!moved && requests_.empty()) {
        make_mpi_progress();
      }
    });
    if (moved) {
      rests.moved();
      watchdog.look(true);
      continue;
    }
    for (int spin = 0; spin < spins_ && completion.is_word() && !completion.done(); ++spin) base::cpu_relax();
    if (completion.done()) break;
    watchdog.look(false);
    rests.rest();
  }
}

}  // namespace crosslane::engine
