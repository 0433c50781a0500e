// See mapped_epochs.h.
#include "interpose/mapped_epochs.h"

#include "base/attempt.h"
#include "base/error.h"
#include "interpose/mapped_window.h"
#include "interpose/route.h"
#include "interpose/windows.h"

#include <exception>

namespace crosslane::interpose::mapped {
namespace {

// Whether the call completes accesses of this rank: all of them, whichever target it names.
enum class Completes { none, accesses };

// Throws Error (assert): nothing of the call has been done.
void check_assertion(const char* call, int assertion) {
  constexpr int all =
      mpi::mode_nocheck | mpi::mode_nostore | mpi::mode_noput | mpi::mode_noprecede | mpi::mode_nosucceed;
  if ((assertion & ~all) != 0)
    throw base::Error(
        base::ErrorClass::assertion,
        "{}: assert: {:#x} has bits of no assertion; it is 0, or some of MPI_MODE_NOCHECK, MPI_MODE_NOSTORE, "
        "MPI_MODE_NOPUT, MPI_MODE_NOPRECEDE and MPI_MODE_NOSUCCEED",
        call, static_cast<unsigned>(assertion));
}

// body(call, epochs), once these are over. What fails before it is told after it, since other ranks wait for the call.
template <class Body>
std::optional<int> synchronising(const Site& site, const char* call, int assertion, MPI_Win win, Completes completes,
                                 const Body& body) {
  auto& process = site.process();
  const auto window = mapped_window(site, win);
  if (window == nullptr) return std::nullopt;
  MappedWindow* const mapped = window->mapped();
  return run_route(process, site.next(), call, Target::of_win(win), [&](Route&) {
    check_assertion(call, assertion);
    std::exception_ptr failure;
    base::attempt(failure, [&] {
      if (completes == Completes::accesses) mapped->finish();
      mapped->settle(call);
    });
    mapped->goes_on();
    body(call, mapped->epochs());
    process.engine().make_mpi_progress();  // as any such call of MPI's: others may wait for this rank's messages
    if (failure) std::rethrow_exception(failure);
    return mpi::success;
  });
}

// Of calls that take no assertion.
template <class Body>
std::optional<int> synchronising(const Site& site, const char* call, MPI_Win win, Completes completes,
                                 const Body& body) {
  return synchronising(site, call, 0, win, completes, body);
}

}  // namespace

std::optional<int> fence(const Site& site, int assertion, MPI_Win win) {
  return synchronising(
      site, "MPI_Win_fence", assertion, win, Completes::accesses,
      [&](const char* call, WindowEpochs& epochs) { epochs.fence(call, (assertion & mpi::mode_nosucceed) == 0); });
}

std::optional<int> start(const Site& site, MPI_Group group, int assertion, MPI_Win win) {
  return synchronising(site, "MPI_Win_start", assertion, win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.start(call, group); });
}

std::optional<int> complete(const Site& site, MPI_Win win) {
  return synchronising(site, "MPI_Win_complete", win, Completes::accesses,
                       [&](const char* call, WindowEpochs& epochs) { epochs.complete(call); });
}

std::optional<int> post(const Site& site, MPI_Group group, int assertion, MPI_Win win) {
  return synchronising(site, "MPI_Win_post", assertion, win, Completes::none,
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

std::optional<int> lock(const Site& site, int lock_type, int rank, int assertion, MPI_Win win) {
  return synchronising(site, "MPI_Win_lock", assertion, win, Completes::none,
                       [&](const char* call, WindowEpochs& epochs) { epochs.lock(call, rank, lock_type); });
}

std::optional<int> lock_all(const Site& site, int assertion, MPI_Win win) {
  return synchronising(site, "MPI_Win_lock_all", assertion, win, Completes::none,
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

std::optional<int> shared_query(const Site& site, const char* call, int rank, MPI_Win win) {
  const auto window = mapped_window(site, win);
  if (window == nullptr) return std::nullopt;
  return run_route(site.process(), site.next(), call, Target::of_win(win), [&](Route&) {
    if (rank != mpi::proc_null) window->mapped()->epochs().check_rank(call, rank);
    return mpi::success;
  });
}

}  // namespace crosslane::interpose::mapped
