// Tokens: how a payload that is no longer than a header is offered. Eight bytes at the beginning of an ordinary message of the payload's own
// length stand for it; what a header would tell lies beside the offer's word in the node's shared memory. So matching, truncation, probes and
// counts are MPI's own. It must not know how a payload is read.
//
// A receiver takes for a token only what its owner's line says at that moment: a message for this rank, of that length, that begins so.
// The eight bytes are the offer's name, hidden by the job's cookie: an application's message is mistaken for a token if it begins by chance
// (2^-64 each) with one that stands for a message which the same rank has yet to receive.
//
// Only ranks that look at short receives may be sent one (PeerMemory::takes_tokens), and its owner keeps the line until the receiver has read
// it: offers that were withdrawn, too.
#pragma once

#include "message/header.h"
#include "share/offers.h"
#include "team/world.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::message {

inline constexpr std::size_t token_bytes = sizeof(std::uint64_t);

/// True for a payload that a token may stand for.
[[nodiscard]] constexpr bool takes_token(std::size_t bytes) noexcept {
  return bytes >= token_bytes && bytes < header_bytes;
}

class Tokens {
 public:
  /// Of this rank of MPI_COMM_WORLD, whose node's directory and offers must outlive it.
  Tokens(const share::Directory& directory, const share::Offers& offers, const team::Cookie& cookie,
         int world_rank) noexcept;

  /// False on nodes of more ranks than a token tells apart.
  [[nodiscard]] bool usable() const noexcept;

  /// Writes what the token of a header of this rank stands for beside the word of its offer, before the token is sent; for that rank of
  /// MPI_COMM_WORLD. The payload is contiguous.
  [[nodiscard]] std::uint64_t write(const Header& header, int to) const noexcept;

  /// The header that a message to this rank stands for.
  [[nodiscard]] std::optional<Header> read(std::span<const std::byte> message) const noexcept;

 private:
  const share::Directory& directory_;
  const share::Offers& offers_;
  const team::Cookie cookie_;
  const int rank_;
  const std::uint64_t key_;
};

}  // namespace crosslane::message
