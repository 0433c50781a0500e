// Parcels: blocks of this rank's message window, GPU memory of ours that the node's other ranks read, lent to payloads that cannot be
// read where they lie (TYPES, section 4.1: the sender's fragments). A block is in use until its last reader is past it, which its offer
// says; nobody waits for that. It must not know what is packed into them.
#pragma once

#include "base/backoff.h"
#include "base/free_ranges.h"
#include "gpu/stream.h"
#include "message/header.h"
#include "share/offers.h"
#include "share/window.h"

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

namespace crosslane::message {

/// One rank's. Thread-safe.
class Parcels {
 public:
  /// Of at most `window_bytes`, in pieces of `piece_bytes`.
  Parcels(share::Offers& offers, std::size_t window_bytes, std::size_t piece_bytes)
      : offers_(offers), window_bytes_(window_bytes / granule * granule), piece_bytes_(piece_bytes) {}

  /// From now on, in that window; its memory is taken at the first payload.
  void live_in(share::Window& window) noexcept;
  /// The window goes; nobody reads any more.
  void leave() noexcept;

  /// Blocks for a payload: one for each piece, or at least two that are used in turn. Nothing while there is no room.
  [[nodiscard]] std::optional<Pieces> take(std::size_t bytes);

  /// Where the offsets of what take() gave count from.
  [[nodiscard]] std::byte* memory() const noexcept { return memory_.data; }

  /// The blocks of a payload of which that many pieces were offered, or will be, or withheld, and no more. Blocks come back once their
  /// readers are past them; of a payload that was `withdrawn`, also where nobody has taken the offer.
  void release(const Pieces& pieces, std::size_t bytes, std::uint64_t offered, bool withdrawn);

 private:
  static constexpr std::size_t granule = 512;
  struct Lent {
    share::Offers::Ticket ticket;  // of its last use
    std::size_t begin, bytes;
    bool used, withdrawn;
  };
  static std::size_t block_bytes(const Pieces& pieces, std::size_t bytes) noexcept;
  /// Takes the memory, where there is none yet and some can be had.
  void find_memory() noexcept;
  void sweep();

  share::Offers& offers_;
  const std::size_t window_bytes_, piece_bytes_;
  std::mutex mutex_;  // guards all that follows
  share::Window* window_ = nullptr;
  bool refused_ = false, short_ = false;
  base::ShortageBackoff rests_;  // in payloads, where memory was short
  share::Window::Piece memory_;
  base::FreeRanges free_;
  std::deque<Lent> lent_;  // the oldest first
};

}  // namespace crosslane::message
