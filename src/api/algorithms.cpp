// See algorithms.h.
#include "api/algorithms.h"

#include "api/json.h"
#include "base/error.h"
#include "base/settings.h"
#include "collective/blocking.h"
#include "collective/choose.h"
#include "collective/describe.h"
#include "kernel/launch.h"
#include "share/board.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::api {
namespace {

using collective::Fate;
using Json = nlohmann::json;

constexpr std::string_view staged = "mpi";
constexpr std::string_view staged_summary = "the application's own MPI on host copies";
constexpr std::string_view forwarded = "forwarded";
constexpr std::string_view forwarded_summary = "the application's own MPI, which gets the call untouched";

Json describe(const collective::Algorithm& row) {
  Json described = {{"collective", collective::name_of(row.collective)},
                    {"name", row.name},
                    {"summary", row.summary},
                    {"source", row.source},
                    {"supports", nullptr}};
  const auto support = collective::support_of(row);
  if (!support) return described;
  Json limits = Json::array();
  for (const auto& limit : support->limits)
    limits.push_back({{"ranks", limit.members}, {"most_bytes", limit.most_bytes}});
  described["supports"] = {
      {"most_bytes", support->most_bytes == 0 ? Json(nullptr) : Json(support->most_bytes)},
      {"most_bytes_of", std::move(limits)},
      {"least_ranks", support->least_members},
      {"most_ranks", support->most_members},
      {"several_ranks_a_gpu", support->several_ranks_a_gpu},
      {"needs_mapped_buffers", support->needs_mapped_buffers},
      // Teams form only where every member has mapped the others' windows, whichever algorithm then runs.
      {"needs_peer_access", true},
      {"cannot_combine", support->cannot_combine}};
  return described;
}

template <class Value, class Find, class All>
Value named(const Json& request, const char* field, std::size_t count, const Find& find, const All& name_of) {
  const auto& name = request.at(field).get_ref<const std::string&>();
  if (const auto value = find(name)) return *value;
  std::string known;
  for (std::size_t index = 0; index < count; ++index) {
    known += index == 0 ? "" : ", ";
    known += name_of(static_cast<Value>(index));
  }
  throw base::Error(base::ErrorClass::argument, "\"{}\" is no {}; there are {}", name, field, known);
}

// What does not fit into the type that is asked for would be read as another number.
template <class Value>
Value number(const Json& request, const char* field, Value least, Value most) {
  const Json& value = request.at(field);
  const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() >= static_cast<std::uint64_t>(least) &&
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!fits)
    throw base::Error(base::ErrorClass::argument, "{} is {}; it must be from {} to {}", field, value.dump(), least,
                      most);
  return value.get<Value>();
}

int positive(const Json& request, const char* field) {
  constexpr int most = 1 << 30;  // sums of two are numbers, too
  return number(request, field, 1, most);
}

collective::Shape shape_of(const Json& request) {
  collective::Shape shape;
  shape.collective =
      named<collective::Collective>(request, "collective", collective::collective_count, collective::collective_named,
                                    [](auto value) { return collective::name_of(value); });
  shape.bytes = number<std::size_t>(request, "bytes", 0, std::numeric_limits<std::ptrdiff_t>::max());
  // What does not exist is wrong where nothing is combined, too.
  const auto element = named<kernel::Element>(request, "element", kernel::element_count, collective::element_named,
                                              [](auto value) { return collective::name_of(value); });
  const auto op = named<kernel::Op>(request, "op", kernel::op_count, collective::op_named,
                                    [](auto value) { return collective::name_of(value); });
  if (!combines(shape.collective)) return shape;
  shape.element = element;
  shape.op = op;
  const std::size_t each = kernel::bytes_of(shape.element);
  if (shape.bytes % each != 0)
    throw base::Error(base::ErrorClass::argument, "{} bytes are no whole number of {} elements, of {} bytes each",
                      shape.bytes, collective::name_of(shape.element), each);
  return shape;
}

