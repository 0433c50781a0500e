// The one decision: which algorithm a call takes. It sees only what is equal on all ranks, so that all decide alike. Preferences
// by size: the shipped ones, or the user's ("0-4k:ll,4k-1m:one_shot,1m-:two_shot"); what does not support a call falls through
// to the next preference; of the shipped ones some supports any call whose kernels may wait for others'. Where all members are on one GPU, some shipped
// ones come before the others; where members take turns on a GPU, the shipped ones are others, and they are the last.
#pragma once

#include "base/function_ref.h"
#include "base/settings.h"
#include "collective/catalogue.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::collective {

/// From `begin` bytes up to below `end`, of teams of up to so many members.
struct Preference {
  std::size_t begin, end;
  int most_members;
  std::string algorithm;
  const Algorithm* row = nullptr;  ///< Of that name; null for "mpi".
  std::string text;                ///< As it was written.
  std::string origin;              ///< The setting that it is from, or that it was shipped.
};

/// What became of one preference on the way to a choice.
enum class Fate : std::uint8_t {
  other_size,   ///< It is for other sizes.
  other_team,   ///< It is for teams of fewer members.
  unsupported,  ///< Its algorithm does not support the call.
  too_late,     ///< MPI is asked only by the first preference of a size.
  taken,
};
struct Step {
  const Preference* preference;
  Fate fate;
};

class Choice {
 public:
  /// Throws Error (argument) naming the setting, what is wrong with it and what is allowed.
  explicit Choice(const base::Settings& settings);

  /// True if the preferences leave such calls of a team of so many to MPI ("0-4k:mpi"), whatever else the team is.
  [[nodiscard]] bool left_to_mpi(const Shape& shape, int members) const noexcept;

  /// Nothing (null) where no algorithm supports the call, or none that does is preferred to MPI.
  [[nodiscard]] const Algorithm* choose(const Shape& shape, const TeamFacts& facts) const;
  /// The same with what became of each preference in their order, up to the one that was taken. None is taken where
  /// what is shipped for turns on a GPU decides; the last one is where that is "mpi", and the result is null.
  [[nodiscard]] const Algorithm* explain(const Shape& shape, const TeamFacts& facts, std::vector<Step>& steps) const;

  /// The same where members are on several nodes, whose ranks can agree on nothing about a single call: null where no algorithm that spans
  /// nodes is preferred for it by the user before MPI, nor (CROSSLANE_MIXED=0) by what is shipped.
  [[nodiscard]] const Algorithm* choose_across_nodes(const Shape& shape, const TeamFacts& facts) const;
  /// False if it never chooses any for this collective.
  [[nodiscard]] bool spans_nodes(Collective collective) const noexcept;
  /// The same for all.
  [[nodiscard]] bool spans_nodes() const noexcept;
  /// CROSSLANE_MIXED=0: ranks of several nodes never pass GPU memory and host memory to one call.
  [[nodiscard]] bool one_kind() const noexcept { return mixed_ == base::Mixed::no; }

  /// The user's, and then the shipped ones of teams on several GPUs.
  [[nodiscard]] const std::vector<Preference>& preferences(Collective collective) const noexcept {
    return preferences_[static_cast<std::size_t>(collective)];
  }
  /// True if reductions must give the same bits by all algorithms.
  [[nodiscard]] bool deterministic() const noexcept { return deterministic_; }
  /// True if the user prefers an algorithm that the host drives, anywhere.
  [[nodiscard]] bool drives() const noexcept { return drives_; }
  /// True if the user set the preferences of this collective.
  [[nodiscard]] bool overridden(Collective collective) const noexcept {
    return users_[static_cast<std::size_t>(collective)] != 0;
  }

 private:
  /// Asks about each preference of a collective in order, until one is what was sought.
  [[nodiscard]] const Preference* find(const Shape& shape, const TeamFacts& facts,
                                       base::FunctionRef<bool(const Preference&)> sought) const;

  std::array<std::vector<Preference>, collective_count> preferences_;
  std::array<std::size_t, collective_count> users_{};                 // of the preferences, the first so many
  std::array<std::vector<Preference>, collective_count> on_one_gpu_;  // shipped ones that come before the others
  std::array<std::vector<Preference>, collective_count> in_turns_;    // shipped ones where members take turns on a GPU
  std::array<std::vector<Preference>, collective_count> across_nodes_;  // the user's, and shipped ones
  base::Mixed mixed_ = base::Mixed::automatic;
  bool deterministic_ = false;
  bool drives_ = false;
};

/// A hash of the algorithms that there are and of the shipped preferences: equal where ranks can choose alike.
[[nodiscard]] std::uint64_t catalogue_hash();

/// Parses a user's preferences for a collective; `setting` names them in errors.
[[nodiscard]] std::vector<Preference> parse_preferences(const std::string& setting, Collective collective,
                                                        std::string_view text);

}  // namespace crosslane::collective
