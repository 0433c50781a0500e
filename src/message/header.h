// The header: an ordinary message of a fixed odd length on the application's communicator and tag that stands for a
// payload which follows by another way, so that matching stays MPI's. It must not know how.
#pragma once

#include "kernel/strided.h"
#include "lane/mover.h"
#include "message/protocols.h"
#include "share/board.h"
#include "share/offers.h"
#include "team/world.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::message {

/// Short, since a payload that is no longer goes as it is; and a length that hardly any application sends.
inline constexpr std::size_t header_bytes = 255;

/// A payload that its sender packs, piece by piece, into blocks of its message window (parcels.h). Piece i lies in block i % blocks,
/// under that block's offer, whose round grows by one with each use.
struct Pieces {
  static constexpr std::size_t most_blocks = 4;
  struct Block {
    share::Offers::Ticket ticket;  ///< Of its first piece.
    std::uint64_t offset = 0;      ///< In the window.
  };
  std::uint64_t piece_bytes = 0;  ///< Of each piece but the last.
  std::uint64_t blocks = 0;       ///< 0: the payload does not go so.
  share::Region window{};
  std::array<Block, most_blocks> block{};

  /// Of that piece.
  [[nodiscard]] share::Offers::Ticket ticket(std::uint64_t piece) const noexcept {
    const auto& first = block[piece % blocks].ticket;
    return {first.round + piece / blocks, first.line};
  }
  [[nodiscard]] std::uint64_t offset(std::uint64_t piece) const noexcept { return block[piece % blocks].offset; }
  [[nodiscard]] std::uint64_t begin(std::uint64_t piece) const noexcept { return piece * piece_bytes; }
  /// Of a payload.
  [[nodiscard]] std::uint64_t count(std::uint64_t bytes) const noexcept {
    return (bytes + piece_bytes - 1) / piece_bytes;
  }
};

/// What a receiver needs to fetch the payload.
struct Header {
  team::Cookie cookie{};          ///< The job's: tells a header from an application's message of the same length.
  std::uint64_t bytes = 0;        ///< Of the packed payload.
  std::uint64_t chunk_bytes = 1;  ///< Of each chunk but the last.
  std::int32_t sender = -1;       ///< Its rank in MPI_COMM_WORLD.
  std::int32_t tag = 0;           ///< Of the chunks on the world's private communicator.
  std::uint64_t token = 0;        ///< Not 0: what is sent in its stead (token.h).
  share::Offers::Ticket offer;    ///< The payload may be read from where it lies; none: see protocol_of().
  share::Exposed exposed{};       ///< Where its lowest byte is;
  std::uint64_t address = 0;      ///< in the sender itself.
  std::uint64_t strided = 0;      ///< 1: it is this shape from there on; else contiguous,
  kernel::Strided shape{};
  lane::Listed listed;    ///< or, where that has entries, what is listed, from there on:
  share::Exposed list{};  ///< its entries are there.
  Pieces pieces;

  [[nodiscard]] std::uint64_t chunks() const noexcept { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  /// Where chunk `index` begins and ends in the packed payload.
  [[nodiscard]] std::uint64_t begin(std::uint64_t index) const noexcept { return index * chunk_bytes; }
  [[nodiscard]] std::uint64_t end(std::uint64_t index) const noexcept {
    return index + 1 < chunks() ? begin(index + 1) : bytes;
  }
};

/// How the payload follows.
[[nodiscard]] inline Protocol protocol_of(const Header& header) noexcept {
  return header.offer ? Protocol::direct : header.pieces.blocks != 0 ? Protocol::packed : Protocol::chunked;
}

using HeaderMessage = std::array<std::byte, header_bytes>;

/// False for a shape that a header has no room for: of more than 2^32 - 1 runs in a loop.
[[nodiscard]] bool travels(const kernel::Strided& shape) noexcept;
/// The same of a list, of more than 2^32 - 1 rounds, entries, or bytes in a run. It tells no address: a rank sends itself none.
[[nodiscard]] bool travels(const lane::Listed& list) noexcept;

/// Of a header whose `shape` travels; of one with a token, the bytes that are sent in its stead: as many as the payload has.
[[nodiscard]] HeaderMessage encode(const Header& header) noexcept;

/// The header that a message is, if it is one of this job.
[[nodiscard]] std::optional<Header> decode(std::span<const std::byte> message, const team::Cookie& cookie) noexcept;

}  // namespace crosslane::message
