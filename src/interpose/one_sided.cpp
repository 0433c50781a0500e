// Windows in GPU memory, and the calls that complete one-sided accesses or synchronise windows (MPI 5.0, sections 12.2, 12.5, 12.7).
// Where its ranks have each other's memory mapped there is one copy of a window, and MPI has no part in it (mapped_epochs.h). The host
// copy of another one is its public copy in the separate memory model, which it says it has, and rules 5 and 6 of section 12.7 say
// where the two are synchronised: stores to the window become public at a post, a fence, an unlock (whosever) and MPI_Win_sync of
// its owner; what others stored is in the GPU memory after its wait, fence, lock and MPI_Win_sync; and once the window is freed.
#include "base/attempt.h"
#include "interpose/exports.h"
#include "interpose/manual.h"
#include "interpose/mapped_epochs.h"
#include "interpose/process.h"
#include "interpose/route.h"
#include "interpose/window_maker.h"
#include "interpose/windows.h"
#include "mpi/calls.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace crosslane::interpose {
namespace {

// Whose memory the accesses are to that a call completes.
enum class Completed { none, of_target, all };

struct Steps {
  bool publishes = false;  // before MPI's call
  Completed completed = Completed::none;
  bool acquires = false;  // after it
  int target = 0;
  bool unchanged = false;  // MPI_MODE_NOSTORE
};

// Makes MPI's call on a window, with what has to be done before and after it. `done()`: whether the call has done what it is for. What
// fails before it is told after it, since other ranks wait for the call.
template <class Invoke, class Done>
int synchronise(const Site& site, const char* call, MPI_Win win, const Steps& steps, const Invoke& invoke,
                const Done& done) {
  auto& process = site.process();
  const auto window = site.watching() ? process.windows().find(win) : nullptr;
  if (window == nullptr) return invoke(site.next());
  return run_route(process, site.next(), call, Target::of_win(win), [&](Route& route) {
    std::exception_ptr failure;
    base::attempt(failure, [&] {
      if (steps.publishes)
        window->publish(call, steps.unchanged);
      else
        window->pass_by();
    });
    const std::uint64_t begun = window->begun();
    const int result = invoke(route.next());
    if (result != mpi::success || !done()) return result;
    if (steps.completed != Completed::none) {
      const bool all = steps.completed == Completed::all;
      base::attempt(failure,
                    [&] { window->complete(process, all ? std::nullopt : std::optional(steps.target), begun); });
    }
    if (steps.acquires) base::attempt(failure, [&] { window->acquire(call); });
    if (failure) std::rethrow_exception(failure);
    return result;
  });
}

template <class Invoke>
int synchronise(const Site& site, const char* call, MPI_Win win, const Steps& steps, const Invoke& invoke) {
  return synchronise(site, call, win, steps, invoke, [] { return true; });
}

// By what the window was made; of a mapped one that is another call than it was made by below.
int flavor_of(Process& process, MPI_Win win) {
  const auto window = process.windows().find(win);
  if (window != nullptr && window->mapped() != nullptr) return mpi::win_flavor_create;
  int* flavor = nullptr;
  int known = 0;
  const int code =
      process.library().below().Win_get_attr(win, mpi::win_create_flavor, static_cast<void*>(&flavor), &known);
  return code == mpi::success && known != 0 ? *flavor : mpi::win_flavor_dynamic;
}

// Whether the MPI's local flush completes what this rank has begun: else what a host copy holds by then is not what was fetched.
bool local_is_enough(const Site& site, MPI_Win win, std::optional<int> target) {
  if constexpr (!mpi::local_flushes_leave_gets) return true;
  const auto window = site.process().windows().find(win);
  return window == nullptr || !window->fetches(target);
}

bool nothing_stored(int assert) { return (assert& mpi::mode_nostore) != 0; }

}  // namespace

