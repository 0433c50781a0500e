// See preferences.h.
#include "collectives/preferences.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace crosslane::bench {

const std::vector<std::string>& algorithms_of(const std::string& collective) {
  static const std::vector<std::string> reductions{"mpi",
                                                   "gsb",
                                                   "btb",
                                                   "hierarchy(gsb,gsb)",
                                                   "hierarchy(gsb,btb)",
                                                   "hierarchy(btb,gsb)",
                                                   "hierarchy(btb,btb)",
                                                   "one_shot",
                                                   "two_shot_window",
                                                   "two_shot",
                                                   "pipelined"};
  static const std::vector<std::string> broadcasts{"mpi",
                                                   "gsb",
                                                   "btb",
                                                   "hierarchy(gsb,gsb)",
                                                   "hierarchy(gsb,btb)",
                                                   "hierarchy(btb,gsb)",
                                                   "hierarchy(btb,btb)",
                                                   "window",
                                                   "zero_copy"};
  return collective == "bcast" ? broadcasts : reductions;
}

void prefer_each(const std::vector<long>& sizes) {
  constexpr std::array<std::pair<const char*, const char*>, 3> settings{
      {{"CROSSLANE_ALLREDUCE", "allreduce"}, {"CROSSLANE_REDUCE", "reduce"}, {"CROSSLANE_BROADCAST", "bcast"}}};
  for (const auto& [setting, collective] : settings) {
    std::string text;
    for (const long size : sizes) {
      auto from = static_cast<std::size_t>(size);
      for (const auto& algorithm : algorithms_of(collective)) {
        text += fmt::format("{}{}-{}:{}", text.empty() ? "" : ",", from, from + preference_step, algorithm);
        from += preference_step;
      }
    }
    setenv(setting, text.c_str(), 1);
  }
}

}  // namespace crosslane::bench
