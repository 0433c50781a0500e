// Prepared: what a communicator has for calls that are only enqueued on streams: a region in each member's window, apart from those of
// blocking calls since the GPU sees the two in no agreed order, and buffers of the application that all members have mapped.
// Made by a collective call that may wait; used without a word to anybody. It must not know any collective.
//
// Its place on the board is for the end alone: a member that leaves shows how many launches its kernels have ended, and whether it knows of one that
// has not (as its first arrival), and waits for all others' word. Unless the numbers are equal, and nobody knows of one, others may still use its
// region. Then each shows its number anew (the next arrival) once that is no less than any that was shown, and it knows of none that has not ended:
// until all show the same, the region is not used again; and so it is for good where a member cannot tell, or has died, for whom nobody waits. What
// nobody knows of is what graphs have launched, until a block of it has ended on some member, and as many launches that were enqueued behind that: that
// the application waits for its streams first is up to that.
#pragma once

#include "base/error.h"
#include "engine/engine.h"
#include "gpu/driver.h"
#include "gpu/mapping.h"
#include "gpu/marker.h"
#include "gpu/pinned_buffer.h"
#include "gpu/stream.h"
#include "share/board.h"
#include "team/home.h"
#include "team/messenger.h"
#include "team/region.h"
#include "team/view.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::team {

class Prepared {
 public:
  /// A buffer of this rank that others are to map: from `address` to the end of its allocation.
  struct Buffer {
    std::byte* address = nullptr;
    gpu::PointerInfo info;
  };
  /// What a member passes: `largest` and the number of buffers are equal on all members.
  struct Wish {
    std::size_t largest = 0;  ///< Bytes of the largest buffer of a call; 0: unknown.
    std::vector<Buffer> buffers;
    Home* home = nullptr;      ///< Null only where there is a refusal.
    std::uint64_t number = 0;  ///< Names this making among those of this rank.
    std::function<void()>
        reclaim;  ///< Gives back what was freed: all members have come so far, with what they freed before.
    std::optional<base::Error> refusal;  ///< Why this rank cannot take part: then no rank does.
  };
  /// How the members talk while they prepare: MPI's own calls on their communicator.
  struct Exchange {
    Messenger messenger;
    engine::Engine& engine;
    engine::Watch watch;
  };

