// Ferrying: the way of a payload that its sender has in host memory, once its receiver asks for it by declining the offer: the sender's helper thread
// fills it into the receiver's ferry (share/ferry.h), piece by piece. It must not know why there is a copy, nor who waits for its end.
#pragma once

#include "engine/helper_thread.h"
#include "engine/task.h"
#include "message/peer_memory.h"
#include "share/offers.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace crosslane::message {

/// Of one rank that sends.
class Ferrying {
 public:
  /// Both must outlive it. `peers` is there where anything is offered.
  Ferrying(PeerMemory* peers, std::function<engine::HelperThread&()> helper)
      : peers_(peers), helper_(std::move(helper)) {}
  Ferrying(const Ferrying&) = delete;
  Ferrying& operator=(const Ferrying&) = delete;

  /// What is in the host memory of its sender, for a receiver that declines the offer; nothing: it could not be had.
  struct Copy {
    Copy(const share::Offers::Ticket& ticket, int receiver) : offer(ticket), to(receiver) {}
    const share::Offers::Ticket offer;
    const int to;
    bool carried = false;  // for the helper thread: it has begun
    // Memory of no context: that may end before the receiver takes the last of it.
    std::optional<std::vector<std::byte>> payload;
  };
  using CopyPointer = std::shared_ptr<Copy>;

  /// From now on the helper thread looks whether it is asked for, more and more seldom, and carries it then. Where there is no memory for that, this
  /// throws, and nothing later.
  void serve(const CopyPointer& copy);
  /// For the engine, whose thread may see that sooner. Ends then, or when nobody will ask any more.
  engine::Task<> hasten(CopyPointer copy);
  /// On the helper thread: carries it, if it was asked for by now. Needs no memory once it has been called.
  engine::Task<> carry(CopyPointer copy);

  /// In MPI_Finalize: from now on no rank asks for what was not asked for.
  void all_received() noexcept { all_received_.store(1, std::memory_order_release); }

 private:
  engine::Task<> carry_when_asked(CopyPointer copy, engine::Task<> carrying);

  PeerMemory* const peers_;
  const std::function<engine::HelperThread&()> helper_;
  std::atomic<std::uint64_t> all_received_{0};
};

}  // namespace crosslane::message
