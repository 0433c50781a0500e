// Completion and query of requests, some of which carry host copies of ours or receives that are looked at (MPI 5.0,
// sections 3.7 and 3.9). The MPI completes them; afterwards what they received is where it belongs. Calls with no such
// request go straight on. What waits is a loop around what tests: a payload has to be fetched meanwhile.
#include "interpose/pending.h"

#include "interpose/manual.h"
#include "interpose/receive.h"
#include "mpi/status.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace crosslane::interpose {
namespace {

// Runs a completion call; errors of ours are raised on the communicator of the request that they belong to.
template <class Body>
int completing(const Site& site, const char* call, const MPI_Request requests[], int count, Body&& body,
               Pending::Purpose purpose = Pending::Purpose::completion) {
  Target blamed = Target::self();
  const auto complete = [&] {
    site.process().settle(false);
    Pending pending(site, call, requests, count, blamed, purpose);
    const int result = body(pending);
    pending.raise_failures();
    return result;
  };
  return raising(site.process(), blamed, call, complete, site.level());
}

int test_one(const Site& site, Pending& pending, MPI_Request* request, int* flag, MPI_Status* status) {
  *flag = 0;
  if (!pending.advance()) return mpi::success;
  if (pending.ends_here(0)) {
    *flag = 1;
    return pending.end(0, request, status);
  }
  pending.leave_ready_to_mpi();
  Statuses own(status, 1);
  const int result = pending.ask_mpi([&] { return site.next().Test(request, flag, own.data()); });
  if (result == mpi::success && *flag == 0) return result;
  if (pending.mpi_threw() && !pending.is_gone(0, *request)) return result;
  return pending.completed(0, own.data(), result);
}

/// What a call that waits for all requests has completed while it waits for the others: that takes about as long as MPI takes to begin a message,
/// and would come behind the last of a window for each of them.
class Early {
 public:
  explicit Early(int count) : ended_(static_cast<std::size_t>(count)) {}

  void end(Pending& pending, MPI_Request requests[]) {
    for (const int index : pending.take_over()) {
      Ended& one = ended_[static_cast<std::size_t>(index)];
      if (pending.may_end_early(index)) one.code = pending.end(index, &requests[index], &one.status);
    }
  }
  /// The error code of what was completed, and its status; nothing of others.
  [[nodiscard]] std::optional<int> ended(int index, MPI_Status& status) const {
    const Ended& one = ended_[static_cast<std::size_t>(index)];
    if (one.code) mpi::copy_but_error(one.status, &status);
    return one.code;
  }
  /// Where the call fails, and the others are still there.
  void tell(const Statuses& statuses) const {
    for (std::size_t i = 0; i < ended_.size(); ++i) {
      const int index = static_cast<int>(i);
      const auto code = ended(index, statuses[index]);
      if (code && *code != mpi::success) mpi::set_error(statuses[index], *code);
    }
  }

