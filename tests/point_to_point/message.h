// One random message of a point-to-point test, as both its ranks see it: link, tag, layouts, contents, status.
// Everything is drawn from a seed, so that sender and receiver need not talk. It must not know Crosslane.
#pragma once

#include "support/communicators.h"
#include "support/layout.h"
#include "support/program.h"

#include <string>
#include <vector>

namespace crosslane::tests {

/// How many bytes a message has at most: any, and one whose layout has gaps on either side.
struct Longest {
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t in_pieces = bytes;
};

struct Message {
  /// Draws link, layouts (same units, different places) and size.
  /// `plain`: the sender's data has no gaps.
  Message(Random& random, const Units& units, const Communicators& communicators, int from_rank, int to_rank,
          int with_tag, Longest longest, bool plain);

  int from, to, tag;
  Link link;
  Layout sent, received;
  int send_count = 0, receive_count = 0;
  std::size_t unit_count = 0;  ///< Units that travel; the receiver may have room for more.
  std::uint64_t seed;

  [[nodiscard]] TypedBuffer send_buffer(Program& program);
  [[nodiscard]] TypedBuffer receive_buffer(Program& program);
  /// What travels in round `round` (of a persistent request, say).
  [[nodiscard]] std::vector<std::byte> contents(int round = 0) const;
  [[nodiscard]] std::string text() const;

  /// The receiver's memory has no gaps after all.
  void receive_without_gaps() {
    received = Layout(sent.unit());
    receive_count = static_cast<int>(unit_count);
  }

  /// Checks source, tag, count in elements of the buffer's datatype, and basic elements.
  void check_status(const MPI_Status& status, const TypedBuffer& buffer, const std::string& what) const;

 private:
  [[nodiscard]] TypedBuffer buffer(Program& program, Layout& layout, int count) const;
};

/// Completes a request by a way drawn from `random`: Wait, Test, Waitall, Testany, Request_get_status ...
void complete(Random& random, MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE, bool persistent = false);

/// Zero-byte messages between host buffers, for order where MPI asks for it ("the receive is posted").
void tell(const Communicators& communicators, int to, int tag);
void await(const Communicators& communicators, int from, int tag);

}  // namespace crosslane::tests
