// All that Crosslane keeps for one process, behind the one pointer that the exported wrappers share. Made at the first
// wrapped call and never destroyed: wrappers may run in destructors of other libraries.
#pragma once

#include "base/settings.h"
#include "collective/choose.h"
#include "engine/engine.h"
#include "gpu/driver.h"
#include "gpu/host_memory.h"
#include "gpu/region.h"
#include "interpose/awaited.h"
#include "interpose/handle_table.h"
#include "interpose/requests.h"
#include "lane/copier.h"
#include "layout/cache.h"
#include "message/short_receives.h"
#include "message/transfers.h"
#include "message/unexpected.h"
#include "mpi/abi.h"
#include "mpi/library.h"
#include "team/communicators.h"
#include "team/world.h"
#include "trace/counts.h"
#include "trace/tracer.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

namespace crosslane::interpose {

class Teams;
struct AttachedBuffer;
class Window;

/// Whether an exported symbol is the MPI_ or the PMPI_ one; each calls the next of its own name, so that tools which use
/// the profiling interface before or after us see what they would see without us.
enum class Level { mpi, pmpi };

class Process;

namespace detail {
// The one writable global of the library: all that the wrappers keep hangs on it.
extern constinit std::atomic<Process*> the_process;
// Initial-exec: the library is loaded at program start, and a call of __tls_get_addr would cost more than the rest.
extern constinit thread_local int nesting __attribute__((tls_model("initial-exec")));
}  // namespace detail

class Process {
 public:
  /// The process's object; made on first use.
  static Process& get() noexcept {
    Process* const ready = detail::the_process.load(std::memory_order_acquire);
    if (ready != nullptr) [[likely]]
      return *ready;
    return make();
  }

  [[nodiscard]] bool active() const noexcept { return active_; }

  /// The functions that wrapped calls go on to; all null, and said so, where no MPI of this family is loaded.
  [[nodiscard]] const mpi::Functions& next(Level level) noexcept {
    const mpi::Library::Tables* const ready = library_.found();
    if (ready != nullptr) [[likely]]
      return level == Level::mpi ? ready->next : ready->below;
    return find_next(level);
  }
  [[nodiscard]] mpi::Library& library() noexcept { return library_; }
  /// MPI_COMM_NULL, as far as there is an MPI.
  [[nodiscard]] bool is_null(MPI_Comm comm) const noexcept {
    const mpi::Library::Tables* const found = library_.found();
    return found != nullptr && comm == found->handles.comm_null;
  }
  [[nodiscard]] const base::Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] gpu::Gpu& gpu() noexcept { return *gpu_; }
  [[nodiscard]] gpu::HostMemory& host_memory() noexcept { return host_memory_; }
  [[nodiscard]] Requests& requests() noexcept { return requests_; }
  /// Of this rank's windows those of which there is something to know.
  [[nodiscard]] HandleTable<MPI_Win, Window>& windows() noexcept { return windows_; }
  /// The number of one more dynamic window to which GPU memory may be attached.
  [[nodiscard]] std::int64_t count_dynamic_window() noexcept { return ++dynamic_windows_; }
  struct OfSession {};
  /// Communicators that come from sessions, or from such ones, until they are freed.
  [[nodiscard]] HandleTable<MPI_Comm, OfSession>& session_communicators() noexcept { return session_communicators_; }
  [[nodiscard]] bool of_session(MPI_Comm comm) const { return session_communicators_.find(comm) != nullptr; }
  /// Messages that were matched on them.
  [[nodiscard]] HandleTable<MPI_Message, OfSession>& session_messages() noexcept { return session_messages_; }
  /// Split collectives under way with GPU memory, by their file.
  [[nodiscard]] HandleTable<MPI_File, Operation>& split_collectives() noexcept { return split_collectives_; }
  /// Buffers in GPU memory that were attached, by the host memory that MPI was given for them.
  [[nodiscard]] HandleTable<void*, AttachedBuffer>& attached_buffers() noexcept { return attached_buffers_; }
  [[nodiscard]] engine::Engine& engine();
  [[nodiscard]] lane::Copier& copier();
  [[nodiscard]] layout::Cache& layouts();

