// See protocols.h.
#include "message/protocols.h"

#include "message/header.h"

#include <algorithm>

namespace crosslane::message {

const std::array<Row, 3>& protocols() noexcept {
  static constexpr std::array<Row, 3> rows{{
      {Protocol::plain, "plain", "the MPI's own, on host memory"},
      {Protocol::staged, "staged", "copied to the host whole, then the MPI's own"},
      {Protocol::chunked, "chunked", "a header, then chunks whose copies overlap with MPI on both sides"},
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
  const bool long_enough =
      envelope.threshold != 0 && envelope.bytes >= envelope.threshold && envelope.bytes > header_bytes;
  const bool chunked = long_enough && envelope.waits && envelope.peer_looks && !envelope.to_self;
  return chunked ? Protocol::chunked : Protocol::staged;
}

}  // namespace crosslane::message