/// Why such calls are staged whatever is preferred; empty if they are not.
std::string staged_anyway(const collective::Shape& shape, int on_a_node, int ranks) {
  if (shape.bytes == 0 && shape.collective != collective::Collective::barrier) return "there is nothing to send";
  if (ranks < 2) return "a rank alone has nobody to exchange with";
  if (on_a_node > share::Board::most_members)
    return fmt::format("at most {} ranks of a node run collectives between their GPUs", share::Board::most_members);
  if (combines(shape.collective) && !kernel::Kernels::combines(shape.op, shape.element))
    return fmt::format("MPI does not define {} for {}", collective::name_of(shape.op),
                       collective::name_of(shape.element));
  return {};
}

std::string_view fate_text(Fate fate) {
  switch (fate) {
    case Fate::other_size:
      return "for other sizes";
    case Fate::other_team:
      return "for fewer ranks";
    case Fate::unsupported:
      return "does not support this call";
    case Fate::too_late:
      return "MPI is asked only by the first preference of a size";
    case Fate::taken:
      return "taken";
  }
  return "";
}

Json went(const collective::Choice& choice, const collective::Shape& shape, const collective::TeamFacts& facts) {
  std::vector<collective::Step> steps;
  const collective::Algorithm* const row = choice.explain(shape, facts, steps);
  Json preferences = Json::array();
  for (const auto& step : steps)
    preferences.push_back(
        {{"text", step.preference->text}, {"origin", step.preference->origin}, {"fate", fate_text(step.fate)}});
  std::string why = "no algorithm supports it";
  if (!steps.empty() && steps.back().fate == Fate::taken) {
    const auto& taken = *steps.back().preference;
    why = fmt::format("preference {} ({})", taken.text, taken.origin);
  }
  return {{"mapped", facts.exposed},
          {"algorithm", row == nullptr ? staged : row->name},
          {"summary", row == nullptr ? staged_summary : row->summary},
          {"why", why},
          {"preferences", std::move(preferences)}};
}

Json went_to_mpi(std::string_view why) {
  return {{"mapped", false},
          {"algorithm", staged},
          {"summary", staged_summary},
          {"why", why},
          {"preferences", Json::array()}};
}

// Where members are on several nodes.
Json went_across_nodes(const base::Settings& settings, const collective::Choice& choice, const collective::Shape& shape,
                       const collective::TeamFacts& facts) {
  const collective::Algorithm* const row = choice.choose_across_nodes(shape, facts);
  if (row != nullptr) {
    Json went = went_to_mpi(choice.one_kind() ? "the ranks pass the same kind of memory (CROSSLANE_MIXED=0)"
                                              : "it was preferred, and spans nodes");
    went["algorithm"] = row->name;
    went["summary"] = row->summary;
    return went;
  }
  if (settings.mixed == base::Mixed::yes) return went_to_mpi("CROSSLANE_MIXED=1 stages all");
  if (!choice.spans_nodes(shape.collective))
    return went_to_mpi(
        "ranks of other nodes may pass host memory: see CROSSLANE_MIXED, or prefer an algorithm that the host drives");
  if (choice.deterministic() && combines(shape.collective) && !collective::exact(shape.element))
    return went_to_mpi("among nodes its bits would depend on the nodes (CROSSLANE_DETERMINISTIC=1)");
  return went_to_mpi("no preference for such a call spans nodes");
}

/// Why no call is looked at; empty if calls are.
std::string_view forwarded_anyway(const base::Settings& settings) {
  if (settings.disable) return "CROSSLANE_DISABLE=1";
  if (settings.mode == base::Mode::passthrough) return "CROSSLANE_MODE=passthrough";
  if (settings.gpu == "none") return "every buffer counts as host memory (CROSSLANE_GPU=none)";
  return {};
}

constexpr int rounded_up(int number, int divisor) { return (number + divisor - 1) / divisor; }

struct Nodes {
  int count, most_ranks;
};

/// Those of ranks that are placed on so many real nodes in their order, and cut anew at each multiple of CROSSLANE_NODE_SIZE.
Nodes nodes_of(const base::Settings& settings, int ranks, int real) {
  const int each = rounded_up(ranks, real);
  if (settings.node_size == 0) return {real, each};
  const std::int64_t both = std::lcm(std::int64_t{each}, std::int64_t{settings.node_size});
  const std::int64_t twice = (ranks + both - 1) / both;
  return {static_cast<int>(rounded_up(ranks, each) + std::int64_t{(ranks - 1) / settings.node_size + 1} - twice),
          std::min(each, settings.node_size)};
}

