// Starting persistent operations, and partitioned communication (MPI 5.0, sections 3.9 and 4.2), with GPU memory.
#include "interpose/manual.h"
#include "interpose/mutant.h"
#include "interpose/pending.h"
#include "interpose/process.h"
#include "interpose/receive.h"
#include "interpose/route.h"
#include "interpose/undertaking.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace crosslane::interpose {
namespace {

// Starts one receive that is looked at: the unexpected queue has it, or MPI.
int start_look(Process& process, const mpi::Functions& next, Operation& operation, MPI_Request* request) {
  if (!process.looks()) return next.Start(request);  // MPI is being finalized
  const auto lock = process.gate();
  return match_started(process, operation) ? mpi::success : next.Start(request);
}

// It is under way, whatever becomes of others that are started by the same call.
void mark_started(Process& process, Operation& operation) {
  operation.delivered = false;
  std::fill(operation.arrived.begin(), operation.arrived.end(), false);
  operation.active = true;
  // Undertakings, and receives that are looked at, say themselves which way they went; and all may be host memory, for whose sake nothing is staged.
  const std::size_t bytes = operation.bytes_on_gpu();
  if (!operation.undertaking && !operation.look && (bytes > 0 || !operation.starter))
    process.took_route(operation.call, "staged", bytes);
}

// A send whose partitions are not all ready may have been started before, and MPI rests in such a program (fetch_partitions).
void fetch(Process& process, Operation& operation) { operation.fetch(process.copier(), lane::Batch::Mpi::rests); }

// Copies in what the started operations read. Requests stay in the table: a start does not complete anything.
template <class Start>
int starting(const Site& site, const char* call, int count, MPI_Request requests[], Start&& start) {
  auto& process = site.process();
  const auto& next = site.next();
  Target blamed = Target::self();
  return raising(process, blamed, call, [&]() -> int {
    const std::vector<MPI_Request> before(requests, requests + count);
    std::vector<std::shared_ptr<Operation>> ours(static_cast<std::size_t>(count));
    // What cannot be had is found out before anything is under way, but for those whose starters are to be asked first.
    for (int i = 0; i < count; ++i) {
      auto operation = process.requests().find(requests[i]);
      if (!operation || operation->active) continue;
      blamed = operation->raised_on();
      if (!operation->starter || !operation->starter->is_awaited()) operation->throw_if_gone();
      // Partitions are copied as they become ready.
      if (operation->partition_bytes == 0 && !operation->starter) fetch(process, *operation);
      ours[static_cast<std::size_t>(i)] = std::move(operation);
    }
    const auto started = [&](int i, int code) {
      process.requests().rename(before[static_cast<std::size_t>(i)], requests[i]);
      const auto& operation = ours[static_cast<std::size_t>(i)];
      if (code == mpi::success && operation && !operation->active) mark_started(process, *operation);
    };
    const auto goes_by_itself = [](const auto& operation) {
      return operation && (operation->starter || operation->looks());
    };
    if (std::ranges::none_of(ours, goes_by_itself)) {
      const int code = start();
      for (int i = 0; i < count; ++i) started(i, code);
      return code;
    }
    // In their order, as MPIs start them though they need not: messages of one tag come as it says.
    for (int i = 0; i < count; ++i) {
      const auto& operation = ours[static_cast<std::size_t>(i)];
      if (operation) blamed = operation->raised_on();
      if (operation && operation->starter) {
        if (const int code = operation->starter->start(site, operation->undertaking); code != mpi::success) return code;
        if (operation->undertaking) {
          mark_started(process, *operation);
          continue;
        }
        operation->throw_if_gone();
        if (operation->partition_bytes == 0) fetch(process, *operation);
      }
      const bool look = operation && operation->look;
      const int code = look ? start_look(process, next, *operation, &requests[i]) : next.Start(&requests[i]);
      if (code != mpi::success) return code;
      started(i, code);
    }
    return mpi::success;
  });
}

template <class Init>
int partitioned_init(const Site& site, const char* call, const void* buf, int partitions, MPI_Count count,
                     MPI_Datatype datatype, MPI_Comm comm, MPI_Request* request, Direction direction, Init&& init) {
  return run_route(site.process(), site.next(), call, Target::of_comm(comm), [&](Route& route) {
    const auto& buffer = route.single("buf", buf, "count", count, partitions, datatype, direction, lane::Form::packed);
    route.partitioned(partitions);
    return route.persistent(request, [&](const mpi::Functions& next, mpi::Narrowed&) {
      return init(next, buffer.address(), buffer.type());
    });
  });
}

using Ranges = std::vector<std::pair<int, int>>;

// Copies partitions [low, high] of a send to the host before the MPI hears that they are ready. MPI rests meanwhile: one
// that progresses between the second start of a send and its last MPI_Pready makes Open MPI 5.0 take the partitions that
// are not ready for sent ones (mca/part/persist tests their inactive requests). The send is then complete before it began,
// or never. A program in which calls that progress come in between meets that without us too; neither MPI_Start nor an
// MPI_Parrived that says yes is one.
void fetch_partitions(const Site& site, MPI_Request request, const Ranges& ranges, Target& blamed) {
  auto& process = site.process();
  const auto operation = process.requests().find(request);
  if (!operation) return;
  blamed = operation->raised_on();
  if (mutated(operation->call, "copy in dropped")) return;
  lane::Batch batch(process.copier(), operation->watch());
  for (const auto& [low, high] : ranges)
    operation->arguments.front().fetch_range(batch, static_cast<std::size_t>(low) * operation->partition_bytes,
                                             (static_cast<std::size_t>(high) + 1) * operation->partition_bytes);
  batch.wait(lane::Batch::Mpi::rests);
}

template <class Body>
int with_partitions(const Site& site, const char* call, MPI_Request request, base::FunctionRef<Ranges()> ranges,
                    Body&& body) {
  if (nothing_ours(site)) return body();
  Target blamed = Target::self();
  return raising(site.process(), blamed, call, [&] {
    fetch_partitions(site, request, ranges(), blamed);
    return body();
  });
}

}  // namespace

