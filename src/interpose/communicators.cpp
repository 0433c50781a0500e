// See communicators.h; and the calls that end communicators (MPI 5.0, section 7.4).
#include "interpose/communicators.h"

#include "base/log.h"
#include "interpose/manual.h"
#include "interpose/requests.h"
#include "interpose/route.h"
#include "interpose/teams.h"

#include <exception>
#include <memory>
#include <utility>

namespace crosslane::interpose {
namespace {

// Runs what makes a communicator, or tells this rank that it is in none; false where it fails, with the code to return. MPICH 5.0 returns success
// where a handler of the program's has heard of the error: what it was to fill in is then as before, which no call makes MPI_COMM_WORLD. Callbacks of the
// program's run meanwhile, for which `child` is what it was.
bool makes(Process& process, MPI_Comm* child, base::FunctionRef<int(MPI_Comm*)> make, int& code) {
  const MPI_Comm nothing = process.library().handles().comm_world;
  MPI_Comm made = nothing;
  code = make(child == nullptr ? nullptr : &made);  // null is MPI's to refuse
  if (made == nothing) return false;
  *child = made;
  return code == mpi::success;
}

// The same of what only starts, and may fill in the program's own place later. An error handler may throw.
bool starts_making(Process& process, MPI_Comm* child, base::FunctionRef<int()> make, int& code) {
  struct Place {
    MPI_Comm* child;
    MPI_Comm nothing, before;
    ~Place() {
      if (*child == nothing) *child = before;
    }
  };
  const MPI_Comm nothing = process.library().handles().comm_world;
  MPI_Comm none = nothing;
  const Place place{child == nullptr ? &none : child, nothing,
                    child == nullptr ? nothing : std::exchange(*child, nothing)};
  code = make();
  return *place.child != nothing && code == mpi::success;
}

// False for one that the teams are to know. Its handle may have been another one's, which went without being freed.
bool inherits_session(Process& process, MPI_Comm parent, MPI_Comm child) {
  auto& of_sessions = process.session_communicators();
  if (of_sessions.empty()) return false;
  const auto mark = of_sessions.find(parent);
  if (mark == nullptr) {
    static_cast<void>(of_sessions.take(child));
  } else if (child != process.library().handles().comm_null) {
    of_sessions.put(child, std::make_shared<Process::OfSession>());
  }
  return mark != nullptr;
}

// What we have asked the MPI on a communicator is answered first, by all its ranks, which come to this call, too: freeing one while a collective is
// under way crashes Open MPI 4.1, and MPICH has it live on until somebody looks.
void await_answers(Process& process, MPI_Comm comm) {
  const auto facts = process.communicators()->known(comm);
  if (facts == nullptr || facts->neighbourhood == nullptr) return;
  const auto& below = process.library().below();
  try {
    process.engine().until([&] { return facts->neighbourhood->listen(below); },
                           {.call = "freeing a communicator of neighbours"});
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "what a communicator was asked before it is freed: {}", error.what());
  }
}

// Callbacks of the application's attributes run in it, for which the communicator is what it was.
int end_communicator(const Site& site, MPI_Comm* comm, base::FunctionRef<int()> ending) {
  if (comm == nullptr) return ending();
  const MPI_Comm handle = *comm;
  Process& process = site.process();
  auto& of_sessions = process.session_communicators();
  const auto mark = of_sessions.empty() ? nullptr : of_sessions.find(handle);
  auto* const known = process.communicators();
  const bool has_facts = known != nullptr && mark == nullptr;
  if (has_facts) await_answers(process, handle);
  const int code = has_facts ? known->end(handle, ending) : ending();
  if (code == mpi::success && mark != nullptr) of_sessions.drop(handle, mark);
  return code;
}

}  // namespace

int make_communicator(const Site& site, const char* call, Naming naming, MPI_Comm parent, MPI_Comm* child,
                      base::FunctionRef<int(MPI_Comm*)> make) {
  Process& process = site.process();
  const Nested nested(site.level());
  int code = mpi::success;
  if (!makes(process, child, make, code)) return code;
  try {
    if (inherits_session(process, parent, *child) || !site.teams()) return code;
  } catch (...) {
    return raise_caught(process, Target::of_comm(parent), call);
  }
  if (naming == Naming::counted) process.teams()->created(parent, *child);
  if (naming == Naming::told) process.teams()->created_apart(*child);
  return code;
}

// MPIs say at once which communicator it is going to be, and their Fortran procedures keep no other place for it.
int start_communicator(const Site& site, const char* call, MPI_Comm parent, MPI_Comm* child, MPI_Request* request,
                       base::FunctionRef<int()> make) {
  Process& process = site.process();
  const Nested nested(site.level());
  int code = mpi::success;
  if (!starts_making(process, child, make, code)) return code;
  try {
    if (inherits_session(process, parent, *child) || !site.teams()) return code;
  } catch (...) {
    return raise_caught(process, Target::of_comm(parent), call);
  }
  try {
    auto operation = make_operation();
    operation->call = call;
    operation->target = Target::of_comm(parent);
    operation->communicators = process.communicators();
    operation->communicator = process.communicators()->share(parent);
    operation->active = true;
    operation->when_complete = [teams = process.teams(), facts = operation->communicator,
                                number = ++operation->communicator->created,
                                made = *child] { teams->name(*facts, number, made); };
    process.requests().add(*request, std::move(operation));
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "{}: a communicator will not be known: {}", call, error.what());
  }
  return code;
}

int make_communicator_of_session(const Site& site, const char* call, MPI_Comm* child,
                                 base::FunctionRef<int(MPI_Comm*)> make) {
  Process& process = site.process();
  const Nested nested(site.level());
  int code = mpi::success;
  if (!makes(process, child, make, code) || *child == process.library().handles().comm_null) return code;
  try {
    process.session_communicators().put(*child, std::make_shared<Process::OfSession>());
  } catch (...) {
    return raise_caught(process, Target::of_comm(*child), call);
  }
  return code;
}

int manual::comm_free(const Site& site, MPI_Comm* comm) {
  return end_communicator(site, comm, [&] { return site.next().Comm_free(comm); });
}

int manual::comm_disconnect(const Site& site, MPI_Comm* comm) {
  return end_communicator(site, comm, [&] { return site.next().Comm_disconnect(comm); });
}

}  // namespace crosslane::interpose
