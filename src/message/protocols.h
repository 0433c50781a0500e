// The one list of ways in which a message with GPU memory is sent, and the one decision between them.
// It must not know how any of them works.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace crosslane::message {

enum class Protocol {
  plain,    ///< The MPI is given the buffer: host memory, or nothing to send.
  staged,   ///< The whole payload is copied to the host, and that is sent.
  chunked,  ///< A header is sent; the payload follows in chunks whose copies overlap with MPI, on both sides.
  direct,   ///< A header is sent; the receiver reads the payload from the sender's GPU memory.
  packed,  ///< A header is sent; the receiver reads the payload from library memory of the sender's GPU, piece by piece.
};

struct Row {
  Protocol protocol;
  std::string_view name, summary;
};
[[nodiscard]] const std::array<Row, 5>& protocols() noexcept;
[[nodiscard]] std::string_view name_of(Protocol protocol) noexcept;
/// What travels on the application's communicator is a header.
[[nodiscard]] constexpr bool has_header(Protocol protocol) noexcept {
  return protocol == Protocol::chunked || protocol == Protocol::direct || protocol == Protocol::packed;
}

/// What the decision sees of a send. The receiver is told by the header, so that nothing here need be equal on both sides.
struct Envelope {
  bool on_gpu = false;
  std::size_t bytes = 0;  ///< Of the packed payload.
  bool waits = false;    ///< The call returns when the buffer is free, and may wait for the receiver: no buffered send.
  bool to_self = false;  ///< The receiver is this rank.
  bool peer_looks = false;  ///< The receiver takes part in the world and looks at what it receives.
  bool regular =
      false;  ///< A header may be able to say where the payload lies: in one piece, a nest of loops, along a list.
  bool peer_reads = false;           ///< The receiver can open GPU memory of this rank,
  bool late = false;                 ///< ... but came too late for the last ones to read them where they lay.
  bool turns = false;                ///< ... and takes turns with this rank on one GPU.
  bool token = false;                ///< A token may stand for the payload.
  bool window = false;               ///< The payload can be copied to this rank's message window.
  std::size_t threshold = 0;         ///< CROSSLANE_PIPELINE_BYTES; 0: never chunked.
  std::size_t direct_threshold = 0;  ///< CROSSLANE_DIRECT_BYTES; 0: never direct, nor packed.
  std::size_t packed_threshold = 0;  ///< CROSSLANE_PACKED_BYTES.
};
[[nodiscard]] Protocol choose(const Envelope& envelope) noexcept;

}  // namespace crosslane::message