  /// What the rank knows of its job, and of its communicators: from the end of MPI_Init to MPI_Finalize; null outside, in
  /// programs that use sessions alone, and where Crosslane is switched off. Sessions' communicators are as if they were in another world.
  [[nodiscard]] team::World* world() noexcept { return world_.get(); }
  [[nodiscard]] team::Communicators* communicators() noexcept { return communicators_.get(); }
  /// MPI can be asked about datatypes and communicators: between MPI_Init and MPI_Finalize, and once there was a session, whose end is not known
  /// here. Of a call that comes too early or too late it would name the question. One load in the world's life.
  [[nodiscard]] bool may_ask_mpi() noexcept { return world_ != nullptr || may_ask_without_world(); }
  /// True if this rank looks at what it receives: then transfers(), receiver() and unexpected() are there.
  [[nodiscard]] bool looks() const noexcept { return looks_; }
  /// A message of fewer bytes stands for no other: what has no more room need not be looked at.
  [[nodiscard]] std::size_t least_looked_at() const noexcept { return short_receives_.least_looked_at(); }
  /// Before GPU memory is received: this rank takes tokens from now on (message/token.h), and looks at all that may be one, unless it has left
  /// receives to MPI that might get one, or no message is so short by its settings. Returns whether it does.
  bool take_tokens() noexcept;
  /// A receive with so much room that is not looked at is posted.
  void leave_to_mpi(std::size_t room) noexcept { short_receives_.leave(room); }
  [[nodiscard]] message::Transfers& transfers() noexcept { return *transfers_; }
  [[nodiscard]] message::Receiver& receiver() noexcept { return transfers_->receiver(); }
  /// Null also where they were never made, since MPI_Init failed.
  [[nodiscard]] message::PeerMemory* peers() noexcept { return transfers_ == nullptr ? nullptr : transfers_->peers(); }
  /// In calls with GPU memory: see PeerMemory::tend().
  void tend() noexcept {
    if (transfers_) transfers_->tend();
  }
  /// Of a rank that looks at what it receives, where one thread at a time calls MPI; else null.
  [[nodiscard]] message::Receiver* attended() noexcept { return looks_ && !multiple() ? &receiver() : nullptr; }
  [[nodiscard]] message::Unexpected& unexpected() noexcept { return *unexpected_; }
  /// Of the application's one thread that calls MPI, while it is one.
  [[nodiscard]] Awaited& awaited() noexcept { return awaited_; }
  /// Several threads may call MPI at once.
  [[nodiscard]] bool multiple() const noexcept { return multiple_.load(std::memory_order_relaxed); }
  /// Held in collectives on layouts().private_self(), which several threads may ask.
  [[nodiscard]] std::mutex& on_private_self() noexcept { return on_private_self_; }
  /// Looks at an operation, completes or cancels it: one thread at a time.
  [[nodiscard]] std::unique_lock<std::mutex> handle(Operation& operation) const {
    return multiple() ? std::unique_lock(operation.handling) : std::unique_lock<std::mutex>();
  }
  /// The unexpected queue's (message/unexpected.h), which matters where several threads call MPI.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> gate() const {
    return multiple() ? std::unique_lock(unexpected_->gate()) : std::unique_lock<std::recursive_mutex>();
  }
  /// This rank uses memory of that GPU: the first time, the ranks of its node are told.
  void see_device(int device);

  /// After the MPI is initialised: reports bad settings and forms the world. Returns an MPI error code.
  int initialized() noexcept;
  /// After a session began, which a program may do without MPI_Init: reports bad settings. Returns an MPI error code.
  int session_began(MPI_Session session, MPI_Errhandler handler) noexcept;
  /// In MPI_Finalize, when the application's callbacks have been called: completes what is left and gives GPU memory and handles back.
  void finalizing() noexcept;

  /// Where the ranks of a node number their collectives and may run them directly between GPUs; null where they do not.
  [[nodiscard]] Teams* teams() noexcept { return teams_.get(); }

  /// Completes operations that the application has freed or left to us, as far as they are done; with `all`, waits.
  void settle(bool all);
  /// The same: waits for those that it is true of.
  void settle(base::FunctionRef<bool(const Operation&)> awaited);
  /// The same without waiting, but for payloads of messages that MPI has completed: to the application these have come. What goes wrong is
  /// logged.
  void settle_arrived() noexcept;

  /// A call of this procedure goes this way, with buffers of so many bytes: counted (CROSSLANE_STATS), and said once a route
  /// (CROSSLANE_LOG=route). Both names are literals.
  void took_route(const char* call, std::string_view route, std::uint64_t bytes) noexcept;
  /// Where spans are recorded; null while nobody wants them.
  [[nodiscard]] trace::Tracer* tracer() const noexcept { return tracer_.get(); }

  /// The message of the last error that Crosslane raised in this thread, if it has this code, once: a later error of the MPI may have the same.
  [[nodiscard]] std::string take_error_message(int code);
  void remember_error(int code, const std::string& message);

 private:
  Process();
  ~Process();  // where Teams is known
  static Process& make() noexcept;
  const mpi::Functions& find_next(Level level) noexcept;
  [[nodiscard]] bool may_ask_without_world() noexcept;
  /// Has MPI_Finalize call finalizing().
  void finalize_last();
  void make_services();
  void form_world();
  /// Crosslane is off from now on.
  void give_up() noexcept;
  void free_attachments();
  void report() noexcept;

  base::Settings settings_;
  std::string settings_error_;
  bool active_ = false;
  bool initialized_ = false;
  std::atomic<bool> had_session_{false};
  mpi::Library library_;
  const mpi::Functions absent_{};
  std::unique_ptr<gpu::Gpu> gpu_;
  gpu::HostMemory host_memory_;
  std::unique_ptr<trace::Tracer> tracer_;
  std::unique_ptr<trace::Counts> counts_;
  Requests requests_;
  Awaited awaited_;
  HandleTable<MPI_Win, Window> windows_;
  std::atomic<std::int64_t> dynamic_windows_{0};
  HandleTable<MPI_Comm, OfSession> session_communicators_;
  HandleTable<MPI_Message, OfSession> session_messages_;
  HandleTable<MPI_File, Operation> split_collectives_;
  HandleTable<void*, AttachedBuffer> attached_buffers_;
  std::once_flag services_once_;
  std::atomic<bool> services_made_{false};  // sparing each use the sixty instructions of std::call_once
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<lane::Copier> copier_;
  std::unique_ptr<layout::Cache> layouts_;
  std::unique_ptr<team::World> world_;
  std::unique_ptr<team::Communicators> communicators_;
  std::unique_ptr<collective::Choice> choice_;
  std::unique_ptr<Teams> teams_;
  std::unique_ptr<message::Transfers> transfers_;
  std::unique_ptr<message::Unexpected> unexpected_;
  bool looks_ = false;
  std::atomic<bool> multiple_{false};
  std::mutex on_private_self_;
  message::ShortReceives short_receives_;
  std::atomic<bool> device_seen_{false};

  std::mutex mutex_;
  std::set<std::string> logged_routes_;
  struct Remembered {
    std::thread::id thread;
    int code;
    std::string message;
  };
  std::deque<Remembered> remembered_;
};

