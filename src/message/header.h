// The header: an ordinary message of a fixed odd length on the application's communicator and tag that stands for a
// payload which follows by another way, so that matching stays MPI's. It must not know how.
#pragma once

#include "kernel/strided.h"
#include "share/board.h"
#include "share/offers.h"
#include "team/world.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace crosslane::message {

/// Below every MPI's eager limit, and a length that hardly any application sends. What is no longer goes as it is.
inline constexpr std::size_t header_bytes = 1021;

/// What a receiver needs to fetch the payload.
struct Header {
  team::Cookie cookie{};          ///< The job's: tells a header from an application's message of the same length.
  std::uint64_t bytes = 0;        ///< Of the packed payload.
  std::uint64_t chunk_bytes = 1;  ///< Of each chunk but the last.
  std::int32_t sender = -1;       ///< Its rank in MPI_COMM_WORLD.
  std::int32_t tag = 0;           ///< Of the chunks on the world's private communicator.
  share::Offers::Ticket offer;    ///< The payload may be read from where it lies; none: it comes in chunks.
  share::Exposed exposed{};       ///< Where its lowest byte is;
  std::uint64_t address = 0;      ///< in the sender itself.
  std::uint64_t strided = 0;      ///< 1: it is `shape` from there on; else contiguous.
  kernel::Strided shape{};

  [[nodiscard]] std::uint64_t chunks() const noexcept { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  /// Where chunk `index` begins and ends in the packed payload.
  [[nodiscard]] std::uint64_t begin(std::uint64_t index) const noexcept { return index * chunk_bytes; }
  [[nodiscard]] std::uint64_t end(std::uint64_t index) const noexcept {
    return index + 1 < chunks() ? begin(index + 1) : bytes;
  }
};

using HeaderMessage = std::array<std::byte, header_bytes>;

[[nodiscard]] HeaderMessage encode(const Header& header) noexcept;

/// The header that a message is, if it is one of this job.
[[nodiscard]] std::optional<Header> decode(std::span<const std::byte> message, const team::Cookie& cookie) noexcept;

}  // namespace crosslane::message