 private:
  struct Ended {
    std::optional<int> code;
    MPI_Status status;
  };
  std::vector<Ended> ended_;
};

// How a call ends: at once, or inside MPI where nothing is looked at.
enum class Patience { test, wait };

int test_all(const Site& site, Pending& pending, int count, MPI_Request requests[], int* flag, Statuses& own,
             Patience patience = Patience::test, const Early* early = nullptr) {
  const auto& next = site.next();
  *flag = 0;
  if (!pending.advance()) return mpi::success;
  auto handles = pending.visible(requests);
  if (auto* const attended = patience == Patience::wait ? site.process().attended() : nullptr)
    attended->leave_attended();
  if (patience == Patience::wait) *flag = 1;
  int result = pending.ask_mpi([&] {
    return patience == Patience::wait ? next.Waitall(count, handles.data(), own.data())
                                      : next.Testall(count, handles.data(), flag, own.data());
  });
  // MPICH tells of errors while others are pending: 4.0 has completed what failed, 5.0 leaves all as it was.
  if (*flag == 0 && !pending.mpi_threw() &&
      (result == mpi::success || (result == mpi::err_in_status && pending.left_alone(requests, handles, own))))
    return mpi::success;
  pending.copy_back(handles, requests);
  // One that failed makes the others' statuses count too.
  const bool told = result == mpi::success;
  const auto error_of = [&](int i) {
    if (pending.mpi_threw() && !pending.is_gone(i, requests[i])) return mpi::err_pending;
    return told ? mpi::success : mpi::error(own[i]);
  };
  std::vector<int> arrived;
  for (int i = 0; i < count && (told || result == mpi::err_in_status); ++i)  // else the statuses say nothing
    if (pending.active(i) && !pending.ends_here(i) && error_of(i) == mpi::success) arrived.push_back(i);
  if (arrived.size() > 1) pending.deliver(arrived, own);
  std::vector<int> codes(static_cast<std::size_t>(count), mpi::success);
  for (int i = 0; i < count; ++i) {
    int& code = codes[static_cast<std::size_t>(i)];
    if (const auto ended = early != nullptr ? early->ended(i, own[i]) : std::nullopt) {
      code = *ended;
    } else if (pending.ends_here(i)) {
      code = pending.end(i, &requests[i], &own[i]);
    } else if (told || result == mpi::err_in_status) {
      code = error_of(i);
      if (code != mpi::err_pending) code = pending.completed(i, &own[i], code);
    }
    if (code != mpi::success && result == mpi::success) result = mpi::err_in_status;
  }
  if (result == mpi::err_in_status)
    for (int i = 0; i < count; ++i) mpi::set_error(own[i], codes[static_cast<std::size_t>(i)]);
  *flag = 1;
  return result;
}

int test_any(const Site& site, Pending& pending, int count, MPI_Request requests[], int* index, int* flag,
             MPI_Status* status, Patience patience = Patience::test) {
  const auto& next = site.next();
  *flag = 0;
  const bool all_ready = pending.advance(Pending::Until::first);
  for (int i = 0; i < count; ++i) {
    if (!pending.ends_here(i)) continue;
    *flag = 1;
    *index = i;
    return pending.end(i, &requests[i], status);
  }
  Statuses own(status, 1);
  auto handles = pending.visible(requests);
  if (patience == Patience::wait) *flag = 1;
  *index = mpi::undefined;  // what fails may leave it as it is
  const int result = pending.ask_mpi([&] {
    return patience == Patience::wait ? next.Waitany(count, handles.data(), index, own.data())
                                      : next.Testany(count, handles.data(), index, flag, own.data());
  });
  pending.copy_back(handles, requests);
  if (result == mpi::success && *flag == 0) return result;
  for (int i = 0; pending.mpi_threw() && i < count; ++i)
    if (pending.active(i) && pending.is_gone(i, requests[i])) return pending.completed(i, own.data(), result);
  if (pending.mpi_threw()) return result;
  if (*index >= 0 && *index < count) return pending.completed(*index, own.data(), result);
  // Nothing that MPI sees is active, but receives that it does not see are.
  if (result == mpi::success && !all_ready) *flag = 0;
  return result;
}

int test_some(const Site& site, Pending& pending, int count, MPI_Request requests[], int* outcount, int indices[],
              Statuses& own, Patience patience = Patience::test) {
  const auto& next = site.next();
  const bool all_ready = pending.advance();
  bool ends_here = false;
  for (int i = 0; i < count && !ends_here; ++i) ends_here = pending.ends_here(i);
  auto handles = pending.visible(requests);
  *outcount = 0;  // what fails may leave it as it is
  int result = pending.ask_mpi([&] {
    return patience == Patience::wait ? next.Waitsome(count, handles.data(), outcount, indices, own.data())
                                      : next.Testsome(count, handles.data(), outcount, indices, own.data());
  });
  pending.copy_back(handles, requests);
  if (*outcount == mpi::undefined) {
    if (all_ready && !ends_here) return result;
    *outcount = 0;
  }
  const bool told = result == mpi::success;
  if (!told && result != mpi::err_in_status) return result;
  std::vector<int> codes;
  codes.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < *outcount; ++i) {
    const int code = told ? mpi::success : mpi::error(own[i]);
    const bool completed = !pending.mpi_threw() || pending.is_gone(indices[i], requests[indices[i]]);
    codes.push_back(completed ? pending.completed(indices[i], &own[i], code) : code);
  }
  for (int i = 0; i < count; ++i) {
    if (!pending.ends_here(i)) continue;
    indices[*outcount] = i;
    codes.push_back(pending.end(i, &requests[i], &own[*outcount]));
    ++*outcount;
  }
  if (std::any_of(codes.begin(), codes.end(), [](int code) { return code != mpi::success; }))
    result = mpi::err_in_status;
  if (result == mpi::err_in_status)
    for (int i = 0; i < *outcount; ++i) mpi::set_error(own[i], codes[static_cast<std::size_t>(i)]);
  return result;
}

// A call that does not wait, and knows none of its requests.
bool passes(const Site& site, const Pending& pending) {
  if (!pending.none()) return false;
  site.process().awaited().passes(site.process());
  return true;
}