/// While one lives, wrapped calls of this thread go straight on: they come from the MPI below, from tools between, or from our own
/// calls. All of these use PMPI's names; a call by MPI's own is one of the application's callbacks (for an attribute, a generalized
/// request, an error), which may pass what any call may pass.
class Nested {
 public:
  Nested() noexcept : Nested(Level::mpi) {}
  /// For a call of this name that goes on to the next of its own. Behind PMPI's names there are no tools, and MPI's own calls need not be
  /// told from the application's: they pass host memory. But callbacks in Fortran use those names in Open MPI.
  explicit Nested(Level level) noexcept : by_(level == Level::mpi ? 1 : 0) { detail::nesting += by_; }
  ~Nested() { detail::nesting -= by_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  int by_;
};

/// What a call returns that may have told the application that other operations are complete: a later message of the same sender has come, or
/// another rank has. What it has freed of these is then to be where it belongs. `some`: where given, zero says that nothing was told.
inline int settled(int code, const int* some = nullptr) noexcept {
  Process& process = Process::get();
  if (process.requests().any_adopted() && code == mpi::success && detail::nesting == 0 &&
      (some == nullptr || *some != 0)) [[unlikely]]
    process.settle_arrived();
  return code;
}

/// While one lives, this thread is in a callback of the application that MPI was asked for by ourselves: no call comes from tools.
class CalledBack {
 public:
  CalledBack() noexcept : nesting_(std::exchange(detail::nesting, 0)) {}
  ~CalledBack() { detail::nesting = nesting_; }
  CalledBack(const CalledBack&) = delete;
  CalledBack& operator=(const CalledBack&) = delete;

 private:
  int nesting_;
};

/// Where a wrapped call arrived.
class Site {
 public:
  explicit Site(Level level) noexcept
      : process_(Process::get()), level_(level), outer_(detail::nesting == 0 || level == Level::mpi) {}

  /// True if the application made the call: not inside one of our own.
  [[nodiscard]] bool outer() const noexcept { return outer_; }
  [[nodiscard]] Level level() const noexcept { return level_; }