int manual::win_create(const Site& site, const char* call, void* base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info,
                       MPI_Comm comm, MPI_Win* win) {
  return run_route(site.process(), site.next(), call, Target::of_comm(comm), [&](Route& route) {
    auto& process = route.process();
    const bool on_gpu = size > 0 && site.watching() && beyond_cpu(site, base);
    if (site.watching() && !site.is_null(comm)) {
      if (auto mapped = map_window(process, call, base, size, on_gpu, disp_unit, info, comm)) {
        process.took_route(call, "direct", static_cast<std::uint64_t>(size));
        *win = mapped->epochs().window();
        process.windows().put(*win, std::make_shared<Window>(std::move(mapped)));
        return mpi::success;
      }
    }
    std::shared_ptr<Window> window;
    std::exception_ptr failure;
    if (on_gpu) {
      process.took_route(call, "shadowed", static_cast<std::uint64_t>(size));
      base::attempt(failure,
                    [&] { window = std::make_shared<Window>(std::make_unique<Shadow>(process, call, base, size)); });
    }
    if (site.watching()) agree(process, call, comm, failure);
    void* const memory = window ? window->shadow()->host() : base;
    const int result = mpi::calls::Win_create(route.next(), memory, size, disp_unit, info, comm, win);
    if (result == mpi::success && window) process.windows().put(*win, std::move(window));
    return result;
  });
}

// Where not all ranks can take part, the window is what it is without us: GPU memory is refused when it is attached.
int manual::win_create_dynamic(const Site& site, MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  auto& process = site.process();
  int result = mpi::success;
  {
    const Nested nested(site.level());
    result = site.next().Win_create_dynamic(info, comm, win);
  }
  if (result != mpi::success || !site.outer()) return result;
  return raising(process, Target::of_comm(comm), "MPI_Win_create_dynamic", [&] {
    if (auto attachments = Attachments::make(process, comm))
      process.windows().put(*win, std::make_shared<Window>(std::move(attachments)));
    return mpi::success;
  });
}

int manual::win_attach(const Site& site, MPI_Win win, void* base, MPI_Aint size) {
  const auto& next = site.next();
  const bool none = win == site.process().library().handles().win_null;  // MPI has its own words for it
  if (none || size <= 0 || !site.watching() || !beyond_cpu(site, base)) return next.Win_attach(win, base, size);
  constexpr const char* call = "MPI_Win_attach";
  return run_route(site.process(), next, call, Target::of_win(win), [&](Route& route) {
    auto& process = route.process();
    const auto window = process.windows().find(win);
    if (flavor_of(process, win) != mpi::win_flavor_dynamic)
      throw base::Error(base::ErrorClass::rma_flavor,
                        "{}: win: it is no dynamic window, to which alone memory is attached; make one by "
                        "MPI_Win_create_dynamic",
                        call);
    if (window == nullptr || window->attachments() == nullptr) {
      throw base::Error(
          base::ErrorClass::buffer,
          "{}: base: {} is GPU memory, which only dynamic windows take whose ranks all load Crosslane and belong to "
          "one MPI_COMM_WORLD, and whose communicator is not a session's; make a window of it by MPI_Win_create",
          call, static_cast<const void*>(base));
    }
    const auto bytes = static_cast<std::size_t>(size);
    window->attachments()->check(base, bytes);
    process.took_route(call, "shadowed", bytes);
    auto shadow = std::make_unique<Shadow>(process, call, base, size);
    void* const copy = shadow->host();
    const int result = route.next().Win_attach(win, copy, size);
    if (result != mpi::success) return result;
    try {
      window->attach(shadow, bytes);
    } catch (...) {
      route.next().Win_detach(win, copy);
      throw;
    }
    return result;
  });
}

int manual::win_detach(const Site& site, MPI_Win win, const void* base) {
  auto& process = site.process();
  const auto& next = site.next();
  const auto window = site.watching() ? process.windows().find(win) : nullptr;
  if (window == nullptr || window->attachments() == nullptr) return next.Win_detach(win, base);
  constexpr const char* call = "MPI_Win_detach";
  return run_route(process, next, call, Target::of_win(win), [&](Route& route) {
    return window->detach(call, base, [&](const void* memory) { return route.next().Win_detach(win, memory); });
  });
}

