// What is left to Crosslane after the application's call: operations whose requests it freed, and payloads kept for slow
// receivers. Later calls give them a turn, those that may tell the application of what has come bring it there, MPI_Finalize ends them.
#include "base/function_ref.h"
#include "base/log.h"
#include "interpose/manual.h"
#include "interpose/process.h"
#include "interpose/receive.h"
#include "interpose/undertaking.h"
#include "mpi/status.h"

#include <exception>
#include <utility>

namespace crosslane::interpose {
namespace {

// Open MPI has freed a persistent request that failed.
void free_if_there(Process& process, MPI_Request request) {
  if (request != process.library().handles().request_null) process.library().below().Request_free(&request);
}

// Nobody is left to be told of an error but who reads the log.
void logging(const Operation& operation, base::FunctionRef<void()> body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    base::log(base::Topic::error, "{}, whose request was freed: {}", operation.call, error.what());
  }
}

void end(Process& process, Operation& operation, MPI_Request request) {
  logging(operation, [&] {
    if (operation.undertaking) {
      finish_undertaking(process, operation, &request, mpi::status_ignore());
    } else {
      finish(process, process.library().below(), operation, &request, mpi::status_ignore());
    }
  });
  if (operation.persistent) free_if_there(process, request);
}

// One that MPI has completed with a header, whose payload is not to be had, is over all the same.
void advance_or_fail(Process& process, Operation& operation, MPI_Request request) {
  Look& look = *operation.look;
  try {
    advance(process, operation, request);
  } catch (...) {
    if (look.state != Look::State::posted) throw;
    look.error = std::current_exception();
    look.state = Look::State::fetched;
  }
}

// Whether an operation is waited for: not at all; once it is known to receive a payload whose header has come, which no other rank keeps from
// coming; or until it is over.
enum class Wait { never, for_payload, always };

void wait_for_payload(Process& process, Operation& operation, MPI_Request request) {
  Look& look = *operation.look;
  if (!look.has_payload()) return;
  wait_until(
      process,
      [&] {
        advance_or_fail(process, operation, request);
        return !look.has_payload();
      },
      operation.watch());
}

// False: it is still under way.
bool settle_one(Process& process, const std::shared_ptr<Operation>& operation, MPI_Request request, Wait wait) {
  const auto& below = process.library().below();
  if (operation->looks()) {
    if (operation->look) operation->look->left = true;
    const auto ready = [&] {
      if (operation->look) advance_or_fail(process, *operation, request);
      if (operation->undertaking) operation->undertaking->look();
      if (operation->ready()) return true;
      if (operation->undertaking) process.engine().make_mpi_progress();
      return false;
    };
    if (wait == Wait::always) process.engine().until(ready, operation->watch());
    if (wait == Wait::for_payload && operation->look && !ready()) wait_for_payload(process, *operation, request);
    if (operation->undertaking) process.engine().progress();
    if (!ready()) return false;
    end(process, *operation, request);
    return true;
  }
  int flag = 1;
  MPI_Status status;
  MPI_Request held = request;
  const int code = wait == Wait::always ? below.Wait(&held, &status) : below.Test(&held, &flag, &status);
  if (code == mpi::success && flag == 0) return false;
  if (code == mpi::success || mpi::is_truncation(below, code))
    logging(*operation, [&] { operation->deliver(process.copier(), &status, below); });
  if (operation->persistent) free_if_there(process, held);
  return true;
}

// Each by itself: MPI may still write to the host copies of the others, and the call that this happens in is another's.
void settle_each(Process& process, base::FunctionRef<bool(const Operation&)> which, Wait wait) {
  auto& requests = process.requests();
  if (!requests.any_adopted()) return;
  Requests::Hand hand(requests, which, wait == Wait::always ? Requests::Hand::Time::any : Requests::Hand::Time::brief);
  hand.each([&](MPI_Request request, const std::shared_ptr<Operation>& operation) {
    bool settled = false;
    logging(*operation, [&] { settled = settle_one(process, operation, request, wait); });
    return settled;
  });
}

}  // namespace

void Process::settle(bool all) {
  settle([all](const Operation& operation) { return all && !operation.of_session; });
}

void Process::settle(base::FunctionRef<bool(const Operation&)> awaited) {
  if (transfers_) transfers_->progress();
  settle_each(*this, [&](const Operation& operation) { return !awaited(operation); }, Wait::never);
  settle_each(*this, awaited, Wait::always);
}

void Process::settle_arrived() noexcept {
  try {
    const Nested nested;
    if (transfers_) transfers_->progress();
    settle_each(*this, [](const Operation&) { return true; }, Wait::for_payload);
    // Another thread may just be about to bring there what this one's call has told of.
    if (requests_.in_other_hands())
      engine().until([this] { return !requests_.in_other_hands(); }, {.call = "receives whose requests were freed"});
  } catch (const std::exception& error) {
    base::log(base::Topic::error, "operations whose requests were freed: {}", error.what());
  }
}

}  // namespace crosslane::interpose
