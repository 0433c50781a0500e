// See preferences.h.
#include "collectives/preferences.h"

#include "collectives/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace crosslane::bench {

namespace {

struct Setting {
  const char *name, *collective;
  std::vector<std::string> kernels;
  bool driven = false;  // by hosts, too
};

const std::vector<Setting>& settings() {
  static const std::vector<std::string> reductions{"ll",       "one_shot",  "two_shot_ll", "two_shot_window",
                                                   "two_shot", "pipelined", "ring"};
  static const std::vector<std::string> to_root{"ll",       "one_shot",      "two_shot_ll", "two_shot_window",
                                                "two_shot", "two_shot_told", "pipelined",   "ring"};
  static const std::vector<std::string> moves{"ll", "ll128", "window", "zero_copy"};
  static const std::vector<std::string> travelling{"ll", "ll128", "window", "zero_copy", "ring"};
  static const std::vector<std::string> pushed{"ll", "ll128", "window", "zero_copy", "pipelined"};
  static const std::vector<Setting> all{
      {"CROSSLANE_ALLREDUCE", "allreduce", reductions, true},
      {"CROSSLANE_REDUCE", "reduce", to_root, true},
      {"CROSSLANE_BROADCAST", "bcast", travelling, true},
      {"CROSSLANE_ALLGATHER", "allgather", travelling},
      {"CROSSLANE_ALLTOALL", "alltoall", moves},
      {"CROSSLANE_REDUCE_SCATTER_BLOCK", "reduce_scatter", {"ll", "window", "zero_copy", "pipelined", "ring"}},
      {"CROSSLANE_GATHER", "gather", pushed},
      {"CROSSLANE_SCATTER", "scatter", pushed},
  };
  return all;
}

std::size_t ranks_of_launcher() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* const size = std::getenv(name)) return std::max(std::strtoul(size, nullptr, 10), 1UL);
  return 1;
}

}  // namespace

std::vector<std::string> algorithms_of(const std::string& collective, bool on_stream) {
  std::vector<std::string> all;
  const auto& known = settings();
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.collective == collective; });
  if (found == known.end()) return all;
  if (!on_stream) all.emplace_back("mpi");
  if (!on_stream && found->driven) {
    for (const char* const driven :
         {"gsb", "btb", "hierarchy(gsb,gsb)", "hierarchy(gsb,btb)", "hierarchy(btb,gsb)", "hierarchy(btb,btb)"})
      all.emplace_back(driven);
  }
  all.insert(all.end(), found->kernels.begin(), found->kernels.end());
  return all;
}

std::size_t preference_step(const std::string& collective, std::size_t size, std::size_t ranks) {
  constexpr std::size_t word = 16, lines = 32;
  if (size >= lines * most_preference_step * ranks) return most_preference_step * ranks;
  return has_blocks(collective) ? word * ranks : word;
}

void check_apart(const std::string& collective, std::vector<long> sizes, std::size_t ranks, bool on_stream) {
  std::sort(sizes.begin(), sizes.end());
  const std::size_t ways = algorithms_of(collective, on_stream).size() + 1;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    const auto size = static_cast<std::size_t>(sizes[i]), next = static_cast<std::size_t>(sizes[i + 1]);
    if (size + ways * preference_step(collective, size, ranks) > next)
      throw std::runtime_error(
          fmt::format("--sizes: {} and {} bytes are too near for the {} ways of {}", size, next, ways, collective));
  }
}

void prefer_each(const std::vector<long>& sizes, bool on_stream) {
  for (const Setting& setting : settings()) {
    std::string text;
    for (const long size : sizes) {
      const std::size_t ranks = ranks_of_launcher(), blocks = has_blocks(setting.collective) ? ranks : 1;
      const std::size_t step = preference_step(setting.collective, static_cast<std::size_t>(size), ranks) / blocks;
      auto from = static_cast<std::size_t>(size) / blocks;
      for (const auto& algorithm : algorithms_of(setting.collective, on_stream)) {
        text += fmt::format("{}{}-{}:{}", text.empty() ? "" : ",", from, from + step, algorithm);
        from += step;
      }
    }
    setenv(setting.name, text.c_str(), 1);
  }
}

}  // namespace crosslane::bench
