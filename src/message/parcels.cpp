// See parcels.h.
#include "message/parcels.h"

#include "base/error.h"
#include "base/log.h"

#include <algorithm>
#include <string>
#include <utility>

namespace crosslane::message {

using State = share::Offers::State;

void Parcels::live_in(share::Window& window) noexcept {
  const std::lock_guard lock(mutex_);
  window_ = &window;
}

void Parcels::leave() noexcept {
  const std::lock_guard lock(mutex_);
  window_ = nullptr;
  memory_ = {};
  free_ = {};
}

void Parcels::find_memory() noexcept {
  if (memory_.data != nullptr || refused_) return;
  if (rests_.rests()) return rests_.pass();
  std::string why = "library memory for that is used up";
  try {
    if (const auto memory = window_->take_apart(window_bytes_)) {
      memory_ = *memory;
      free_ = base::FreeRanges(window_bytes_);
      return;
    }
    refused_ = true;
  } catch (const base::Error& error) {
    why = error.what();
    refused_ = !base::is_shortage(error);
  }
  if (!refused_) rests_.rest();
  base::log(std::exchange(short_, true) ? base::Topic::info : base::Topic::warning,
            "no {} KiB of GPU memory for messages that others cannot read where they lie, which go through the host{}: "
            "{}; or lower CROSSLANE_MESSAGE_WINDOW",
            window_bytes_ >> 10, refused_ ? "" : " until there is", why);
}

std::size_t Parcels::block_bytes(const Pieces& pieces, std::size_t bytes) noexcept {
  const std::size_t piece = std::min<std::size_t>(pieces.piece_bytes, bytes);
  return (piece + granule - 1) / granule * granule;
}

std::optional<Pieces> Parcels::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (window_ == nullptr || window_bytes_ == 0) return std::nullopt;
  find_memory();
  if (memory_.data == nullptr) return std::nullopt;
  sweep();
  Pieces pieces;
  pieces.window = memory_.region;
  pieces.piece_bytes = std::min({bytes, piece_bytes_, window_bytes_ / 2});
  const std::size_t size = block_bytes(pieces, bytes);
  const std::uint64_t count = pieces.count(bytes);
  const auto wanted = std::min<std::uint64_t>(count, Pieces::most_blocks);
  while (pieces.blocks < wanted) {
    const auto begin = free_.take(size);
    if (!begin) break;
    const auto ticket = offers_.reserve();
    if (!ticket) {
      free_.give_back(*begin, size);
      break;
    }
    pieces.block[pieces.blocks++] = {*ticket, *begin};
  }
  // With two, one can be taken back while a receiver is at the other.
  if (pieces.blocks >= std::min<std::uint64_t>(count, 2)) return pieces;
  for (std::uint64_t block = 0; block < pieces.blocks; ++block) {
    offers_.close(pieces.block[block].ticket);
    free_.give_back(pieces.block[block].offset, size);
  }
  return std::nullopt;
}

void Parcels::release(const Pieces& pieces, std::size_t bytes, std::uint64_t offered, bool withdrawn) {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t block = 0; block < pieces.blocks; ++block) {
    const auto& [first, begin] = pieces.block[block];
    const std::uint64_t uses = offered > block ? (offered - block - 1) / pieces.blocks + 1 : 0;
    const share::Offers::Ticket last{first.round + (uses != 0 ? uses - 1 : 0), first.line};
    lent_.push_back({last, begin, block_bytes(pieces, bytes), uses != 0, withdrawn});
  }
  sweep();
}

// What is over comes back: at most as many as there are offers.
void Parcels::sweep() {
  std::erase_if(lent_, [&](const Lent& lent) {
    const State state = lent.used ? offers_.state(lent.ticket) : State::kept;
    const bool over = state == State::kept || state >= State::done || (lent.withdrawn && offers_.keep(lent.ticket));
    if (over) {
      offers_.close(lent.ticket);
      free_.give_back(lent.begin, lent.bytes);
    }
    return over;
  });
}

}  // namespace crosslane::message