int manual::win_free(const Site& site, MPI_Win* win) {
  auto& process = site.process();
  const MPI_Win handle = win == nullptr ? process.library().handles().win_null : *win;
  const auto window = site.watching() ? process.windows().find(handle) : nullptr;
  constexpr const char* call = "MPI_Win_free";
  MappedWindow* const mapped = window == nullptr ? nullptr : window->mapped();
  std::exception_ptr failure;
  if (mapped != nullptr) {
    // Who comes to it has no access under way, and others may still have one to its memory until they come.
    const int code = run_route(process, site.next(), call, Target::of_win(handle), [&](Route&) {
      base::attempt(failure, [&] { mapped->finish(); });
      mapped->meet_to_free(call);
      return mpi::success;
    });
    if (code != mpi::success) return code;
  }
  int result = mpi::success;
  {
    // Callbacks of the application's attributes run in it, for which the window is what it was.
    const Nested nested(site.level());
    result = site.next().Win_free(win);
  }
  if (window == nullptr || result != mpi::success) return result;
  process.windows().drop(handle, window);
  if (failure) {
    return raising(process, Target::self(), call, [&]() -> int { std::rethrow_exception(failure); });
  }
  if (mapped != nullptr) return result;
  if (window->attachments() != nullptr) window->attachments()->free();
  return run_route(process, site.next(), call, Target::self(), [&](Route&) {
    base::attempt(failure, [&] { window->complete(process, std::nullopt, window->begun()); });
    base::attempt(failure, [&] { window->acquire(call); });
    if (failure) std::rethrow_exception(failure);
    return mpi::success;
  });
}

int manual::win_get_attr(const Site& site, MPI_Win win, int win_keyval, void* attribute_val, int* flag) {
  static constexpr int separate = mpi::win_separate, unified = mpi::win_unified, created = mpi::win_flavor_create;
  const bool mapped_alone = win_keyval == mpi::win_size || win_keyval == mpi::win_create_flavor;
  const bool ours = win_keyval == mpi::win_base || win_keyval == mpi::win_model || mapped_alone;
  const auto window = ours && site.watching() ? site.process().windows().find(win) : nullptr;
  const int result = site.next().Win_get_attr(win, win_keyval, attribute_val, flag);
  if (result != mpi::success || window == nullptr) return result;
  if (const MappedWindow* const mapped = window->mapped()) {
    if (win_keyval == mpi::win_model)
      *static_cast<const int**>(attribute_val) = &unified;
    else if (win_keyval == mpi::win_create_flavor)
      *static_cast<const int**>(attribute_val) = &created;
    else if (win_keyval == mpi::win_size)
      *static_cast<const MPI_Aint**>(attribute_val) = &mapped->size();
    else
      *static_cast<void**>(attribute_val) = mapped->base();
    return result;
  }
  if (mapped_alone || !window->shadowed()) return result;
  if (win_keyval == mpi::win_model)
    *static_cast<const int**>(attribute_val) = &separate;
  else if (window->shadow() != nullptr)
    *static_cast<void**>(attribute_val) = window->shadow()->base();
  return result;
}

int manual::win_fence(const Site& site, int assert, MPI_Win win) {
  if (const auto done = mapped::fence(site, assert, win)) return *done;
  return synchronise(
      site, "MPI_Win_fence", win,
      {.publishes = true, .completed = Completed::all, .acquires = true, .unchanged = nothing_stored(assert)},
      [&](const mpi::Functions& next) { return next.Win_fence(assert, win); });
}

int manual::win_start(const Site& site, MPI_Group group, int assert, MPI_Win win) {
  if (const auto done = mapped::start(site, group, assert, win)) return *done;
  return site.next().Win_start(group, assert, win);
}

int manual::win_complete(const Site& site, MPI_Win win) {
  if (const auto done = mapped::complete(site, win)) return *done;
  return synchronise(site, "MPI_Win_complete", win, {.completed = Completed::all},
                     [&](const mpi::Functions& next) { return next.Win_complete(win); });
}

int manual::win_post(const Site& site, MPI_Group group, int assert, MPI_Win win) {
  if (const auto done = mapped::post(site, group, assert, win)) return *done;
  return synchronise(site, "MPI_Win_post", win, {.publishes = true, .unchanged = nothing_stored(assert)},
                     [&](const mpi::Functions& next) { return next.Win_post(group, assert, win); });
}

