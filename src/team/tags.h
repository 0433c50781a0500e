// The tags of the world's private communicator: one list, so that no two users of it meet. It must not know its users.
#pragma once

namespace crosslane::team {

/// MPI guarantees tags up to 32,767. A user that needs many takes a range and says how long it is.
enum class Tag : int {
  share_token = 1,     ///< leader to member: how to open the node's segment
  share_answer = 2,    ///< member to leader: whether that worked
  share_verdict = 3,   ///< leader to member: whether it worked for all
  message_handle = 4,  ///< to this rank itself: what a matched message of ours is known by
  first_free = 16,
  transfers = 8192,  ///< chunks of point-to-point payloads: `transfer_tags` tags from here on
  spans = 24576,     ///< parts of collectives among nodes: `tags_a_span` for each of `most_spans` communicators
};
inline constexpr int transfer_tags = 16384;
inline constexpr int tags_a_span = 5;
inline constexpr int most_spans = 1638;  // the last tag is 32,765

[[nodiscard]] constexpr int value(Tag tag) noexcept { return static_cast<int>(tag); }

}  // namespace crosslane::team
