// SpanTags: the tags of the world's private communicator that collectives among nodes use, a set for each communicator, and how its
// ranks find a set that is free on all of them: as MPIs find context ids, by the bits that all have set. It must not know what is sent.
#pragma once

#include "engine/engine.h"
#include "share/board.h"
#include "team/messenger.h"
#include "team/tags.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>

namespace crosslane::team {

/// Any thread. Several communicators of a process may be looking for a set at once, each in a thread of its own: only one of them offers
/// this process's free sets at a time, the others none, and look again. The one of the lowest key offers them where none does, so that
/// in the end it does on all ranks.
class SpanTags {
 public:
  SpanTags() noexcept;

  /// A task of all ranks of a communicator at once, on which `members` exchanges: the set that is theirs from now on, the same on all of
  /// them. Nothing, on all of them, where some rank is not `willing`, or no set is free on all.
  engine::Task<std::optional<int>> agree(Messenger members, share::TeamKey key, bool willing);
  void give_back(int set) noexcept;

  /// The tag of that set for one of tags_a_span purposes.
  [[nodiscard]] static Tag tag(int set, int purpose) noexcept {
    return static_cast<Tag>(value(Tag::spans) + set * tags_a_span + purpose);
  }

 private:
  static constexpr std::size_t word_bits = 64;
  static constexpr std::size_t words = (most_spans + word_bits - 1) / word_bits;
  class Seeker;

  std::mutex mutex_;  // guards what follows
  std::array<std::uint64_t, words> free_{};
  std::set<share::TeamKey> seeking_;
  std::optional<share::TeamKey> offering_;
};

}  // namespace crosslane::team
