// See preferences.h.
#include "collectives/preferences.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace crosslane::bench {

namespace {

// What reductions and broadcasts share comes first.
std::vector<std::string> with_shared(std::initializer_list<const char*> own) {
  std::vector<std::string> all{
      "mpi", "gsb", "btb", "hierarchy(gsb,gsb)", "hierarchy(gsb,btb)", "hierarchy(btb,gsb)", "hierarchy(btb,btb)"};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

}  // namespace

std::vector<std::string> algorithms_of(const std::string& collective) {
  static const std::vector<std::string> reductions =
      with_shared({"one_shot", "two_shot_ll", "two_shot_ll128", "two_shot_window", "two_shot", "pipelined"});
  static const std::vector<std::string> broadcasts = with_shared({"window", "zero_copy"});
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
