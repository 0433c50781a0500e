// Windows in GPU memory, and the calls that complete one-sided accesses or synchronise windows (MPI 5.0, sections 12.2, 12.5, 12.7).
// The host copy of such a window is its public copy in the separate memory model, which it says it has, and the rules of
// section 12.7 say where the two are synchronised: stores to the window become public at MPI_Win_post, at a fence, when the rank
// unlocks its own memory and at MPI_Win_sync; what others stored is in the GPU memory after MPI_Win_wait, a fence, locking
// its own memory and MPI_Win_sync; and once the window is freed.
#include "interpose/exports.h"
#include "interpose/manual.h"
#include "interpose/process.h"
#include "interpose/route.h"
#include "interpose/windows.h"
#include "mpi/calls.h"

#include <optional>
#include <utility>

namespace crosslane::interpose {
namespace {

// Whose accesses MPI's call completes, if any's.
struct Completes {
  enum class Whose { nobodys, of_one, all } whose = Whose::nobodys;
  int rank = 0;
  [[nodiscard]] static Completes of(int target) { return {Whose::of_one, target}; }
  [[nodiscard]] static Completes all() { return {Whose::all}; }
};

struct Steps {
  bool publishes = false;  // before the call
  Completes completes;
  bool acquires = false;  // after it
};

// Makes MPI's call on a window, with what has to be done before and after it. `steps(window)` says what; `done()` whether the
// call has done what it is for.
template <class FindSteps, class Invoke, class Done>
int synchronise(const Site& site, const char* call, MPI_Win win, const FindSteps& steps, const Invoke& invoke,
                const Done& done) {
  auto& process = site.process();
  const auto window = site.watching() ? process.windows().find(win) : nullptr;
  if (window == nullptr) return invoke(site.next());
  return run_route(process, site.next(), call, Target::of_win(win), [&](Route& route) {
    const Steps wanted = steps(*window);
    if (wanted.publishes) window->publish(call);
    const int result = invoke(route.next());
    if (result != mpi::success || !done()) return result;
    if (wanted.completes.whose != Completes::Whose::nobodys) {
      const bool all = wanted.completes.whose == Completes::Whose::all;
      window->complete(process, all ? std::nullopt : std::optional(wanted.completes.rank));
    }
    if (wanted.acquires) window->acquire(call);
    return result;
  });
}

template <class Invoke>
int synchronise(const Site& site, const char* call, MPI_Win win, const Steps& steps, const Invoke& invoke) {
  return synchronise(site, call, win, [&](const Window&) { return steps; }, invoke, [] { return true; });
}

}  // namespace

int manual::win_create(const Site& site, const char* call, void* base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
                       MPI_Comm comm, MPI_Win* win) {
  return run_route(site.process(), site.next(), call, Target::of_comm(comm), [&](Route& route) {
    auto& process = route.process();
    std::unique_ptr<Shadow> shadow;
    if (size > 0 && site.watching() && beyond_cpu(site, base)) {
      process.took_route(call, "shadowed", static_cast<std::uint64_t>(size));
      shadow = std::make_unique<Shadow>(process, call, base, size);
    }
    void* const memory = shadow ? shadow->host() : base;
    const int result = mpi::calls::Win_create(route.next(), memory, size, disp_unit, info, comm, win);
    if (result != mpi::success || !shadow) return result;
    int me = 0;
    process.library().below().Comm_rank(comm, &me);
    process.windows().put(*win, std::make_shared<Window>(std::move(shadow), me));
    return result;
  });
}

int manual::win_free(const Site& site, MPI_Win* win) {
  auto& process = site.process();
  // Before MPI gives the handle to a new window of another thread.
  const MPI_Win handle = win == nullptr ? process.library().handles().win_null : *win;
  const auto window = site.watching() ? process.windows().take(handle) : nullptr;
  if (window == nullptr) return site.next().Win_free(win);
  constexpr const char* call = "MPI_Win_free";
  int result = mpi::success;
  const int code = run_route(process, site.next(), call, Target::self(), [&](Route& route) {
    result = route.next().Win_free(win);
    if (result != mpi::success) return result;
    window->complete(process, std::nullopt);
    window->acquire(call);
    return result;
  });
  if (result != mpi::success) process.windows().put(handle, window);
  return code;
}

int manual::win_get_attr(const Site& site, MPI_Win win, int win_keyval, void* attribute_val, int* flag) {
  static constexpr int separate = mpi::win_separate;
  const bool ours = win_keyval == mpi::win_base || win_keyval == mpi::win_model;
  const auto window = ours && site.watching() ? site.process().windows().find(win) : nullptr;
  const int result = site.next().Win_get_attr(win, win_keyval, attribute_val, flag);
  if (result != mpi::success || window == nullptr || window->shadow() == nullptr) return result;
  if (win_keyval == mpi::win_base) {
    *static_cast<void**>(attribute_val) = window->shadow()->base();
  } else {
    *static_cast<const int**>(attribute_val) = &separate;
  }
  return result;
}

int manual::win_fence(const Site& site, int assert, MPI_Win win) {
  const Steps steps{(assert& mpi::mode_nostore) == 0, Completes::all(), true};
  return synchronise(site, "MPI_Win_fence", win, steps,
                     [&](const mpi::Functions& next) { return next.Win_fence(assert, win); });
}

int manual::win_complete(const Site& site, MPI_Win win) {
  return synchronise(site, "MPI_Win_complete", win, Steps{false, Completes::all(), false},
                     [&](const mpi::Functions& next) { return next.Win_complete(win); });
}

int manual::win_post(const Site& site, MPI_Group group, int assert, MPI_Win win) {
  const Steps steps{(assert& mpi::mode_nostore) == 0, {}, false};
  return synchronise(site, "MPI_Win_post", win, steps,
                     [&](const mpi::Functions& next) { return next.Win_post(group, assert, win); });
}

int manual::win_wait(const Site& site, MPI_Win win) {
  return synchronise(site, "MPI_Win_wait", win, Steps{false, {}, true},
                     [&](const mpi::Functions& next) { return next.Win_wait(win); });
}

int manual::win_test(const Site& site, MPI_Win win, int* flag) {
  return synchronise(
      site, "MPI_Win_test", win, [](const Window&) { return Steps{false, {}, true}; },
      [&](const mpi::Functions& next) { return next.Win_test(win, flag); }, [&] { return *flag != 0; });
}

int manual::win_lock(const Site& site, int lock_type, int rank, int assert, MPI_Win win) {
  return synchronise(
      site, "MPI_Win_lock", win, [&](const Window& window) { return Steps{false, {}, window.is_me(rank)}; },
      [&](const mpi::Functions& next) { return next.Win_lock(lock_type, rank, assert, win); }, [] { return true; });
}

int manual::win_lock_all(const Site& site, int assert, MPI_Win win) {
  return synchronise(site, "MPI_Win_lock_all", win, Steps{false, {}, true},
                     [&](const mpi::Functions& next) { return next.Win_lock_all(assert, win); });
}

int manual::win_unlock(const Site& site, int rank, MPI_Win win) {
  return synchronise(
      site, "MPI_Win_unlock", win,
      [&](const Window& window) { return Steps{window.is_me(rank), Completes::of(rank), false}; },
      [&](const mpi::Functions& next) { return next.Win_unlock(rank, win); }, [] { return true; });
}

int manual::win_unlock_all(const Site& site, MPI_Win win) {
  return synchronise(site, "MPI_Win_unlock_all", win, Steps{true, Completes::all(), false},
                     [&](const mpi::Functions& next) { return next.Win_unlock_all(win); });
}

int manual::win_flush(const Site& site, int rank, MPI_Win win) {
  return synchronise(site, "MPI_Win_flush", win, Steps{false, Completes::of(rank), false},
                     [&](const mpi::Functions& next) { return next.Win_flush(rank, win); });
}

int manual::win_flush_all(const Site& site, MPI_Win win) {
  return synchronise(site, "MPI_Win_flush_all", win, Steps{false, Completes::all(), false},
                     [&](const mpi::Functions& next) { return next.Win_flush_all(win); });
}

int manual::win_flush_local(const Site& site, int rank, MPI_Win win) {
  return synchronise(site, "MPI_Win_flush_local", win, Steps{false, Completes::of(rank), false},
                     [&](const mpi::Functions& next) { return next.Win_flush_local(rank, win); });
}

int manual::win_flush_local_all(const Site& site, MPI_Win win) {
  return synchronise(site, "MPI_Win_flush_local_all", win, Steps{false, Completes::all(), false},
                     [&](const mpi::Functions& next) { return next.Win_flush_local_all(win); });
}

int manual::win_sync(const Site& site, MPI_Win win) {
  return synchronise(site, "MPI_Win_sync", win, Steps{true, {}, true},
                     [&](const mpi::Functions& next) { return next.Win_sync(win); });
}

}  // namespace crosslane::interpose