  [[nodiscard]] Process& process() const noexcept { return process_; }
  [[nodiscard]] const mpi::Functions& next() const noexcept { return process_.next(level_); }
  /// True if the call may have to be looked at: not inside one of our own, and not switched off.
  [[nodiscard]] bool watching() const noexcept { return outer_ && process_.active(); }
  /// True if the call's ranks may form a team: not inside one of our own, and the node has GPUs and
  /// several ranks, or some collectives span nodes.
  [[nodiscard]] bool teams() const noexcept { return outer_ && process_.teams() != nullptr; }
  /// True if this is no communicator: the MPI refuses the call, and each query of ours would be an error besides.
  [[nodiscard]] bool is_null(MPI_Comm comm) const noexcept { return process_.is_null(comm); }
  /// True if communicators that the call makes have to be known: to the teams, or for sessions' ones.
  [[nodiscard]] bool learns_communicators() const noexcept {
    return teams() || (outer_ && !process_.session_communicators().empty());
  }
  /// True if what the call receives has to be looked at: it may be a header.
  [[nodiscard]] bool looking() const noexcept { return outer_ && process_.looks(); }
  [[nodiscard]] bool looking(MPI_Comm comm) const noexcept { return looking() && !process_.of_session(comm); }
  /// True if this pointer needs a route: GPU memory, or memory that neither CPU nor GPU can reach; null and MPI's special
  /// addresses do not. Never while no driver library is loaded, which is asked last: stack, data and heap are cheaper to tell.
  [[nodiscard]] bool on_gpu(const void* pointer) const noexcept {
    return !absent_ && !process_.host_memory().certain(pointer) && ask(pointer);
  }
  /// What the driver said of an address for which on_gpu() is true, of one of them.
  [[nodiscard]] const std::optional<gpu::PointerInfo>& seen() const noexcept { return seen_; }
  /// The same where a null pointer may be MPI_BOTTOM.
  [[nodiscard]] bool on_gpu(const void* pointer, bool anything) const noexcept {
    return pointer == nullptr ? anything && driver() : on_gpu(pointer);
  }
  /// The same of a buffer of elements of this type, whose first byte need not lie where its address says, nor all in one memory.
  [[nodiscard]] bool on_gpu(const void* buffer, MPI_Count count, MPI_Datatype type) const noexcept {
    return on_gpu(buffer, count != 0) || (count > 0 && may_be_shifted(type) && reaches_gpu(buffer, count, type));
  }
  /// The same of an argument that means something only if `significant()` says so; throws what that throws.
  template <class Significant>
    requires std::is_invocable_v<const Significant&>
  [[nodiscard]] bool on_gpu(const void* buffer, MPI_Datatype type, const Significant& significant) const {
    if (on_gpu(buffer)) return true;
    // Null is MPI_BOTTOM only with a type that says where its elements lie.
    return may_be_shifted(type) && driver() && significant() && (buffer == nullptr || reaches_gpu(buffer, 1, type));
  }
  /// The same of blocks with a type each, `length()` of them, and displacements in bytes.
  template <class Count, class Displacement, class Length>
  [[nodiscard]] bool on_gpu(const void* buffer, const Count* counts, const Displacement* displacements,
                            const MPI_Datatype* types, const Length& length) const {
    if (on_gpu(buffer, true)) return true;
    if (is_no_address(buffer) || !driver()) return false;  // with MPI_IN_PLACE the arrays mean nothing
    const int blocks = length();
    std::uintptr_t host = 0;  // the region that was asked about last
    for (int i = 0; i < blocks; ++i) {
      if (counts[i] == 0) continue;
      const std::byte* const block = lane::byte_at(buffer, static_cast<std::ptrdiff_t>(displacements[i]));
      if (const std::uintptr_t region = gpu::region_of(block); region != host) {
        if (on_gpu(block)) return true;
        host = region;
      }
      if (may_be_shifted(types[i]) && reaches_gpu(block, counts[i], types[i])) return true;
    }
    return false;
  }

 private:
  // MPI_IN_PLACE, MPI_BUFFER_AUTOMATIC and their like, and null, are in the first or the last page, where no memory is.
  [[nodiscard]] static bool is_no_address(const void* pointer) noexcept {
    constexpr std::uintptr_t page = 4096;
    return reinterpret_cast<std::uintptr_t>(pointer) + page < 2 * page;
  }
  [[nodiscard]] bool ask(const void* pointer) const noexcept;
  [[nodiscard]] bool may_be_shifted(MPI_Datatype type) const noexcept {
    const auto& handles = process_.library().handles();
    return !absent_ && !handles.surely_predefined(type) && type != handles.datatype_null;
  }
  /// Whether some of it is, the byte at its address aside.
  [[nodiscard]] bool reaches_gpu(const void* buffer, MPI_Count count, MPI_Datatype type) const noexcept;
  // Is a driver library loaded, and an MPI there that can be asked what a buffer is; else the call goes on as it is. Asked about once a call.
  [[nodiscard]] bool driver() const noexcept {
    if (!absent_ && !(process_.gpu().present() && process_.may_ask_mpi())) absent_ = true;
    return !absent_;
  }

  Process& process_;
  Level level_;
  mutable bool absent_ = false;
  mutable std::optional<gpu::PointerInfo> seen_;
  bool outer_;  // when it arrived
};

}  // namespace crosslane::interpose