Json choose(const Json& request) {
  const base::Settings settings = base::Settings::from_environment();
  const collective::Choice choice(settings);
  const collective::Shape shape = shape_of(request);
  const int ranks = positive(request, "ranks");
  const int gpus = number(request, "gpus", 1, ranks);
  const int sharing = rounded_up(ranks, gpus);
  const auto [nodes, on_a_node] =
      nodes_of(settings, ranks, request.contains("nodes") ? number(request, "nodes", 1, ranks) : 1);
  Json answer = {{"collective", collective::name_of(shape.collective)},
                 {"bytes", shape.bytes},
                 {"ranks", ranks},
                 {"ranks_a_gpu", sharing},
                 {"nodes", nodes},
                 {"calls", Json::array()}};
  if (const std::string_view why = forwarded_anyway(settings); !why.empty()) {
    answer["calls"].push_back(went_to_mpi(why));
    answer["calls"].back()["summary"] = forwarded_summary;
    answer["algorithm"] = answer["calls"].back()["algorithm"] = forwarded;
    return answer;
  }
  const bool barrier = shape.collective == collective::Collective::barrier;
  if (barrier) {
    answer["calls"].push_back(went_to_mpi("MPI_Barrier has no data to move: crosslane_barrier_enqueue alone is ours"));
    answer["calls"].back()["summary"] = forwarded_summary;
    answer["calls"].back()["enqueued_alone"] = false;
    answer["algorithm"] = answer["calls"].back()["algorithm"] = forwarded;
    if (nodes > 1) return answer;
  }
  if (const std::string why = staged_anyway(shape, on_a_node, ranks); !why.empty()) {
    if (barrier) return answer;
    answer["calls"].push_back(went_to_mpi(why));
    answer["algorithm"] = staged;
    return answer;
  }
  collective::TeamFacts facts;
  facts.members = ranks;
  facts.most_on_one_gpu = sharing;
  facts.emulated = settings.gpu.starts_with("emulated");
  facts.whole_lines = facts.emulated || sharing == 1;
  facts.driven = choice.drives();
  facts.deterministic = choice.deterministic();
  if (nodes > 1) {
    facts.driven = true;
    answer["calls"].push_back(went_across_nodes(settings, choice, shape, facts));
    answer["algorithm"] = answer["calls"].back()["algorithm"];
    return answer;
  }
  for (const bool mapped : {false, true}) {
    if (mapped && barrier) break;  // it has no buffers
    const bool prepared = mapped && !collective::worth_exposing(shape, ranks);
    if (prepared && !collective::worth_exposing(shape, ranks, collective::least_worth_using_prepared)) continue;
    facts.exposed = mapped;
    facts.large_windows = mapped && collective::combines(shape.collective);  // others have them on streams alone
    answer["calls"].push_back(went(choice, shape, facts));
    answer["calls"].back()["enqueued_alone"] = prepared || barrier;
    if (!prepared && !barrier) answer["algorithm"] = answer["calls"].back()["algorithm"];
  }
  return answer;
}

template <class Work>
const char* answered(Work&& work) {
  try {
    return line(work());
  } catch (const std::exception& error) {
    return line({{"error", error.what()}, {"remedy", "correct the argument, or the setting that it names"}});
  }
}

}  // namespace
}  // namespace crosslane::api

using namespace crosslane;
using namespace crosslane::api;

extern "C" {

CROSSLANE_EXPORTED const char* crosslane_algorithms_json(void) {
  return answered([] {
    Json rows = Json::array();
    for (const auto& row : collective::catalogue()) rows.push_back(describe(row));
    return Json{{"algorithms", std::move(rows)}};
  });
}

CROSSLANE_EXPORTED const char* crosslane_choose_json(const char* request) {
  return answered([request] { return choose(Json::parse(request)); });
}
}