  /// `local_ranks`: the members on the node, by rank in the communicator; this rank is `me`. Does nothing yet.
  Prepared(engine::Engine& engine, std::vector<int> local_ranks, int me);
  ~Prepared();
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(local_ranks_.size()); }
  [[nodiscard]] int me() const noexcept { return me_; }

  /// By all members at once. The first time it connects them; each time the buffers take the place of those of the last one.
  /// Throws Error on all members where one of them cannot take part or their wishes differ; what was there before then stays.
  void prepare(const Exchange& exchange, const Wish& wish);

  /// Prepared at least once with success, and not left.
  [[nodiscard]] bool connected() const noexcept { return connection_ != nullptr; }
  /// What follows is for connected ones.
  [[nodiscard]] Home& home() const noexcept { return *connection_->home; }
  [[nodiscard]] TeamView view() const noexcept { return *connection_->view; }

  /// Which of the prepared buffers holds all of [address, address + bytes), as far as each member's does; -1: none.
  [[nodiscard]] int find(const std::byte* address, std::size_t bytes) const noexcept;
  /// How many there are, and where a member's begins, as mapped here; null where not all have mapped all of that index.
  [[nodiscard]] int buffers() const noexcept { return static_cast<int>(buffers_.size()); }
  [[nodiscard]] std::byte* begin(int index, int member) const noexcept {
    const Shared& buffer = buffers_[static_cast<std::size_t>(index)];
    return buffer.mapped ? buffer.address[static_cast<std::size_t>(member)] : nullptr;
  }
  /// Where `address`, which lies in the own buffer `index`, is in a member's, as mapped here.
  [[nodiscard]] std::byte* reach(int index, const std::byte* address, int member) const noexcept;
  /// False if the address lies in a prepared buffer, but not in the allocation that it was.
  [[nodiscard]] bool lives(const std::byte* address, std::uint64_t buffer_id) const noexcept;

  /// Where kernels say which member they gave up waiting for, as the GPU knows it.
  [[nodiscard]] std::uint64_t* failed_word() const noexcept;
  /// A call of so many launches was enqueued that runs once, not while its stream is captured.
  void enqueued(std::uint64_t launches) const noexcept { enqueued_.fetch_add(launches, std::memory_order_relaxed); }
  /// This rank has enqueued but a part of a call, or nothing: its next one would meet what is left of the others' part in it. From now on it is
  /// itself missing().
  void give_up() const noexcept;
  /// That member, -1 if there is none.
  [[nodiscard]] int missing() const noexcept;

  /// Says to the others what this rank's kernels have done, which have ended: no call follows.
  void announce() noexcept;
  /// After it: gives back what it is known by now that nobody uses; true once that is all. Never waits, but asks the GPU for what the next look is to
  /// know. Warns where some member's kernels had not ended when all had said so.
  [[nodiscard]] bool settle() noexcept;
  /// The communicator is freed: announce(), and settle() if the others come soon, too. Ranks may free communicators in any order, or do something else
  /// first that others wait for; who keeps this settles it later.
  void retire() noexcept;
  /// After announce() on all members, before the home's end: what others may still use then goes with that.
  void leave() noexcept;

 private:
  struct Connection {
    Home* home = nullptr;
    share::TeamPlace place;
    RegionLayout layout{};
    share::Window::Piece region;
    std::optional<share::Window::Piece> large;  ///< Where large calls are to be expected and there is memory for it.
    bool half = false;        ///< Its calls may keep half of each GPU's thread blocks; else a quarter.
    std::uint32_t seats = 0;  ///< Of them, this rank's, that are set aside for it: until its kernels have ended.
    std::optional<gpu::Stream> stream;
    std::optional<gpu::Marker> marker;
    gpu::PinnedBuffer words;  ///< A line each: the failed word, and the own region's counters at the end.
    std::optional<TeamView> view;
    std::uint64_t shown = 0;             ///< This rank's last arrival.
    std::optional<std::uint64_t> asked;  ///< The marker's value behind a question to the GPU that is under way.
  };
  /// One of each member's, by member.
  struct Shared {
    std::vector<std::byte*> address;
    std::vector<std::shared_ptr<const gpu::Mapping>> mapping;  ///< Null for the own one.
    std::size_t bytes = 0;                                     ///< What all of them have.
    std::uint64_t buffer_id = 0;                               ///< Of the own one.
    bool mapped = false;                                       ///< By all.
  };
  /// What a member's kernels have done.
  struct Count;
  struct Kept;
  struct Opening;
  struct Shown;
  static void look_for_failure(const void* connection);

  struct Agreed {
    share::TeamKey key;
    bool half;  ///< All members have reserved half of their GPU for it.
  };
  [[nodiscard]] Agreed agree(const Exchange& exchange, const Wish& wish, bool half) const;
  std::shared_ptr<Connection> take(Home& home, std::size_t largest, const Agreed& agreed);
  void map(Connection& connection) const;
  [[nodiscard]] bool map_large(Connection& connection, const std::vector<Shown>& all) const;
  [[nodiscard]] Shared map(Home& home, const Buffer& mine, const std::vector<Shown>& all) const;
  static void give_back(Connection& connection) noexcept;
  static void free_seats(Connection& connection) noexcept;
  void ask_for_count(Connection& connection) const;
  [[nodiscard]] Count count(const Connection& connection) const noexcept;
  void show(Connection& connection, std::uint64_t launches, bool any_under_way) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> look(Connection& connection) const noexcept;
  void warn(bool known) noexcept;
  void abandon() noexcept;
  [[nodiscard]] bool comes_to_leave(const Connection& connection, int member) const;

  engine::Engine& engine_;
  std::vector<int> local_ranks_;
  int me_;
  std::shared_ptr<Connection> connection_;
  std::vector<Shared> buffers_;
  std::unique_ptr<Kept> kept_;                      // for abandon(), which there may be no memory for
  mutable std::atomic<std::uint64_t> enqueued_{0};  // launches that run once
  bool warned_ = false;
  mutable std::atomic<bool> gave_up_{false};  // then launches of a call that failed half enqueued are counted by nobody
};

}  // namespace crosslane::team
