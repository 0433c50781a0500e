// Windows of which some memory is on a GPU, and one-sided accesses whose origin buffers are (MPI 5.0, section 12): what is to
// happen at the calls that complete the accesses or synchronise the windows. It must not know which calls those are.
#pragma once

#include "base/function_ref.h"
#include "interpose/attachments.h"
#include "interpose/handle_table.h"
#include "interpose/mapped_window.h"
#include "interpose/route.h"
#include "interpose/shadow.h"
#include "mpi/abi.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::interpose {

/// Thread-safe: a thread's flush leaves alone what others have begun since MPI was asked, and waits for what they are copying.
class Window {
 public:
  /// This rank's memory in it is the CPU's, or none.
  Window() = default;
  /// It is GPU memory.
  explicit Window(std::unique_ptr<Shadow> shadow) { shadows_.push_back(std::move(shadow)); }
  /// It is dynamic: what of it is GPU memory comes and goes.
  explicit Window(std::unique_ptr<Attachments> attachments) : attachments_(std::move(attachments)) {}
  /// It is GPU memory on all ranks, which have each other's mapped.
  explicit Window(std::unique_ptr<MappedWindow> mapped) : mapped_(std::move(mapped)) {}

  /// The GPU memory that it was made of; null where it is another one.
  [[nodiscard]] const Shadow* shadow() const noexcept {
    return attachments_ || shadows_.empty() ? nullptr : shadows_.front().get();
  }
  /// Whether some memory of it is on a GPU now.
  [[nodiscard]] bool shadowed();
  /// Of a dynamic window; else null.
  [[nodiscard]] Attachments* attachments() const noexcept { return attachments_.get(); }
  /// Of one whose ranks have each other's memory mapped; else null.
  [[nodiscard]] MappedWindow* mapped() const noexcept { return mapped_.get(); }

  /// MPI has attached that copy. Where that throws, it is its owner's still.
  void attach(std::unique_ptr<Shadow>& shadow, std::size_t bytes);
  /// What others stored in the memory at `base` comes to the GPU, and `invoke` detaches from MPI what that has of it; as ever, where it is not
  /// GPU memory. Returns MPI's code: unless that is success the memory is attached still.
  int detach(const char* call, const void* base, base::FunctionRef<int(const void*)> invoke);

  /// An access to memory of rank `target`. One that has a request is the request's, which may be completed before.
  struct Access {
    int target;
    std::shared_ptr<Operation> kept;
    std::weak_ptr<Operation> requested;
    std::uint64_t number = 0;
  };
  /// This one, all by itself in its list, has begun.
  void began(std::list<Access> one) noexcept;
  /// How many have begun.
  [[nodiscard]] std::uint64_t begun();
  /// Whether an access to memory of that rank, or of any, brings something that is not completed yet.
  [[nodiscard]] bool fetches(std::optional<int> target);
  /// MPI has completed, on this rank at least, the first `begun` accesses as far as they are to that rank's memory, or all of these:
  /// results are copied out, host copies given back. Throws the first failure, after all have been tried.
  void complete(Process& process, std::optional<int> target, std::uint64_t begun);

  /// Shadow's, where there is one. `unchanged`: the application says that it has stored nothing since the last synchronisation,
  /// which is enough where that one published.
  void publish(const char* call, bool unchanged);
  void acquire(const char* call);
  /// A call that synchronises, but does not publish, comes to the window.
  void pass_by();

 private:
  // All of them, whatever becomes of some; throws the first failure.
  template <class F>
  void for_each_shadow(const F& f);

  const std::unique_ptr<Attachments> attachments_;
  const std::unique_ptr<MappedWindow> mapped_;
  std::mutex copying_;  // between the GPU and host copies: one call after the other. Of the next two
  std::vector<std::unique_ptr<Shadow>> shadows_;
  bool published_ = false;  // by the last synchronisation
  std::mutex mutex_;        // of what follows
  std::uint64_t begun_ = 0;
  std::list<Access> accesses_;
  std::size_t enough_ = 64;  // of them, until those whose requests were completed are left out
};

/// The window that a call is on, if its ranks have each other's memory mapped, so that MPI's own window is of something else; else null.
[[nodiscard]] std::shared_ptr<Window> mapped_window(const Site& site, MPI_Win win);

/// Of an access to `count` elements of a type at a rank of a dynamic window: makes the displacement what MPI is to be told, where they lie in GPU
/// memory that the target has attached. Returns an MPI error code.
int place_access(const Site& site, const char* call, MPI_Win win, int target, MPI_Aint& displacement, MPI_Count count,
                 MPI_Datatype type);

/// How a call that fetches `count` elements of a type into a buffer writes it: where the other side has less, the rest of the buffer
/// keeps what it held.
[[nodiscard]] Direction fetching(Process& process, MPI_Count count, MPI_Datatype type, MPI_Count target_count,
                                 MPI_Datatype target_type) noexcept;

/// A one-sided access to memory of rank `target`: in and call now; out when the window completes it, or its request before.
int start_access(Route& route, MPI_Win win, int target, Route::Starting invoke);
int start_access(Route& route, MPI_Win win, int target, MPI_Request* request, Route::Starting invoke);

}  // namespace crosslane::interpose
