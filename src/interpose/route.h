// A route: how one call with GPU memory among its arguments is carried out on host copies by the application's own MPI.
// The generated wrappers describe the arguments here and say how the MPI is called; the route copies in, calls, and
// copies out: at once (blocking), when a completion call sees the request (nonblocking), or at each start (persistent).
#pragma once

#include "base/error.h"
#include "base/function_ref.h"
#include "interpose/process.h"
#include "interpose/requests.h"
#include "interpose/target.h"
#include "lane/copier.h"
#include "mpi/abi.h"
#include "mpi/calls.h"
#include "mpi/functions.h"

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::interpose {

/// Raises an error on its target as MPI does: calls the error handler, returns the error class. The message is printed
/// unless the handler returns (the application is then told by MPI_Error_string). Throws what the application's handler throws.
int raise(Process& process, const Target& target, const char* call, const base::Error& error);

/// Calls the target's error handler with a code that MPI has returned without raising it.
void call_handler(Process& process, const Target& target, int code);

/// An error without memory of its own: the exception's, for as long as that is handled.
struct Caught {
  base::ErrorClass error_class;
  const char* what;
};
int raise(Process& process, const Target& target, const char* call, const Caught& error);

/// In a catch block: what is being handled, as an error of ours. What is none comes from the application's error handler, which the MPI
/// below has called, and goes on to the application, as it does without us.
Caught caught();

/// In a catch block: raise() with what caught() makes of it; or the code of what MPI has raised by then (mpi::Raised).
int raise_caught(Process& process, const Target& target, const char* call);

/// A communicator as the significance rules of the collectives see it (MPI 5.0, section 6.2).
struct Peers {
  int rank = 0;   ///< Own rank in the local group.
  int local = 0;  ///< Size of the local group.
  int count = 0;  ///< Size of the group that data comes from and goes to: the remote one of an inter-communicator.
  bool inter = false;

  [[nodiscard]] bool is_root(int root) const noexcept { return inter ? root == mpi::root : root == rank; }
  [[nodiscard]] bool contributes(int root) const noexcept {
    return !inter || (root != mpi::root && root != mpi::proc_null);
  }
  /// Length of the arrays that are significant at the root alone.
  [[nodiscard]] int at_root(int root) const noexcept { return is_root(root) ? count : 0; }
};

/// Degrees of the own vertex in a communicator's virtual topology.
struct Neighbours {
  int in = 0, out = 0;
  bool none = false;  ///< There is no topology.
};

/// Nobody on MPI_COMM_NULL, which the MPI refuses itself; the same below. Throws mpi::Raised of what is no communicator.
[[nodiscard]] Peers peers_of(Process& process, MPI_Comm comm);
[[nodiscard]] Neighbours neighbours_of(Process& process, MPI_Comm comm);

class Route {
 public:
  Route(Process& process, const mpi::Functions& next, const char* call, const Target& target);

  /// What the driver said in this call of an allocation that some of its buffers may be in.
  void has_seen(const gpu::PointerInfo& seen) noexcept { seen_ = &seen; }
  /// That of the next single buffer's type, where the caller has it.
  void has_layout(std::shared_ptr<const layout::Layout> layout) noexcept { layout_ = std::move(layout); }

  [[nodiscard]] Peers peers(MPI_Comm comm) const { return peers_of(process_, comm); }
  [[nodiscard]] Neighbours neighbours(MPI_Comm comm) const;

  /// Sum of an array of counts; throws Error (count) naming the argument when one is negative.
  template <class Count>
  [[nodiscard]] MPI_Count total(const char* argument, const Count* counts, int length) const {
    MPI_Count sum = 0;
    for (int i = 0; i < length; ++i) sum += checked(argument, counts[i]);
    return sum;
  }

  /// A counts array that belongs to no buffer, as the large-count forms want it; lives as long as the call.
  template <class Count>
  const MPI_Count* widened(const Count* counts, int length) {
    return operation_->arrays.emplace_back(counts, counts + length).data();
  }

  /// Describes a buffer of blocks x count elements. `received`: a status tells how much of it was written. `contiguous`: its host copy has
  /// no gaps.
  const Argument& single(const char* name, const void* base, const char* count_name, MPI_Count count, MPI_Count blocks,
                         MPI_Datatype type, Direction direction, lane::Form form, bool received = false,
                         bool contiguous = false);

  /// Describes a buffer of one block a peer, with displacements in extents of the type. The arrays are not read where the
  /// call does not (MPI_IN_PLACE, ranks other than the root).
  template <class Count, class Displacement>
  const Argument& blocks(const char* name, const void* base, const char* counts_name, const Count* counts,
                         const Displacement* displacements, MPI_Datatype type, int length, Direction direction) {
    BlockList list(static_cast<std::size_t>(length), Block{0, 0, type});
    if (direction != Direction::none && base != mpi::in_place()) {
      for (int i = 0; i < length; ++i)
        list[static_cast<std::size_t>(i)] = {checked(counts_name, counts[i]), static_cast<MPI_Aint>(displacements[i]),
                                             type};
    }
    return add_blocks(name, base, std::move(list), false, type, direction);
  }

  /// The same with a type for each peer and displacements in bytes (the w forms).
  template <class Count, class Displacement>
  const Argument& blocks_w(const char* name, const void* base, const char* counts_name, const Count* counts,
                           const Displacement* displacements, const MPI_Datatype* types, int length,
                           Direction direction) {
    BlockList list(static_cast<std::size_t>(length), Block{0, 0, MPI_Datatype{}});
    if (direction != Direction::none && base != mpi::in_place()) {
      for (int i = 0; i < length; ++i)
        list[static_cast<std::size_t>(i)] = {checked(counts_name, counts[i]), static_cast<MPI_Aint>(displacements[i]),
                                             types[i]};
    }
    return add_blocks(name, base, std::move(list), true, MPI_Datatype{}, direction);
  }

  /// The buffer just described is that of a partitioned operation: partitions are copied one by one.
  void partitioned(int partitions);

  /// How the MPI is called on the host copies: with its functions, where narrowed arrays are kept, and the status or
  /// request that it is to fill.
  using Blocking = base::FunctionRef<int(const mpi::Functions& next, mpi::Narrowed& narrowed, MPI_Status* status)>;
  using Starting = base::FunctionRef<int(const mpi::Functions& next, mpi::Narrowed& narrowed)>;

  /// A blocking call: in, call, out. `status` is where a receiving call's status goes (may be ignored); the MPI is
  /// given one of ours where the user ignores it, since it says how much arrived.
  int blocking(MPI_Status* status, Blocking invoke);

  /// A nonblocking call: in and call now, out at completion.
  int nonblocking(MPI_Request* request, Starting invoke);

  /// Copies to the host what the call reads; for routes that call MPI themselves.
  void stage_and_fetch();
  /// The call goes this way (a literal), with what its buffers hold in GPU memory.
  void took(std::string_view route);
  /// What its buffers hold in GPU memory.
  [[nodiscard]] std::size_t bytes() const noexcept {
    const std::size_t own = bytes_ != 0 || operation_ == nullptr ? bytes_ : operation_->bytes_on_gpu();
    return own + other_bytes_;
  }
  /// What the other half of the same call holds, too.
  void goes_with(const Route& other_half) noexcept { other_bytes_ = other_half.bytes(); }
  [[nodiscard]] Operation& operation() noexcept { return *operation_; }
  [[nodiscard]] const std::shared_ptr<Operation>& shared_operation() const noexcept { return operation_; }
  /// Nobody needs the descriptions of its buffers any more: the memory is the next call's, while it is at hand.
  void drop_arguments();
  /// It is under way, and the table's alone from now on.
  void keep_with(MPI_Request request);
  [[nodiscard]] Process& process() const noexcept { return process_; }
  [[nodiscard]] const mpi::Functions& next() const noexcept { return next_; }

  /// A persistent call: in at each start, out at each completion.
  int persistent(MPI_Request* request, Starting invoke);

 private:
  [[nodiscard]] MPI_Count checked(const char* argument, MPI_Count count) const;
  const Argument& add_blocks(const char* name, const void* base, BlockList list, bool in_bytes, MPI_Datatype type,
                             Direction direction);
  int start(MPI_Request* request, Starting invoke);
  int track(MPI_Request* request, int result, bool persistent);
  const Argument& described();  // the last one
  [[nodiscard]] lane::Copier& copier() const { return process_.copier(); }

  Process& process_;
  const mpi::Functions& next_;
  const char* call_;
  const gpu::PointerInfo* seen_ = nullptr;
  std::shared_ptr<const layout::Layout> layout_;
  std::shared_ptr<Operation> operation_;  // shared with the table of requests
  std::size_t bytes_ = 0;                 // by took(): the operation may be the table's alone by then
  std::size_t other_bytes_ = 0;
};

/// Runs a call's work; what that throws is raised on the target, as it is by then, and its code returned. `level`: where the call arrived, if
/// the work goes on to the next of its own name alone.
int raising(Process& process, const Target& target, const char* call, base::FunctionRef<int()> body,
            Level level = Level::mpi);

/// Runs a route; what it throws is raised on the target. With the site, what that has seen need not be asked about again.
int run_route(const Site& site, const char* call, const Target& target, base::FunctionRef<int(Route&)> body);
int run_route(Process& process, const mpi::Functions& next, const char* call, const Target& target,
              base::FunctionRef<int(Route&)> body);

}  // namespace crosslane::interpose
