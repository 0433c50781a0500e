// See mapped_epochs.h.
#include "interpose/mapped_epochs.h"

#include "interpose/mapped_window.h"
#include "interpose/route.h"
#include "interpose/windows.h"

#include <exception>

namespace crosslane::interpose::mapped {
namespace {

// Whether the call completes accesses of this rank: all of them, whichever target it names.
enum class Completes { none, accesses };

// body(call, epochs), once these are over. What fails before it is told after it, since other ranks wait for the call.
template <class Body>
std::optional<int> synchronising(const Site& site, const char* call, MPI_Win win, Completes completes,
                                 const Body& body) {
  auto& process = site.process();
  const auto window = mapped_window(site, win);
  if (window == nullptr) return std::nullopt;
  MappedWindow* const mapped = window->mapped();
  return run_route(process, site.next(), call, Target::of_win(win), [&](Route&) {
    std::exception_ptr failure;
    try {
      if (completes == Completes::accesses) mapped->finish();
      mapped->settle(call);
    } catch (...) {
      failure = std::current_exception();
    }
    body(call, mapped->epochs());
    process.engine().make_mpi_progress();  // as any such call of MPI's: others may wait for this rank's messages
    if (failure) std::rethrow_exception(failure);
    return mpi::success;
  });
}

}  // namespace

std::optional<int> fence(const Site& site, int assert, MPI_Win win) {
  return synchronising(site, "MPI_Win_fence", win, Completes::accesses, [&](const char* call, WindowEpochs& epochs) {
    epochs.fence(call, (assert& mpi::mode_nosucceed) == 0);
  });
}

std::optional<int> start(const Site& site, MPI_Group group, MPI_Win win) {
  return synchronising(site, "MPI_Win_start", win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.start(call, group); });
}

std::optional<int> complete(const Site& site, MPI_Win win) {
  return synchronising(site, "MPI_Win_complete", win, Completes::accesses,
                       [&](const char* call, WindowEpochs& epochs) { epochs.complete(call); });
}

std::optional<int> post(const Site& site, MPI_Group group, MPI_Win win) {
  return synchronising(site, "MPI_Win_post", win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.post(call, group); });
}

std::optional<int> wait(const Site& site, MPI_Win win) {
  return synchronising(site, "MPI_Win_wait", win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.end_post(call); });
}

std::optional<int> test(const Site& site, MPI_Win win, int* flag) {
  return synchronising(site, "MPI_Win_test", win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { *flag = epochs.try_end_post(call) ? 1 : 0; });
}

std::optional<int> lock(const Site& site, int lock_type, int rank, MPI_Win win) {
  return synchronising(site, "MPI_Win_lock", win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.lock(call, rank, lock_type); });
}

std::optional<int> lock_all(const Site& site, MPI_Win win) {
  return synchronising(site, "MPI_Win_lock_all", win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.lock_all(call); });
}

std::optional<int> unlock(const Site& site, int rank, MPI_Win win) {
  return synchronising(site, "MPI_Win_unlock", win, Completes::accesses,
                       [&](const char* call, WindowEpochs& epochs) { epochs.unlock(call, rank); });
}

std::optional<int> unlock_all(const Site& site, MPI_Win win) {
  return synchronising(site, "MPI_Win_unlock_all", win, Completes::accesses,
                       [&](const char* call, WindowEpochs& epochs) { epochs.unlock_all(call); });
}

std::optional<int> flush(const Site& site, const char* call, std::optional<int> rank, MPI_Win win) {
  return synchronising(site, call, win, Completes::accesses,
                       [&](const char*, const WindowEpochs& epochs) { epochs.check_locked(call, rank); });
}

// There is one copy, and what lies there is what all see.
std::optional<int> sync(const Site& site, MPI_Win win) {
  return synchronising(site, "MPI_Win_sync", win, Completes::none, [](const char*, const WindowEpochs&) {});
}

}  // namespace crosslane::interpose::mapped
