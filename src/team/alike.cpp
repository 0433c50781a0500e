// See alike.h.
#include "team/alike.h"

#include "base/error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace crosslane::team {
namespace {

/// "ranks 0-2, 5".
std::string named(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (first > 0) text += ", ";
    text += last == first ? fmt::format("{}", ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

using Values = std::map<std::string, std::string, std::less<>>;  // by name

Values values_of(std::string_view lines) {
  Values values;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    const auto equals = line.find('=');
    if (equals != std::string_view::npos) values.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return values;
}

}  // namespace

std::string differences(std::span<const std::string> lines) {
  std::map<std::string, std::map<std::string, std::vector<int>>> ranks_by_value;  // by name
  std::vector<Values> all;
  for (const std::string& each : lines) all.push_back(values_of(each));
  for (const Values& values : all)
    for (const auto& row : values) ranks_by_value.try_emplace(row.first);
  std::string told;
  for (auto& [name, by_value] : ranks_by_value) {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const auto found = all[rank].find(name);
      by_value[found == all[rank].end() ? std::string{} : found->second].push_back(static_cast<int>(rank));
    }
    if (by_value.size() == 1) continue;
    if (!told.empty()) told += "; ";
    told += name;
    bool first = true;
    for (const auto& [value, ranks] : by_value) {
      told +=
          fmt::format("{}{} on {}", first ? " is " : ", ", value.empty() ? "not set" : '"' + value + '"', named(ranks));
      first = false;
    }
  }
  return told;
}

engine::Task<> refuse_differences(const Messenger& messenger, int ranks, std::string_view mine) {
  const auto count = static_cast<std::size_t>(ranks);
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(count);
  co_await messenger.all_gather(bytes_of(length), std::as_writable_bytes(std::span{lengths}));
  const std::size_t longest = *std::ranges::max_element(lengths);
  std::vector<char> padded(longest);
  std::ranges::copy(mine, padded.begin());
  std::vector<char> gathered(longest * count);
  co_await messenger.all_gather(std::as_bytes(std::span{padded}), std::as_writable_bytes(std::span{gathered}));
  std::vector<std::string> all;
  all.reserve(count);
  for (std::size_t rank = 0; rank < count; ++rank) all.emplace_back(gathered.data() + rank * longest, lengths[rank]);
  throw base::Error(base::ErrorClass::argument,
                    "ranks must be started with the same settings, but {}; give all the same", differences(all));
}

}  // namespace crosslane::team
