// See choose.h.
#include "collective/choose.h"

#include "base/error.h"
#include "base/hash.h"
#include "kernel/team.h"
#include "kernel/wire.h"
#include "share/board.h"
#include "team/region.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>

namespace crosslane::collective {
namespace {

// Stands in preferences for the application's own MPI on host copies.
constexpr std::string_view mpi_itself = "mpi";
constexpr std::size_t without_end = std::numeric_limits<std::size_t>::max();
constexpr int any_number = std::numeric_limits<int>::max();

constexpr bool ll_takes(std::size_t bytes) noexcept {
  for (int members = 1; members <= share::Board::most_members; ++members)
    if (kernel::Packets::payload(team::region_layout(members).packets.slot_bytes) < bytes) return false;
  return true;
}
// Up to there reductions of more than eight members have ll alone; teams larger than the board takes are none, and their calls MPI's.
static_assert(ll_takes(std::size_t{16} << 10) && share::Board::most_members <= int{kernel::most_members});

// Measured on one node of H200 with NVSwitch: @4 on four of them, @8 on eight; the rest on eight, too, or for teams that nobody has
// measured; @2 on two H100, and as a whole on two H200. Not measured: the v forms. Bytes as in Shape. What ends at 260k, 388k, 412k or 516k does
// so where the algorithm supports no more in the largest team that it is for, just above a size that it supports.
constexpr std::string_view shipped(Collective collective) noexcept {
  switch (collective) {
    case Collective::allreduce:
      return "0-260k:ll@2,0-192k:ll@4,192k-16m:two_shot@4,192k-260k:ll@4,256k-516k:two_shot_ll@4,0-64k:ll@8,"
             "64k-16m:two_shot@8,64k-412k:two_shot_ll@8,256k-16m:two_shot,0-32k:ll,16k-128k:one_shot,"
             "64m-:ring@4,96m-:ring@8,16m-:pipelined,16m-:two_shot,128k-:two_shot_window";
    case Collective::reduce:
      return "0-260k:ll@4,256k-:two_shot@4,384k-48m:two_shot_told@2,256k-1280k:one_shot@2,"
             "1280k-:pipelined@2,256k-388k:two_shot_ll@4,0-80k:ll@8,64k-160k:two_shot_ll@8,160k-:two_shot@8,"
             "48m-:pipelined@4,224k-96m:two_shot_told@8,64k-384k:one_shot@8,256k-:two_shot,0-32k:ll,"
             "16k-128k:one_shot,4m-:pipelined,128k-:two_shot_window";
    case Collective::broadcast:
      return "0-260k:ll@2,256k-516k:ll128@2,0-160k:ll@4,160k-:zero_copy@4,160k-516k:ll128@4,160k-260k:ll@4,0-80k:ll@8,"
             "64k-:zero_copy@8,64k-260k:ll128@8,0-32k:ll,256k-:zero_copy,0-:window";
    case Collective::gather:
    case Collective::scatter:
      return "0-260k:ll@2,0-160k:ll@4,160k-516k:ll128@4,0-72k:ll@8,64k-260k:ll128@8,0-16k:ll,256k-:zero_copy,"
             "256k-:pipelined,0-:window";
    case Collective::reduce_scatter_block:
      return "0-260k:ll@2,0-128k:ll@4,128k-:zero_copy@4,0-72k:ll@8,0-16k:ll,16m-:ring@8,64k-:zero_copy@8,"
             "256k-:zero_copy,0-:window";
    case Collective::reduce_scatter:
      return "0-260k:ll@2,0-128k:ll@4,0-72k:ll@8,0-16k:ll,32k-:zero_copy@8,256k-:zero_copy,0-:window";
    case Collective::allgather:
      return "0-260k:ll@2,0-160k:ll@4,160k-516k:ll128@4,0-72k:ll@8,64k-260k:ll128@8,0-16k:ll,32m-:ring@4,"
             "516k-:zero_copy@4,16m-:ring@8,64k-:zero_copy@8,256k-:zero_copy,0-:window";
    case Collective::alltoall:
    case Collective::allgatherv:
      return "0-260k:ll@2,0-160k:ll@4,160k-516k:ll128@4,0-72k:ll@8,64k-260k:ll128@8,0-16k:ll,64k-:zero_copy@8,"
             "256k-:zero_copy,0-:window";
    case Collective::gatherv:
    case Collective::scatterv:
    case Collective::alltoallv:
      return "0-260k:ll@2,0-160k:ll@4,160k-516k:ll128@4,0-72k:ll@8,64k-260k:ll128@8,0-16k:ll,256k-:zero_copy,"
             "0-:pairwise";
    case Collective::barrier:
      return "0-:ll";
    case Collective::scan:
    case Collective::exscan:
      return "0-32k:ll,0-:window";
  }
  return "0-:window";
}

// As COLL 4.3 found it: below 256 KiB staging through the host is as good, on one GPU a shared buffer is best, and among GPUs a tree;
// on one GPU, and with a rank on each, the hierarchy is the one or the other. What else there is waits for peers' kernels.
constexpr std::string_view shipped_in_turns(Collective collective) noexcept {
  switch (collective) {
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::broadcast:
      return "256k-:hierarchy(gsb,btb),256k-:gsb,0-:mpi";
    default:
      return "0-:mpi";
  }
}

// On one GPU nothing has to go over links, so that windows are only detours. Measured with 4, 8 and 16 ranks on one H200.
constexpr std::string_view shipped_on_one_gpu(Collective collective) noexcept {
  return collective == Collective::allreduce ? "16m-:two_shot" : "";
}

// Among nodes, where it may be assumed that all ranks pass GPU memory or none does. Below, what the MPI does on host copies is as fast
// (four pretended nodes of two GPUs; with one rank a GPU up to 2 MiB).
constexpr std::string_view shipped_across_nodes(Collective collective) noexcept {
  switch (collective) {
    case Collective::allreduce:
    case Collective::reduce:
    case Collective::broadcast:
      return "512k-:hierarchy(gsb,btb)";
    default:
      return "";
  }
}

// The next of a list's items, which commas part, but not those inside parentheses: hierarchy(gsb,btb) is one. Takes it off.
std::string_view take_item(std::string_view& list) noexcept {
  int depth = 0;
  std::size_t end = 0;
  for (; end < list.size() && (list[end] != ',' || depth > 0); ++end) {
    if (list[end] == '(') ++depth;
    if (list[end] == ')') --depth;
  }
  const std::string_view item = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return item;
}

bool for_all_sizes(const Preference& preference) noexcept {
  return preference.begin == 0 && preference.end == without_end;
}

bool within(const Preference& preference, const Shape& shape) noexcept {
  // What has no end is also for sizes that nobody knows all of (unknown_bytes).
  return shape.bytes >= preference.begin && (shape.bytes < preference.end || preference.end == without_end);
}

bool within(const Preference& preference, const Shape& shape, int members) noexcept {
  return within(preference, shape) && members <= preference.most_members;
}

const Algorithm* row_of(Collective collective, std::string_view name) noexcept {
  for (const Algorithm& row : catalogue())
    if (row.collective == collective && row.name == name) return &row;
  return nullptr;
}

std::string names_for(Collective collective) {
  std::string names(mpi_itself);
  for (const Algorithm& row : catalogue()) {
    if (row.collective != collective) continue;
    names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace

std::vector<Preference> parse_preferences(const std::string& setting, Collective collective, std::string_view text) {
  std::vector<Preference> preferences;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = take_item(rest);
    Preference preference{0, without_end, any_number, {}, nullptr, std::string(item), setting};
    std::string_view name = item;
    if (const auto colon = item.find(':'); colon != std::string_view::npos) {
      const std::string_view range = item.substr(0, colon);
      name = item.substr(colon + 1);
      const auto dash = range.find('-');
      if (dash == std::string_view::npos) {
        throw base::Error(base::ErrorClass::argument, "{}: \"{}\" has no range of bytes; write it as 4k-1m or 1m-",
                          setting, item);
      }
      if (dash > 0) preference.begin = base::parse_bytes(setting, std::string(range.substr(0, dash)));
      if (dash + 1 < range.size()) preference.end = base::parse_bytes(setting, std::string(range.substr(dash + 1)));
      if (preference.begin >= preference.end)
        throw base::Error(base::ErrorClass::argument, "{}: the range of \"{}\" is empty", setting, item);
    }
    if (const auto at = name.find('@'); at != std::string_view::npos) {
      const std::string_view members = name.substr(at + 1);
      const auto [end, error] =
          std::from_chars(members.data(), members.data() + members.size(), preference.most_members);
      name = name.substr(0, at);
      if (error != std::errc{} || end != members.data() + members.size() || preference.most_members < 1) {
        throw base::Error(base::ErrorClass::argument,
                          "{}: \"{}\": what follows @ is the most ranks that it is for; write it as 4k-1m:ll@4",
                          setting, item);
      }
      if (name == mpi_itself) {
        throw base::Error(base::ErrorClass::argument, "{}: \"{}\": mpi is for any number of ranks; leave @ out",
                          setting, item);
      }
    }
    // No algorithm's name begins like a range.
    if (name.empty() || (name.front() >= '0' && name.front() <= '9') || name.front() == '-') {
      throw base::Error(base::ErrorClass::argument,
                        "{}: \"{}\" names no algorithm; write it as <bytes>-<bytes>:<algorithm>, such as 0-4k:mpi; "
                        "for {} there are {}",
                        setting, item, name_of(collective), names_for(collective));
    }
    if (name != mpi_itself && row_of(collective, name) == nullptr) {
      throw base::Error(base::ErrorClass::argument, "{}: \"{}\" is no algorithm for {}; there are {}", setting, name,
                        name_of(collective), names_for(collective));
    }
    preference.algorithm = name;
    preference.row = row_of(collective, name);
    // Whether a call goes to MPI is decided before anybody has seen the sizes.
    const bool staged = preference.row == nullptr;
    if (staged && sizes_are_private(collective) && !(preferences.empty() && for_all_sizes(preference))) {
      throw base::Error(base::ErrorClass::argument,
                        "{}: \"{}\": no rank of {} knows all sizes before it goes to MPI or not; write 0-:mpi, and "
                        "first, or leave mpi out",
                        setting, item, name_of(collective));
    }
    preferences.push_back(std::move(preference));
  }
  return preferences;
}

Choice::Choice(const base::Settings& settings) : mixed_(settings.mixed), deterministic_(settings.deterministic) {
  for (std::size_t index = 0; index < collective_count; ++index) {
    const auto collective = static_cast<Collective>(index);
    preferences_[index] = parse_preferences("shipped", collective, shipped(collective));
    on_one_gpu_[index] = parse_preferences("shipped for one GPU", collective, shipped_on_one_gpu(collective));
    in_turns_[index] = parse_preferences("shipped for turns", collective, shipped_in_turns(collective));
    if (one_kind())
      across_nodes_[index] = parse_preferences("shipped for nodes", collective, shipped_across_nodes(collective));
    const auto given = settings.algorithms.find(std::string(name_of(collective)));
    if (given == settings.algorithms.end() || given->second.empty()) continue;
    std::string setting = "CROSSLANE_" + std::string(name_of(collective));
    std::ranges::transform(setting, setting.begin(),
                           [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    auto wanted = parse_preferences(setting, collective, given->second);
    preferences_[index].insert(preferences_[index].begin(), wanted.begin(), wanted.end());
    if (mixed_ != base::Mixed::yes)
      across_nodes_[index].insert(across_nodes_[index].begin(), wanted.begin(), wanted.end());
    users_[index] = wanted.size();
    drives_ = drives_ || std::ranges::any_of(wanted, [](const Preference& preference) {
                return preference.row != nullptr && preference.row->drive() == Drive::host;
              });
  }
}

std::uint64_t catalogue_hash() {
  std::string text;
  for (const Algorithm& row : catalogue()) text += fmt::format("{} {};", name_of(row.collective), row.name);
  for (std::size_t index = 0; index < collective_count; ++index) {
    const auto collective = static_cast<Collective>(index);
    text += fmt::format("{};{};{};{};", shipped(collective), shipped_on_one_gpu(collective),
                        shipped_in_turns(collective), shipped_across_nodes(collective));
  }
  return base::hash_of(text);
}

bool Choice::left_to_mpi(const Shape& shape, int members) const noexcept {
  if (sizes_are_private(shape.collective)) {
    const auto& all = preferences(shape.collective);
    return !all.empty() && all.front().row == nullptr;
  }
  for (const Preference& preference : preferences(shape.collective))
    if (within(preference, shape, members)) return preference.row == nullptr;
  return false;
}

const Preference* Choice::find(const Shape& shape, const TeamFacts& facts,
                               base::FunctionRef<bool(const Preference&)> sought) const {
  const auto index = static_cast<std::size_t>(shape.collective);
  const std::span all(preferences_[index]);
  const std::span users = all.first(users_[index]), others = all.subspan(users_[index]);
  std::span<const Preference> here;
  if (facts.most_on_one_gpu == facts.members) here = on_one_gpu_[index];
  for (const auto& list : {users, here, others})
    for (const Preference& preference : list)
      if (sought(preference)) return &preference;
  return nullptr;
}

const Algorithm* Choice::choose(const Shape& shape, const TeamFacts& facts) const {
  const Preference* const preferred = find(shape, facts, [&](const Preference& preference) {
    return within(preference, shape, facts.members) && preference.row != nullptr &&
           preference.row->supports(shape, facts);
  });
  if (preferred != nullptr) return preferred->row;
  if (facts.spinning) return nullptr;
  for (const Preference& preference : in_turns_[static_cast<std::size_t>(shape.collective)]) {
    if (!within(preference, shape)) continue;
    if (preference.row == nullptr || preference.row->supports(shape, facts)) return preference.row;
  }
  return nullptr;
}

const Algorithm* Choice::choose_across_nodes(const Shape& shape, const TeamFacts& facts) const {
  // Each node combines by itself first: the bits are no other algorithm's.
  if (deterministic_ && combines(shape.collective) && !exact(shape.element)) return nullptr;
  for (const Preference& preference : across_nodes_[static_cast<std::size_t>(shape.collective)]) {
    if (!within(preference, shape, facts.members)) continue;
    if (preference.row == nullptr) return nullptr;
    if (preference.row->spans_nodes() && preference.row->supports(shape, facts)) return preference.row;
  }
  return nullptr;
}

bool Choice::spans_nodes(Collective collective) const noexcept {
  return std::ranges::any_of(across_nodes_[static_cast<std::size_t>(collective)], [](const Preference& preference) {
    return preference.row != nullptr && preference.row->spans_nodes();
  });
}

bool Choice::spans_nodes() const noexcept {
  for (std::size_t index = 0; index < collective_count; ++index)
    if (spans_nodes(static_cast<Collective>(index))) return true;
  return false;
}

const Algorithm* Choice::explain(const Shape& shape, const TeamFacts& facts, std::vector<Step>& steps) const {
  const bool to_mpi = left_to_mpi(shape, facts.members);
  const Algorithm* const chosen = to_mpi ? nullptr : choose(shape, facts);
  static_cast<void>(find(shape, facts, [&](const Preference& preference) {
    Fate fate = Fate::taken;
    if (!within(preference, shape)) {
      fate = Fate::other_size;
    } else if (!within(preference, shape, facts.members)) {
      fate = Fate::other_team;
    } else if (preference.row == nullptr) {
      fate = to_mpi ? Fate::taken : Fate::too_late;
    } else if (!preference.row->supports(shape, facts)) {
      fate = Fate::unsupported;
    }
    steps.push_back({&preference, fate});
    return fate == Fate::taken;
  }));
  return chosen;
}

}  // namespace crosslane::collective