// Asks `once` until it says that the call is over.
template <class Once>
int waiting(const Site& site, Pending& pending, Once&& once) {
  int result = mpi::success;
  pending.leave_turns_to_wait();
  engine::Watch watch = pending.watch();
  wait_until(
      site.process(),
      [&] {
        bool over = false;
        result = once(over);
        if (pending.watch_is_over()) watch = pending.watch();
        return over || result != mpi::success;
      },
      watch);
  return result;
}

}  // namespace

int manual::wait(const Site& site, MPI_Request* request, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Wait(request, status);
  return completing(site, "MPI_Wait", request, 1, [&](Pending& pending) {
    if (pending.none()) return next.Wait(request, status);
    if (pending.looks()) {
      return waiting(site, pending, [&](bool& over) {
        int flag = 0;
        const int result = test_one(site, pending, request, &flag, status);
        over = flag != 0;
        return result;
      });
    }
    Statuses own(status, 1);
    const int result = pending.ask_mpi([&] { return next.Wait(request, own.data()); });
    if (pending.mpi_threw() && !pending.is_gone(0, *request)) return result;
    return pending.completed(0, own.data(), result);
  });
}

int manual::waitall(const Site& site, int count, MPI_Request requests[], MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Waitall(count, requests, statuses);
  return completing(site, "MPI_Waitall", requests, count, [&](Pending& pending) {
    if (pending.none()) return next.Waitall(count, requests, statuses);
    Statuses own(statuses, count);
    int whole = 0;
    if (!pending.looks()) return test_all(site, pending, count, requests, &whole, own, Patience::wait);
    // Persistent collectives are errors to MPICH 5.0's MPI_Testall, though not to its MPI_Waitall: what is left to it is waited for
    // there, once all that it does not see is ready.
    const Patience patience = pending.any_persistent() ? Patience::wait : Patience::test;
    Early early(count);
    try {
      return waiting(site, pending, [&](bool& over) {
        int flag = 0;
        const int result = test_all(site, pending, count, requests, &flag, own, patience, &early);
        over = flag != 0;
        if (!over && result == mpi::success) {
          early.end(pending, requests);
          pending.raise_failures();
        }
        return result;
      });
    } catch (...) {
      early.tell(own);
      throw;
    }
  });
}

int manual::waitany(const Site& site, int count, MPI_Request requests[], int* index, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Waitany(count, requests, index, status);
  return completing(site, "MPI_Waitany", requests, count, [&](Pending& pending) {
    if (pending.none()) return next.Waitany(count, requests, index, status);
    int one = 0;
    if (!pending.looks()) return test_any(site, pending, count, requests, index, &one, status, Patience::wait);
    return waiting(site, pending, [&](bool& over) {
      int flag = 0;
      const int result = test_any(site, pending, count, requests, index, &flag, status);
      over = flag != 0;
      return result;
    });
  });
}

int manual::waitsome(const Site& site, int incount, MPI_Request requests[], int* outcount, int indices[],
                     MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || incount <= 0 || requests == nullptr)
    return next.Waitsome(incount, requests, outcount, indices, statuses);
  return completing(site, "MPI_Waitsome", requests, incount, [&](Pending& pending) {
    if (pending.none()) return next.Waitsome(incount, requests, outcount, indices, statuses);
    Statuses own(statuses, incount);
    if (!pending.looks()) return test_some(site, pending, incount, requests, outcount, indices, own, Patience::wait);
    return waiting(site, pending, [&](bool& over) {
      const int result = test_some(site, pending, incount, requests, outcount, indices, own);
      over = *outcount != 0;
      return result;
    });
  });
}

int manual::test(const Site& site, MPI_Request* request, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Test(request, flag, status);
  return completing(site, "MPI_Test", request, 1, [&](Pending& pending) {
    if (passes(site, pending)) return next.Test(request, flag, status);
    return test_one(site, pending, request, flag, status);
  });
}

int manual::testall(const Site& site, int count, MPI_Request requests[], int* flag, MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Testall(count, requests, flag, statuses);
  return completing(site, "MPI_Testall", requests, count, [&](Pending& pending) {
    if (passes(site, pending)) return next.Testall(count, requests, flag, statuses);
    Statuses own(statuses, count);
    return test_all(site, pending, count, requests, flag, own);
  });
}

int manual::testany(const Site& site, int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr)
    return next.Testany(count, requests, index, flag, status);
  return completing(site, "MPI_Testany", requests, count, [&](Pending& pending) {
    if (passes(site, pending)) return next.Testany(count, requests, index, flag, status);
    return test_any(site, pending, count, requests, index, flag, status);
  });
}

