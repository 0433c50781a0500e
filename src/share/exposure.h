// Exposure: the application's own GPU buffers, shown to the node's other ranks and mapped from them. Opening costs milliseconds,
// so mappings are kept while their allocation lives and room lasts. It must not know what the buffers are used for.
//
// A rank says of as many allocations as it has slots that they live; the one shown longest ago gives its slot to the next. It may still
// live, and others may have it open, hold it, or come to open it by what they were told before: the handle opens it as long as it lives,
// and an id never names another allocation, so what is mapped under it is right whatever the slots say. They only tell what to close:
//   open, not held   closed before the next opening of that owner's memory; opened again if the id comes again
//   held             kept, and looked at again before each such opening: a second mapping beside it might be refused
//   opened later     closed after the owner's next change of its slots, which comes with all that it shows anew. If it frees the
//                    allocation and shows nothing new, it stays open.
// The first two are looked at by tend(), too. A driver keeps freed memory that is open elsewhere, so that there may be no room for what the application
// allocates next (of 143 GB, 80 GB that were freed and allocated again: out of memory).
//
// Closing waits for all that the context has under way: for ever where a kernel waits for what the host does after the call, such as to receive. Where
// the application says that there may be such ones (CROSSLANE_UNMAP=at_rest), messages close nothing but while there are none. Setting up windows
// and communicators does.
#pragma once

#include "base/light_mutex.h"
#include "base/settings.h"
#include "gpu/driver.h"
#include "gpu/event.h"
#include "gpu/mapping.h"
#include "share/board.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace crosslane::share {

/// One rank's. Thread-safe.
class Exposure {
 public:
  /// In the context `context`, which must outlive it.
  Exposure(const gpu::Driver& driver, CUcontext context, Board& board, base::Unmap unmap);

  /// A buffer in device memory as others may open it; `id` 0 where they cannot (stream-ordered pools, virtual memory management,
  /// managed memory, another GPU's context).
  [[nodiscard]] Exposed show(const gpu::PointerInfo& info, const void* buffer) noexcept;

  /// The same of an allocation that may not be worth it: what was not shown is from the `uses`th call for it on, and while a slot is free.
  /// Showing, opening and closing cost what some messages do by other ways.
  [[nodiscard]] Exposed show_if_used(const gpu::PointerInfo& info, const void* buffer, unsigned uses) noexcept;

  /// When what is not needed any more may be closed to open something: as CROSSLANE_UNMAP says, or at once, for calls without another way.
  enum class Closing { as_set, at_once };

  /// Another rank's allocation as mapped here; opened if it was not; null where the driver refuses. It stays open as long as somebody
  /// holds what is returned, and then while room lasts. Its owner promises that the allocation lives as long.
  [[nodiscard]] std::shared_ptr<const gpu::Mapping> hold(int local_rank, const Exposed& buffer,
                                                         Closing closing) noexcept;

  /// Whether memory of that rank is still open, as somebody holds it or it could not be closed yet: a driver may refuse to open what that rank has
  /// allocated since, until it is.
  [[nodiscard]] bool has_open(int local_rank) noexcept;

  /// What this rank has freed is not shown any more, and what others do not show is closed: where neither shows or opens anything new.
  void tend() noexcept;

  /// Opens what another rank exported, with the context current. Drivers refuse to open new memory (ALREADY_MAPPED) where freed memory of
  /// its owner's is still open, of which its owner says nothing until it shows something new: then what nobody holds is closed first.
  /// Throws Error (other) where the driver refuses.
  [[nodiscard]] gpu::Mapping map(int local_rank, const MemoryHandle& exported, Closing closing);

  /// Whether that can be, for good: it is closed again. Throws as map().
  void try_opening(int local_rank, const MemoryHandle& exported);

  /// Grows each time that a mapping was closed of memory that may live: what was reached before may be gone.
  [[nodiscard]] std::uint64_t closings() const noexcept { return closings_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t most_open = 512;
  // Questions to the driver before something new is shown: next to nothing beside what opening that costs.
  static constexpr std::size_t checked_at_once = 64;

  // An allocation that is not shown, and how often it was passed; forgotten for another one that takes its place.
  struct Candidate {
    std::uint64_t id = 0;
    unsigned uses = 0;
  };
  struct Own {
    CUdeviceptr base;
    std::size_t slot;
    MemoryHandle handle;
    std::uint64_t used;
  };
  using OwnById = std::map<std::uint64_t, Own>;
  using Key = std::pair<int, std::uint64_t>;  // local rank and id
  struct Peer {
    std::shared_ptr<const gpu::Mapping> mapping;
    std::uint64_t used;
  };

  [[nodiscard]] bool shows(const gpu::PointerInfo& info) const noexcept;
  [[nodiscard]] bool count_use(std::uint64_t id, unsigned uses) noexcept;
  [[nodiscard]] Exposed show_locked(const gpu::PointerInfo& info, const void* buffer) noexcept;
  void drop_dead() noexcept;
  std::size_t free_slot() noexcept;
  enum class Gone { dead, alive };
  template <class Change>
  void change_record(Change&& change) noexcept;
  void withdraw(OwnById::iterator own, Gone gone) noexcept;
  [[nodiscard]] bool may_close(Closing closing) noexcept;
  void close_revoked(int local_rank, Closing closing) noexcept;
  bool close_oldest() noexcept;
  template <class Condition>
  std::size_t close_those(int local_rank, Condition&& condition) noexcept;  // (Key, Peer): is it to be closed?
  std::shared_ptr<const gpu::Mapping> open(int local_rank, const Exposed& buffer, Closing closing) noexcept;
  gpu::Mapping map_locked(int local_rank, const MemoryHandle& exported, Closing closing);

  const gpu::Driver& driver_;
  CUcontext context_;
  Board& board_;
  const base::Unmap unmap_;
  std::optional<gpu::Event> under_way_;  // what the context had when it was last asked
  base::LightMutex mutex_;
  OwnById own_;
  std::array<Candidate, 256> candidates_{};  // by id
  std::uint64_t last_checked_ = 0;           // an id
  std::map<Key, Peer> peers_;
  std::vector<gpu::Mapping> tried_;    // to be closed
  std::map<int, std::uint64_t> seen_;  // the version of a rank's record when all that it no longer shows was closed
  std::uint64_t uses_ = 0;
  std::atomic<std::uint64_t> closings_{0};
};

}  // namespace crosslane::share
