// See route.h.
#include "interpose/route.h"

#include "base/log.h"
#include "interpose/argument_builder.h"
#include "interpose/files.h"
#include "interpose/query.h"
#include "interpose/starting.h"
#include "mpi/raised.h"
#include "mpi/status.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

namespace crosslane::interpose {
namespace {

// True if the target's error handler returns to the application, which then asks MPI_Error_string.
bool handler_returns(const mpi::Functions& below, const mpi::Handles& handles, const Target& target) {
  MPI_Errhandler handler{};
  int result = mpi::success;
  switch (target.kind) {
    case Target::Kind::comm:
      result = below.Comm_get_errhandler(target.comm, &handler);
      break;
    case Target::Kind::file:
      result = below.File_get_errhandler(target.file, &handler);
      break;
    case Target::Kind::win:
      result = below.Win_get_errhandler(target.win, &handler);
      break;
    case Target::Kind::self:
      result = below.Comm_get_errhandler(handles.comm_world, &handler);
      break;
    case Target::Kind::session:
      result = below.Session_get_errhandler(target.session, &handler);
      break;
  }
  if (result != mpi::success) return false;
  const bool returns = handler == handles.errors_return;
  if (!returns && handler != handles.errors_are_fatal) below.Errhandler_free(&handler);
  return returns;
}

}  // namespace

int raise(Process& process, const Target& target, const char* call, const base::Error& error) {
  return raise(process, target, call, Caught{error.error_class(), error.what()});
}

int raise(Process& process, const Target& target, const char* call, const Caught& error) {
  const int code = mpi::error_class(error.error_class);
  if (target.kind == Target::Kind::comm && process.is_null(target.comm))
    return raise(process, Target::self(), call, error);  // it has no error handler
  // No MPI may be loaded, or one of another family than this library's.
  const mpi::Library::Tables* const found = process.library().found();
  const bool nobody_handles =
      found == nullptr || (target.kind == Target::Kind::self && !mpi::world_exists(found->below));
  try {
    const Nested nested;
    std::string message = error.what;
    if (!message.starts_with("MPI_")) message = std::string(call) + ": " + message;
    process.remember_error(code, message);
    if (nobody_handles || !handler_returns(found->below, found->handles, target))
      base::log(base::Topic::error, "{}", message);
  } catch (const std::exception& second) {
    base::log(base::Topic::error, "{}: {}; while reporting: {}", call, error.what, second.what());
  }
  if (!nobody_handles) call_handler(process, target, code);
  return code;
}

void call_handler(Process& process, const Target& target, int code) {
  const auto& below = process.library().below();
  const message::Receiver::Elsewhere elsewhere(process.attended());
  const CalledBack called_back;
  switch (target.kind) {
    case Target::Kind::comm:
      below.Comm_call_errhandler(target.comm, code);
      break;
    case Target::Kind::file:
      below.File_call_errhandler(target.file, code);
      break;
    case Target::Kind::win:
      below.Win_call_errhandler(target.win, code);
      break;
    case Target::Kind::self:
      below.Comm_call_errhandler(below.handles->comm_world, code);
      break;
    case Target::Kind::session:
      below.Session_call_errhandler(target.session, code);
      break;
  }
}

Caught caught() {
  try {
    throw;
  } catch (const base::Error& error) {
    return {error.error_class(), error.what()};
  } catch (const std::bad_alloc&) {
    return {base::ErrorClass::no_memory, "the host has no memory left for this call"};
  } catch (const std::logic_error& error) {
    return {base::ErrorClass::intern, error.what()};
  } catch (const std::system_error& error) {
    return {base::ErrorClass::intern, error.what()};
  }
}

int raise_caught(Process& process, const Target& target, const char* call) {
  try {
    throw;
  } catch (const mpi::Raised& raised) {
    return raised.code();
  } catch (const std::exception&) {
    return raise(process, target, call, caught());
  }
}

Route::Route(Process& process, const mpi::Functions& next, const char* call, const Target& target)
    : process_(process), next_(next), call_(call), operation_(make_operation()) {
  operation_->call = call;
  operation_->target = target;
  // A null communicator is the MPI's to refuse.
  if (target.kind != Target::Kind::comm || !process.is_null(target.comm)) operation_->place(process.communicators());
}

Peers peers_of(Process& process, MPI_Comm comm) {
  const auto& below = process.library().below();
  Peers peers;
  if (process.is_null(comm)) return peers;
  int inter = mpi::untold;
  peers.rank = peers.local = mpi::untold;
  mpi::heed(below.Comm_rank(comm, &peers.rank), peers.rank);
  mpi::heed(below.Comm_size(comm, &peers.local), peers.local);
  mpi::heed(below.Comm_test_inter(comm, &inter), inter);
  peers.count = peers.local;
  peers.inter = inter != 0;
  if (peers.inter) below.Comm_remote_size(comm, &peers.count);
  return peers;
}

Neighbours neighbours_of(Process& process, MPI_Comm comm) {
  const auto& below = process.library().below();
  Neighbours result;
  if (process.is_null(comm)) return result;
  int topology = mpi::untold;
  mpi::heed(below.Topo_test(comm, &topology), topology);
  if (topology == mpi::cart) {
    int dimensions = 0;
    below.Cartdim_get(comm, &dimensions);
    result.in = result.out = 2 * dimensions;
  } else if (topology == mpi::graph) {
    int rank = 0;
    below.Comm_rank(comm, &rank);
    below.Graph_neighbors_count(comm, rank, &result.in);
    result.out = result.in;
  } else if (topology == mpi::dist_graph) {
    int weighted = 0;
    below.Dist_graph_neighbors_count(comm, &result.in, &result.out, &weighted);
  } else {
    result.none = true;
  }
  return result;
}

// Not left to the MPI: MPICH 4.0 reads as many counts first as it takes for the number of neighbours, which nobody has set.
Neighbours Route::neighbours(MPI_Comm comm) const {
  const Neighbours found = neighbours_of(process_, comm);
  if (!found.none) return found;
  throw base::Error(base::ErrorClass::topology,
                    "{}: argument comm has no virtual topology; make it with MPI_Cart_create, MPI_Graph_create or "
                    "MPI_Dist_graph_create",
                    call_);
}

MPI_Count Route::checked(const char* argument, MPI_Count count) const {
  if (count < 0)
    throw base::Error(base::ErrorClass::count, "{}: argument {} holds {}; a count is never negative", call_, argument,
                      count);
  return count;
}

const Argument& Route::single(const char* name, const void* base, const char* count_name, MPI_Count count,
                              MPI_Count blocks, MPI_Datatype type, Direction direction, lane::Form form, bool received,
                              bool contiguous) {
  // Switched off, a call is here only because its MPI lacks the large-count form: buffers are the MPI's affair.
  if (!process_.active()) direction = Direction::none;
  ArgumentBuilder builder(copier(), process_.layouts(), call_, {seen_, std::move(layout_)});
  // What arrives may end inside an element (a header does), which only a host copy without gaps takes on every MPI.
  const bool cuttable = received && process_.looks();
  auto& arguments = operation_->arguments;
  builder.single(arguments.emplace_back(), name, base, count_name, count, blocks, type, direction, form, received,
                 contiguous || cuttable);
  if (arguments.back().on_gpu() && received && operation_->target.kind == Target::Kind::file &&
      !status_tells(process_, operation_->target.file)) {
    arguments.pop_back();
    builder.single(arguments.emplace_back(), name, base, count_name, count, blocks, type, Direction::inout, form, false,
                   false);
  }
  return described();
}

const Argument& Route::add_blocks(const char* name, const void* base, BlockList list, bool in_bytes, MPI_Datatype type,
                                  Direction direction) {
  if (!process_.active()) direction = Direction::none;
  const ArgumentBuilder builder(copier(), process_.layouts(), call_, {});
  Argument& argument = operation_->arguments.emplace_back();
  builder.blocks(argument, name, base, std::move(list), in_bytes, type, direction);
  return described();
}

const Argument& Route::described() {
  const Argument& argument = operation_->arguments.back();
  if (argument.on_gpu()) process_.see_device(argument.place().device);
  return argument;
}

void Route::partitioned(int partitions) {
  if (partitions <= 0) return;  // for the MPI to refuse
  const Argument& buffer = operation_->arguments.front();
  operation_->partition_bytes = buffer.bytes() / static_cast<std::size_t>(partitions);
  if (buffer.writes()) operation_->arrived.assign(static_cast<std::size_t>(partitions), false);
}

int Route::blocking(MPI_Status* status, Blocking invoke) {
  took("staged");
  stage_and_fetch();
  const auto& below = process_.library().below();
  const bool receives = operation_->receives();
  MPI_Status own;
  if (receives && status == mpi::status_ignore()) status = &own;
  const int result = invoke(next_, operation_->narrowed, status);
  // An error that is not a truncation leaves the status unset, and nothing is known to have arrived.
  if (result == mpi::success || (receives && mpi::is_truncation(below, result)))
    operation_->deliver(copier(), receives ? status : nullptr, below);
  return result;
}

int Route::nonblocking(MPI_Request* request, Starting invoke) {
  took("staged");
  stage_and_fetch();
  return track(request, start(request, invoke), false);
}

int Route::persistent(MPI_Request* request, Starting invoke) {
  took("prepared");
  // Every start copies in; MPICH 4.0 copies a rank's own block of a collective already here, once for all starts.
  stage_and_fetch();
  return track(request, start(request, invoke), true);
}

void Route::took(std::string_view route) {
  bytes_ = operation_->bytes_on_gpu();
  process_.took_route(call_, route, bytes_);
}

void Route::stage_and_fetch() {
  process_.settle(false);
  operation_->stage(copier());
  operation_->fetch(copier());
}

int Route::start(MPI_Request* request, Starting invoke) {
  const auto go = [&] { return invoke(next_, operation_->narrowed); };
  // Those of files may be null where there was nothing to do.
  return operation_->target.kind == Target::Kind::file ? go() : start_request(process_, request, go);
}

int Route::track(MPI_Request* request, int result, bool persistent) {
  if (result != mpi::success) return result;
  // A file's operation that has nothing to do may have no request; nor has it written anything to the host copies.
  if (request != nullptr && *request == process_.library().handles().request_null) return result;
  operation_->persistent = persistent;
  operation_->active = !persistent;
  // Some operations are complete at once, and then MPIs like to hand out one shared request for all of them. Not for files, whose
  // requests end in MPICH 5.0 when they are asked (they are generalized ones): the application's own call would find one that is gone.
  if (!persistent && operation_->target.kind != Target::Kind::file) {
    const auto& below = process_.library().below();
    int flag = 0;
    MPI_Status status;
    static_cast<void>(query(process_, *request, &flag, &status));
    if (flag != 0) {
      operation_->deliver(copier(), &status, below);
      return result;
    }
  }
  keep_with(*request);
  return result;
}

void Route::drop_arguments() {
  bytes_ = operation_->bytes_on_gpu();
  operation_->arguments.clear();
}

void Route::keep_with(MPI_Request request) {
  if (bytes_ == 0) bytes_ = operation_->bytes_on_gpu();
  process_.requests().add(request, std::move(operation_));
}

int run_route(const Site& site, const char* call, const Target& target, base::FunctionRef<int(Route&)> body) {
  return run_route(site.process(), site.next(), call, target, [&](Route& route) {
    if (site.seen()) route.has_seen(*site.seen());
    return body(route);
  });
}

int raising(Process& process, const Target& target, const char* call, base::FunctionRef<int()> body, Level level) {
  try {
    const Nested nested(level);  // the MPI below, and tools between, may call wrappers again
    return body();
  } catch (...) {
    return raise_caught(process, target, call);
  }
}

int run_route(Process& process, const mpi::Functions& next, const char* call, const Target& target,
              base::FunctionRef<int(Route&)> body) {
  return raising(process, target, call, [&] {
    trace::Span span(process.tracer(), trace::Kind::call, call);
    process.tend();
    Route route(process, next, call, target);
    const int code = body(route);
    if (process.tracer() != nullptr) span.set_bytes(route.bytes());
    return code;
  });
}

}  // namespace crosslane::interpose