int manual::testsome(const Site& site, int incount, MPI_Request requests[], int* outcount, int indices[],
                     MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || incount <= 0 || requests == nullptr)
    return next.Testsome(incount, requests, outcount, indices, statuses);
  return completing(site, "MPI_Testsome", requests, incount, [&](Pending& pending) {
    if (passes(site, pending)) return next.Testsome(incount, requests, outcount, indices, statuses);
    Statuses own(statuses, incount);
    return test_some(site, pending, incount, requests, outcount, indices, own);
  });
}

// A freed request that is still active goes on in the MPI: its host copy lives until then.
int manual::request_free(const Site& site, MPI_Request* request) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Request_free(request);
  auto& process = site.process();
  const auto let_go = [&] {
    process.settle(false);
    auto operation = process.requests().take(*request);
    if (!operation || (operation->persistent && !operation->active)) return next.Request_free(request);
    process.requests().adopt(*request, std::move(operation));
    *request = process.library().handles().request_null;
    return mpi::success;
  };
  return raising(process, Target::self(), "MPI_Request_free", let_go, site.level());
}

int manual::request_get_status(const Site& site, MPI_Request request, int* flag, MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site)) return next.Request_get_status(request, flag, status);
  return completing(
      site, "MPI_Request_get_status", &request, 1,
      [&](Pending& pending) {
        if (passes(site, pending)) return next.Request_get_status(request, flag, status);
        return pending.query(0, request, flag, status);
      },
      Pending::Purpose::query);
}

int manual::request_get_status_all(const Site& site, int count, const MPI_Request requests[], int* flag,
                                   MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr)
    return next.Request_get_status_all(count, requests, flag, statuses);
  return completing(
      site, "MPI_Request_get_status_all", requests, count,
      [&](Pending& pending) {
        if (passes(site, pending)) return next.Request_get_status_all(count, requests, flag, statuses);
        Statuses own(statuses, count);
        *flag = 1;
        for (int i = 0; i < count && *flag != 0; ++i)
          if (const int result = pending.query(i, requests[i], flag, &own[i]); result != mpi::success) return result;
        return mpi::success;
      },
      Pending::Purpose::query);
}

int manual::request_get_status_any(const Site& site, int count, const MPI_Request requests[], int* index, int* flag,
                                   MPI_Status* status) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr)
    return next.Request_get_status_any(count, requests, index, flag, status);
  return completing(
      site, "MPI_Request_get_status_any", requests, count,
      [&](Pending& pending) {
        if (passes(site, pending)) return next.Request_get_status_any(count, requests, index, flag, status);
        // What is null or inactive counts only if nothing else is there: the MPI knows which is.
        bool one_is_ours = false;
        for (int i = 0; i < count; ++i) {
          if (!pending.active(i)) continue;
          one_is_ours = true;
          if (const int result = pending.query(i, requests[i], flag, status); result != mpi::success) return result;
          *index = i;
          if (*flag != 0) return mpi::success;
        }
        const auto others = pending.others(requests);
        const int result = next.Request_get_status_any(count, others.data(), index, flag, status);
        if (result == mpi::success && one_is_ours && *index == mpi::undefined) *flag = 0;
        return result;
      },
      Pending::Purpose::query);
}

int manual::request_get_status_some(const Site& site, int incount, const MPI_Request requests[], int* outcount,
                                    int indices[], MPI_Status statuses[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || incount <= 0 || requests == nullptr)
    return next.Request_get_status_some(incount, requests, outcount, indices, statuses);
  return completing(
      site, "MPI_Request_get_status_some", requests, incount,
      [&](Pending& pending) {
        if (passes(site, pending)) return next.Request_get_status_some(incount, requests, outcount, indices, statuses);
        Statuses own(statuses, incount);
        const auto others = pending.others(requests);
        const int result = next.Request_get_status_some(incount, others.data(), outcount, indices, own.data());
        if (result != mpi::success) return result;
        int found = *outcount == mpi::undefined ? 0 : *outcount;
        bool one_is_ours = false;
        for (int i = 0; i < incount; ++i) {
          if (!pending.active(i)) continue;
          one_is_ours = true;
          int flag = 0;
          if (const int code = pending.query(i, requests[i], &flag, &own[found]); code != mpi::success) return code;
          if (flag != 0) indices[found++] = i;
        }
        if (found != 0 || one_is_ours) *outcount = found;
        return mpi::success;
      },
      Pending::Purpose::query);
}

}  // namespace crosslane::interpose
