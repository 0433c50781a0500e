// Lookout: for offered payloads that their receivers decline, since they cannot read them where they lie. A rank that sends may be in a call of MPI by
// then, so its helper thread looks, copies what was declined into host memory, and has it carried (ferrying.h). It must not know how a payload goes
// that is read, nor who waits for its end.
#pragma once

#include "base/light_mutex.h"
#include "engine/helper_thread.h"
#include "engine/task.h"
#include "engine/watch.h"
#include "lane/copier.h"
#include "message/buffer.h"
#include "message/ferrying.h"
#include "message/header.h"
#include "message/peer_memory.h"
#include "share/offers.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace crosslane::message {

/// Of one rank that sends.
class Lookout {
 public:
  /// All must outlive it. `peers` is there where anything is offered.
  Lookout(PeerMemory* peers, lane::Copier& copier, Ferrying& ferrying, std::function<engine::HelperThread&()> helper)
      : peers_(peers), copier_(copier), ferrying_(ferrying), helper_(std::move(helper)) {}
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  /// A payload that is offered where it lies.
  class Payload {
   public:
    Payload(Buffer memory, const share::Offers::Ticket& ticket, int receiver, const engine::Watch& waits)
        : buffer(std::move(memory)), offer(ticket), to(receiver), watch(waits) {}

    const Buffer buffer;
    const share::Offers::Ticket offer;
    const int to;
    const engine::Watch watch;
    std::weak_ptr<void> owner;  ///< Has this, and the memory. Set before watch().

    [[nodiscard]] bool watched() const noexcept { return watched_; }

   private:
    friend class Lookout;
    bool watched_ = false;         // stands in Lookout::open_
    bool copied_ = false;          // somebody makes a copy for its receiver
    std::exception_ptr uncopied_;  // why the helper thread has made none
  };
  /// Until its offer is closed, or it is forgotten.
  void watch(Payload& payload) noexcept;
  /// Begins anew where there was no memory to begin.
  void begin() noexcept;
  /// The offer is about to be closed.
  void stop(const share::Offers::Ticket& offer) noexcept;
  /// Its offer is another one's now, or it goes.
  void forget(Payload& payload) noexcept;
  /// Whether it is this thread's to make a copy of it for its receiver.
  [[nodiscard]] bool may_copy(Payload& payload) noexcept;
  /// Of one whose offer has failed. Null where this rank is not why.
  [[nodiscard]] std::exception_ptr why_uncopied(const Payload& payload);

  /// A payload that lies in blocks, one for each piece, whose sender needs it no more: until its receiver is past the first one.
  struct Packed {
    Pieces pieces;
    std::uint64_t bytes;
    lane::Place place;  // that it was packed in
    int to;
  };
  void watch(const Packed& packed);

 private:
  engine::Task<> look();
  void start_copies() noexcept;
  void start_packed() noexcept;
  bool start(const Packed& packed) noexcept;
  bool start(Payload& payload, std::shared_ptr<void> owner) noexcept;
  // `carrying` is of `copied`: made before, so that what memory is wanting for later does not keep the receiver waiting.
  engine::Task<> copy_payload(Payload& payload, std::shared_ptr<void> owner, Ferrying::CopyPointer copied,
                              engine::Task<> carrying);
  engine::Task<> copy_packed(Packed packed, Ferrying::CopyPointer copied, engine::Task<> carrying);
  engine::Task<> copy_blocks(const Packed& packed, Ferrying::Copy& copied, const engine::Watch& watch);

  PeerMemory* const peers_;
  lane::Copier& copier_;
  Ferrying& ferrying_;
  const std::function<engine::HelperThread&()> helper_;
  std::atomic<bool> looks_{false};  // look() runs
  base::LightMutex mutex_;          // of what payloads say of their copies, and of those that go
  // Of each word of an offer: whose it is, until it is closed.
  std::array<std::atomic<Payload*>, share::Offers::most> open_{};
  std::mutex packed_mutex_;  // of the next one
  std::vector<Packed> packed_;
  std::atomic<std::size_t> packed_size_{0};
};

}  // namespace crosslane::message
