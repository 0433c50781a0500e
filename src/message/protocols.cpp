// See protocols.h.
#include "message/protocols.h"

#include "message/header.h"

#include <algorithm>

namespace crosslane::message {

const std::array<Row, 5>& protocols() noexcept {
  static constexpr std::array<Row, 5> rows{{
      {Protocol::plain, "plain", "the MPI's own, on host memory"},
      {Protocol::staged, "staged", "copied to the host whole, then the MPI's own"},
      {Protocol::chunked, "chunked", "a header, then chunks whose copies overlap with MPI on both sides"},
      {Protocol::direct, "direct", "a header, then the receiver reads the sender's GPU memory"},
      {Protocol::packed, "packed",
       "a header, then the receiver reads what the sender packs into its GPU's message window"},
  }};
  return rows;
}

std::string_view name_of(Protocol protocol) noexcept {
  const auto& rows = protocols();
  return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.protocol == protocol; })->name;
}

Protocol choose(const Envelope& envelope) noexcept {
  if (!envelope.on_gpu) return Protocol::plain;
  // A receiver with room for no more than a header could not tell one from a payload of that length.
  const auto reaches = [&](std::size_t threshold) {
    return threshold != 0 && envelope.bytes >= threshold && envelope.bytes > header_bytes;
  };
  // Where two processes take turns on a GPU each kernel or copy waits for a turn: 2.3 ms on an H200, for which a message goes far
  // through the host.
  constexpr std::size_t worth_turns = std::size_t{8} << 20;
  const std::size_t least =
      envelope.turns ? std::max(envelope.direct_threshold, worth_turns) : envelope.direct_threshold;
  const bool reads = envelope.peer_reads && envelope.peer_looks && envelope.direct_threshold != 0;
  const bool worth_reading = reaches(least) || (envelope.token && envelope.bytes >= least);
  if (reads && envelope.regular && worth_reading && !envelope.late) return Protocol::direct;
  // Short ones are staged as fast: packing is a copy, and reading another.
  if (reads && envelope.window && !envelope.turns && reaches(std::max(least, envelope.packed_threshold)))
    return Protocol::packed;
  const bool chunked = envelope.waits && envelope.peer_looks && !envelope.to_self && !envelope.late;
  return chunked && reaches(envelope.threshold) ? Protocol::chunked : Protocol::staged;
}

}  // namespace crosslane::message