int manual::start(const Site& site, MPI_Request* request) {
  const auto& next = site.next();
  if (nothing_ours(site) || request == nullptr) return next.Start(request);
  return starting(site, "MPI_Start", 1, request, [&] { return next.Start(request); });
}

int manual::startall(const Site& site, int count, MPI_Request requests[]) {
  const auto& next = site.next();
  if (nothing_ours(site) || count <= 0 || requests == nullptr) return next.Startall(count, requests);
  return starting(site, "MPI_Startall", count, requests, [&] { return next.Startall(count, requests); });
}

int manual::partitioned_send_init(const Site& site, const void* buf, int partitions, MPI_Count count,
                                  MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Info info,
                                  MPI_Request* request) {
  return partitioned_init(site, "MPI_Psend_init", buf, partitions, count, datatype, comm, request, Direction::in,
                          [&](const mpi::Functions& next, void* address, MPI_Datatype type) {
                            return next.Psend_init(address, partitions, count, type, dest, tag, comm, info, request);
                          });
}

int manual::partitioned_receive_init(const Site& site, void* buf, int partitions, MPI_Count count,
                                     MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Info info,
                                     MPI_Request* request) {
  return partitioned_init(site, "MPI_Precv_init", buf, partitions, count, datatype, comm, request, Direction::out,
                          [&](const mpi::Functions& next, void* address, MPI_Datatype type) {
                            return next.Precv_init(address, partitions, count, type, source, tag, comm, info, request);
                          });
}

int manual::pready(const Site& site, int partition, MPI_Request request) {
  return with_partitions(
      site, "MPI_Pready", request, [&] { return Ranges{{partition, partition}}; },
      [&] { return site.next().Pready(partition, request); });
}

int manual::pready_range(const Site& site, int partition_low, int partition_high, MPI_Request request) {
  return with_partitions(
      site, "MPI_Pready_range", request, [&] { return Ranges{{partition_low, partition_high}}; },
      [&] { return site.next().Pready_range(partition_low, partition_high, request); });
}

int manual::pready_list(const Site& site, int length, const int partitions[], MPI_Request request) {
  return with_partitions(
      site, "MPI_Pready_list", request,
      [&] {
        Ranges ranges;
        ranges.reserve(static_cast<std::size_t>(std::max(length, 0)));
        for (int i = 0; i < length; ++i) ranges.emplace_back(partitions[i], partitions[i]);
        return ranges;
      },
      [&] { return site.next().Pready_list(length, partitions, request); });
}

// A partition that has arrived may be accessed before the whole is complete: it is copied to the GPU here, and not again.
int manual::parrived(const Site& site, MPI_Request request, int partition, int* flag) {
  const int result = site.next().Parrived(request, partition, flag);
  if (result != mpi::success || *flag == 0 || nothing_ours(site)) return result;
  auto& process = site.process();
  const auto operation = process.requests().find(request);
  if (!operation) return result;
  return raising(process, operation->raised_on(), "MPI_Parrived", [&] {
    // Another thread may wait for the whole, and start it again: then this partition is there.
    const auto lock = process.handle(*operation);
    if (!operation->active || operation->delivered) return result;
    operation->deliver_partition(process.copier(), static_cast<std::size_t>(partition));
    return result;
  });
}

}  // namespace crosslane::interpose