int manual::win_wait(const Site& site, MPI_Win win) {
  if (const auto done = mapped::wait(site, win)) return *done;
  return synchronise(site, "MPI_Win_wait", win, {.acquires = true},
                     [&](const mpi::Functions& next) { return next.Win_wait(win); });
}

int manual::win_test(const Site& site, MPI_Win win, int* flag) {
  if (const auto done = mapped::test(site, win, flag)) return *done;
  return synchronise(
      site, "MPI_Win_test", win, {.acquires = true},
      [&](const mpi::Functions& next) { return next.Win_test(win, flag); }, [&] { return *flag != 0; });
}

int manual::win_lock(const Site& site, int lock_type, int rank, int assert, MPI_Win win) {
  if (const auto done = mapped::lock(site, lock_type, rank, assert, win)) return *done;
  return synchronise(site, "MPI_Win_lock", win, {.acquires = true},
                     [&](const mpi::Functions& next) { return next.Win_lock(lock_type, rank, assert, win); });
}

int manual::win_lock_all(const Site& site, int assert, MPI_Win win) {
  if (const auto done = mapped::lock_all(site, assert, win)) return *done;
  return synchronise(site, "MPI_Win_lock_all", win, {.acquires = true},
                     [&](const mpi::Functions& next) { return next.Win_lock_all(assert, win); });
}

int manual::win_unlock(const Site& site, int rank, MPI_Win win) {
  if (const auto done = mapped::unlock(site, rank, win)) return *done;
  return synchronise(site, "MPI_Win_unlock", win,
                     {.publishes = true, .completed = Completed::of_target, .target = rank},
                     [&](const mpi::Functions& next) { return next.Win_unlock(rank, win); });
}

int manual::win_unlock_all(const Site& site, MPI_Win win) {
  if (const auto done = mapped::unlock_all(site, win)) return *done;
  return synchronise(site, "MPI_Win_unlock_all", win, {.publishes = true, .completed = Completed::all},
                     [&](const mpi::Functions& next) { return next.Win_unlock_all(win); });
}

int manual::win_flush(const Site& site, int rank, MPI_Win win) {
  if (const auto done = mapped::flush(site, "MPI_Win_flush", rank, win)) return *done;
  return synchronise(site, "MPI_Win_flush", win, {.completed = Completed::of_target, .target = rank},
                     [&](const mpi::Functions& next) { return next.Win_flush(rank, win); });
}

int manual::win_flush_all(const Site& site, MPI_Win win) {
  if (const auto done = mapped::flush(site, "MPI_Win_flush_all", std::nullopt, win)) return *done;
  return synchronise(site, "MPI_Win_flush_all", win, {.completed = Completed::all},
                     [&](const mpi::Functions& next) { return next.Win_flush_all(win); });
}

int manual::win_flush_local(const Site& site, int rank, MPI_Win win) {
  if (const auto done = mapped::flush(site, "MPI_Win_flush_local", rank, win)) return *done;
  return synchronise(site, "MPI_Win_flush_local", win, {.completed = Completed::of_target, .target = rank},
                     [&](const mpi::Functions& next) {
                       return local_is_enough(site, win, rank) ? next.Win_flush_local(rank, win)
                                                               : next.Win_flush(rank, win);
                     });
}

int manual::win_flush_local_all(const Site& site, MPI_Win win) {
  if (const auto done = mapped::flush(site, "MPI_Win_flush_local_all", std::nullopt, win)) return *done;
  return synchronise(
      site, "MPI_Win_flush_local_all", win, {.completed = Completed::all}, [&](const mpi::Functions& next) {
        return local_is_enough(site, win, std::nullopt) ? next.Win_flush_local_all(win) : next.Win_flush_all(win);
      });
}

int manual::win_sync(const Site& site, MPI_Win win) {
  if (const auto done = mapped::sync(site, win)) return *done;
  return synchronise(site, "MPI_Win_sync", win, {.publishes = true, .acquires = true},
                     [&](const mpi::Functions& next) { return next.Win_sync(win); });
}

}  // namespace crosslane::interpose
