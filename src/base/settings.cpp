// The table behind base/settings.h: one row a setting, with how to read it, how to print it and what it means.
// Names that other parts of Crosslane read for themselves are listed here too, so that a misspelt one is still caught.
#include "base/settings.h"

#include "base/error.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

namespace crosslane::base {
namespace {

constexpr std::string_view prefix = "CROSSLANE_";

struct Entry {
  std::string_view name;
  std::string_view allowed;
  std::string_view help;
  bool (*read)(Settings&, const std::string& text);  // false: the text is not one of the allowed values
  std::string (*print)(const Settings&);
  bool alike = false;  // must be the same on all ranks
};

bool read_flag(bool& flag, std::string_view text) {
  for (const std::string_view word : {"1", "true", "yes", "on"})
    if (text == word) return flag = true;
  for (const std::string_view word : {"", "0", "false", "no", "off"}) {
    if (text == word) {
      flag = false;
      return true;
    }
  }
  return false;
}

template <class Number>
bool read_number(Number& number, std::string_view text) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return false;
  number = value;
  return true;
}

/// "64k" to bytes; false where it is malformed or does not fit.
bool read_bytes(std::size_t& bytes, std::string_view text) {
  unsigned shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) text.remove_suffix(1);
  }
  std::size_t value = 0;
  if (!read_number(value, text) || value > (std::numeric_limits<std::size_t>::max() >> shift)) return false;
  bytes = value << shift;
  return true;
}

bool read_positive_bytes(std::size_t& bytes, std::string_view text) {
  std::size_t value = 0;
  if (!read_bytes(value, text) || value == 0) return false;
  bytes = value;
  return true;
}

std::string print_bytes(std::size_t bytes) {
  struct Unit {
    unsigned shift;
    char suffix;
  };
  for (const auto [shift, suffix] : {Unit{30, 'g'}, Unit{20, 'm'}, Unit{10, 'k'}}) {
    const std::size_t unit = std::size_t{1} << shift;
    if (bytes != 0 && bytes % unit == 0) return fmt::format("{}{}", bytes >> shift, suffix);
  }
  return fmt::format("{}", bytes);
}

/// auto, none, or emulated:<GPUs a node>[:<topology file>]; the emulated driver holds the same limit (state.cpp).
bool read_gpu(std::string& gpu, const std::string& text) {
  constexpr std::string_view emulated = "emulated:";
  constexpr int most_gpus = 64;
  if (text != "auto" && text != "none") {
    std::string_view rest = text;
    if (!rest.starts_with(emulated)) return false;
    rest.remove_prefix(emulated.size());
    const auto colon = rest.find(':');
    int gpus = 0;
    if (!read_number(gpus, rest.substr(0, colon)) || gpus < 1 || gpus > most_gpus) return false;
    if (colon != std::string_view::npos && rest.size() == colon + 1) return false;
  }
  gpu = text;
  return true;
}

template <class Value>
struct Word {
  std::string_view text;
  Value value;
};
constexpr std::array<Word<Unmap>, 2> unmaps{{{"soon", Unmap::soon}, {"at_rest", Unmap::at_rest}}};
constexpr std::array<Word<Order>, 2> orders{{{"none", Order::none}, {"legacy", Order::legacy}}};
constexpr std::array<Word<Mode>, 3> modes{
    {{"auto", Mode::automatic}, {"replace", Mode::replace}, {"passthrough", Mode::passthrough}}};
constexpr std::array<Word<Mixed>, 3> mixtures{{{"auto", Mixed::automatic}, {"0", Mixed::no}, {"1", Mixed::yes}}};
constexpr std::array<Word<World>, 2> worlds{{{"all", World::all}, {"partial", World::partial}}};

template <class Value, std::size_t count>
bool read_word(const std::array<Word<Value>, count>& words, Value& value, std::string_view text) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](const auto& word) { return word.text == text; });
  if (found == words.end()) return false;
  value = found->value;
  return true;
}

template <class Value, std::size_t count>
std::string print_word(const std::array<Word<Value>, count>& words, Value value) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](const auto& word) { return word.value == value; });
  return found == words.end() ? std::string{} : std::string{found->text};
}

constexpr std::string_view flag_values = "0 or 1";
constexpr std::string_view byte_values = "a positive number of bytes, with an optional suffix k, m or g";

// The collectives whose algorithms can be preferred: settings CROSSLANE_<NAME>.
constexpr std::string_view algorithm_values = "<bytes>-<bytes>:<algorithm>,..., see docs/collectives.md";
constexpr std::string_view algorithm_help = "preferred algorithms by message size";
constexpr std::array<std::string_view, 15> collectives{
    "allreduce",  "reduce",  "broadcast", "allgather", "reduce_scatter_block",
    "alltoall",   "gather",  "scatter",   "scan",      "exscan",
    "allgatherv", "gatherv", "scatterv",  "alltoallv", "reduce_scatter"};

template <std::size_t index>
constexpr Entry algorithm_entry(std::string_view name) {
  return {name,
          algorithm_values,
          algorithm_help,
          [](Settings& s, const std::string& text) {
            s.algorithms[std::string(collectives[index])] = text;
            return true;
          },
          [](const Settings& s) {
            const auto given = s.algorithms.find(std::string(collectives[index]));
            return given == s.algorithms.end() ? std::string{} : given->second;
          },
          true};
}

constexpr std::array<Entry, 44> entries{{
    {"CROSSLANE_DISABLE", flag_values, "forward every call untouched",
     [](Settings& s, const std::string& text) { return read_flag(s.disable, text); },
     [](const Settings& s) { return std::string{s.disable ? "1" : "0"}; }},
    {"CROSSLANE_GPU", "auto, none, or emulated:<GPUs a node, 1 to 64>[:<topology file>]", "which GPU driver to use",
     [](Settings& s, const std::string& text) { return read_gpu(s.gpu, text); },
     [](const Settings& s) { return s.gpu; }},
    {"CROSSLANE_LOG", "a comma-separated list of info, route, debug, all",
     "what to print to standard error besides errors and warnings",
     [](Settings& s, const std::string& text) {
       // The words are the logger's to judge (base/log.h): it throws an error of its own that lists them.
       s.log = text;
       return true;
     },
     [](const Settings& s) { return s.log; }},
    {"CROSSLANE_WATCHDOG_S", "seconds, 0 for never", "seconds without progress until a waiting call is reported",
     [](Settings& s, const std::string& text) {
       double seconds = 0;
       if (!read_number(seconds, text) || !std::isfinite(seconds) || seconds < 0) return false;
       s.watchdog_s = seconds;
       return true;
     },
     [](const Settings& s) { return fmt::format("{}", s.watchdog_s); }},
    {"CROSSLANE_NODE_SIZE", "a number of ranks, 0 for the real nodes",
     "ranks a pretended node, to try several nodes on one",
     [](Settings& s, const std::string& text) {
       int ranks = 0;
       if (!read_number(ranks, text) || ranks < 0) return false;
       s.node_size = ranks;
       return true;
     },
     [](const Settings& s) { return fmt::format("{}", s.node_size); }, true},
    {"CROSSLANE_ORDER", "none or legacy",
     "legacy: every call waits for the default streams first, the legacy one and the thread's own",
     [](Settings& s, const std::string& text) { return read_word(orders, s.order, text); },
     [](const Settings& s) { return print_word(orders, s.order); }},
    {"CROSSLANE_MODE", "auto, replace or passthrough",
     "passthrough: forward every call untouched, as CROSSLANE_DISABLE=1 does, for an MPI that takes GPU buffers "
     "itself; auto and replace: carry out calls with GPU memory even then",
     [](Settings& s, const std::string& text) { return read_word(modes, s.mode, text); },
     [](const Settings& s) { return print_word(modes, s.mode); }},
    {"CROSSLANE_WORLD", "all or partial", "partial: some ranks of the job do not load Crosslane",
     [](Settings& s, const std::string& text) { return read_word(worlds, s.world, text); },
     [](const Settings& s) { return print_word(worlds, s.world); }},
    {"CROSSLANE_PIPELINE_BYTES", "a number of bytes, with an optional suffix k, m or g; 0 for never",
     "from this size, calls that wait for a send overlap the copy with MPI",
     [](Settings& s, const std::string& text) { return read_bytes(s.pipeline_bytes, text); },
     [](const Settings& s) { return print_bytes(s.pipeline_bytes); }, true},
    {"CROSSLANE_CHUNK_BYTES", byte_values, "size of one chunk of such a transfer",
     [](Settings& s, const std::string& text) { return read_positive_bytes(s.chunk_bytes, text); },
     [](const Settings& s) { return print_bytes(s.chunk_bytes); }},
    {"CROSSLANE_DIRECT_BYTES", "a number of bytes, with an optional suffix k, m or g; 0 for never",
     "from this size, messages between GPUs of a node are read from where they lie",
     [](Settings& s, const std::string& text) { return read_bytes(s.direct_bytes, text); },
     [](const Settings& s) { return print_bytes(s.direct_bytes); }},
    {"CROSSLANE_EXPORT_BYTES", byte_values,
     "smallest allocation that other ranks may open for messages from the first one on",
     [](Settings& s, const std::string& text) { return read_positive_bytes(s.export_bytes, text); },
     [](const Settings& s) { return print_bytes(s.export_bytes); }},
    {"CROSSLANE_EXPORT_USES", "a number of messages, 0 for never",
     "from which message on they may open a smaller allocation",
     [](Settings& s, const std::string& text) { return read_number(s.export_uses, text); },
     [](const Settings& s) { return fmt::format("{}", s.export_uses); }},
    {"CROSSLANE_UNMAP", "soon or at_rest",
     "when mappings of GPU memory that other ranks have freed are closed: soon, for which messages wait for what this "
     "process has its GPU do; at_rest: only while that is nothing, for programs whose kernels wait for the host, and "
     "that capture no graphs meanwhile",
     [](Settings& s, const std::string& text) { return read_word(unmaps, s.unmap, text); },
     [](const Settings& s) { return print_word(unmaps, s.unmap); }},
    {"CROSSLANE_MESSAGE_WINDOW", "a number of bytes, with an optional suffix k, m or g; 0 for none",
     "GPU memory, a rank, through which messages go that others cannot read from where they lie",
     [](Settings& s, const std::string& text) { return read_bytes(s.message_window, text); },
     [](const Settings& s) { return print_bytes(s.message_window); }},
    {"CROSSLANE_PACKED_BYTES", byte_values, "from this size, messages go through that window",
     [](Settings& s, const std::string& text) { return read_positive_bytes(s.packed_bytes, text); },
     [](const Settings& s) { return print_bytes(s.packed_bytes); }},
    {"CROSSLANE_PIECE_BYTES", byte_values, "size of one piece of such a message",
     [](Settings& s, const std::string& text) { return read_positive_bytes(s.piece_bytes, text); },
     [](const Settings& s) { return print_bytes(s.piece_bytes); }},
    {"CROSSLANE_PUT_BYTES", "a number of bytes, with an optional suffix k, m or g; 0 for never",
     "from this size, of several contiguous messages from another GPU some are written by a kernel of their sender, "
     "where both wait, while others are read",
     [](Settings& s, const std::string& text) { return read_bytes(s.put_bytes, text); },
     [](const Settings& s) { return print_bytes(s.put_bytes); }},
    {"CROSSLANE_PATIENCE_MS", "milliseconds up to a day; 0: at once, and all messages alike",
     "how long a send that was matched, but whose receiver does not fetch it, waits before it copies the payload to "
     "host memory and returns; short ones do so sooner",
     [](Settings& s, const std::string& text) {
       double milliseconds = 0;
       constexpr double most = 24 * 3600e3;
       if (!read_number(milliseconds, text) || !(milliseconds >= 0 && milliseconds <= most)) return false;
       s.patience_ms = milliseconds;
       return true;
     },
     [](const Settings& s) { return fmt::format("{}", s.patience_ms); }},
    {"CROSSLANE_LINGER_US", "microseconds up to a second, 0 for never, or auto: 20, and 0 where GPUs are emulated",
     "how long the kernel of a short blocking collective stays for the next one, where they come close together; that "
     "of messages twice as long",
     [](Settings& s, const std::string& text) {
       if (text == "auto") {
         s.linger_us.reset();
         return true;
       }
       double microseconds = 0;
       if (!read_number(microseconds, text) || !(microseconds >= 0 && microseconds <= 1e6)) return false;
       s.linger_us = microseconds;
       return true;
     },
     [](const Settings& s) { return s.linger_us ? fmt::format("{}", *s.linger_us) : std::string("auto"); }},
    {"CROSSLANE_MAPPED_WINDOWS", flag_values,
     "MPI_Win_create: put to, get from and accumulate in GPU memory of the node's ranks where it lies; 0: on host "
     "copies",
     [](Settings& s, const std::string& text) { return read_flag(s.mapped_windows, text); },
     [](const Settings& s) { return std::string{s.mapped_windows ? "1" : "0"}; }, true},
    {"CROSSLANE_PINNED_LIMIT", byte_values, "most bytes of pinned staging memory a rank",
     [](Settings& s, const std::string& text) { return read_positive_bytes(s.pinned_limit, text); },
     [](const Settings& s) { return print_bytes(s.pinned_limit); }},
    {"CROSSLANE_COPY_BLOCKS", "a number of thread blocks up to 65535, 0 for as many as keep the GPU's memory busy",
     "most thread blocks of a kernel that copies",
     [](Settings& s, const std::string& text) { return read_number(s.copy_blocks, text) && s.copy_blocks <= 65535; },
     [](const Settings& s) { return fmt::format("{}", s.copy_blocks); }},
    {"CROSSLANE_LIST_LIMIT", byte_values,
     "most bytes of GPU memory for the lists of irregular datatypes, a GPU and rank",
     [](Settings& s, const std::string& text) { return read_positive_bytes(s.list_limit, text); },
     [](const Settings& s) { return print_bytes(s.list_limit); }},
    {"CROSSLANE_MIXED", "auto, 0 or 1",
     "whether ranks of several nodes may pass GPU memory and host memory to one collective: 0 is a promise that "
     "they do not, 1 stages all; auto stages those for which no algorithm among nodes is preferred",
     [](Settings& s, const std::string& text) { return read_word(mixtures, s.mixed, text); },
     [](const Settings& s) { return print_word(mixtures, s.mixed); }, true},
    {"CROSSLANE_CHECK", flag_values, "compare the arguments of collectives between GPUs over their ranks",
     [](Settings& s, const std::string& text) { return read_flag(s.check, text); },
     [](const Settings& s) { return std::string{s.check ? "1" : "0"}; }, true},
    {"CROSSLANE_TRACE", "a file name", "write a Perfetto trace, one file a rank",
     [](Settings& s, const std::string& text) {
       s.trace = text;
       return true;
     },
     [](const Settings& s) { return s.trace; }},
    {"CROSSLANE_STATS", flag_values, "print each rank's counters when MPI is finalized",
     [](Settings& s, const std::string& text) { return read_flag(s.stats, text); },
     [](const Settings& s) { return std::string{s.stats ? "1" : "0"}; }},
    {"CROSSLANE_DETERMINISTIC", flag_values,
     "reductions give the same bits whatever the algorithm, and from run to run",
     [](Settings& s, const std::string& text) { return read_flag(s.deterministic, text); },
     [](const Settings& s) { return std::string{s.deterministic ? "1" : "0"}; }, true},
    algorithm_entry<0>("CROSSLANE_ALLREDUCE"),
    algorithm_entry<1>("CROSSLANE_REDUCE"),
    algorithm_entry<2>("CROSSLANE_BROADCAST"),
    algorithm_entry<3>("CROSSLANE_ALLGATHER"),
    algorithm_entry<4>("CROSSLANE_REDUCE_SCATTER_BLOCK"),
    algorithm_entry<5>("CROSSLANE_ALLTOALL"),
    algorithm_entry<6>("CROSSLANE_GATHER"),
    algorithm_entry<7>("CROSSLANE_SCATTER"),
    algorithm_entry<8>("CROSSLANE_SCAN"),
    algorithm_entry<9>("CROSSLANE_EXSCAN"),
    algorithm_entry<10>("CROSSLANE_ALLGATHERV"),
    algorithm_entry<11>("CROSSLANE_GATHERV"),
    algorithm_entry<12>("CROSSLANE_SCATTERV"),
    algorithm_entry<13>("CROSSLANE_ALLTOALLV"),
    algorithm_entry<14>("CROSSLANE_REDUCE_SCATTER"),
}};

// Read by others: the emulated driver, the command line, the build's options.
constexpr std::array<std::string_view, 5> read_elsewhere{"CROSSLANE_EMULATED_MEMORY", "CROSSLANE_EMULATED_FAULTS",
                                                         "CROSSLANE_EMULATED_MPS", "CROSSLANE_PRELOAD",
                                                         "CROSSLANE_SANITIZE"};
constexpr std::string_view tests_own = "CROSSLANE_TEST_";

// Names that are no setting, and what they must mean: MPI's own word for a broadcast, and procedures that go by the routes of another.
struct Alias {
  std::string_view name, meant;
};
constexpr std::string_view as_alltoallv = "CROSSLANE_ALLTOALLV, by whose routes such calls go (docs/collectives.md)";
constexpr std::array<Alias, 7> aliases{{{"CROSSLANE_BCAST", "CROSSLANE_BROADCAST"},
                                        {"CROSSLANE_ALLTOALLW", as_alltoallv},
                                        {"CROSSLANE_NEIGHBOR_ALLGATHER", as_alltoallv},
                                        {"CROSSLANE_NEIGHBOR_ALLGATHERV", as_alltoallv},
                                        {"CROSSLANE_NEIGHBOR_ALLTOALL", as_alltoallv},
                                        {"CROSSLANE_NEIGHBOR_ALLTOALLV", as_alltoallv},
                                        {"CROSSLANE_NEIGHBOR_ALLTOALLW", as_alltoallv}}};

/// Levenshtein's distance: single-character edits from one name to the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// Empty where no name is near: where more than a third of the letters behind the prefix would have to change.
std::string_view nearest_name(std::string_view unknown) {
  for (const Alias& alias : aliases)
    if (alias.name == unknown) return alias.meant;
  std::string_view best;
  std::size_t best_distance = (unknown.size() - prefix.size()) / 3 + 1;
  const auto consider = [&](std::string_view name) {
    if (const auto distance = edit_distance(unknown, name); distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  };
  for (const Entry& entry : entries) consider(entry.name);
  for (const std::string_view name : read_elsewhere) consider(name);
  return best;
}

std::string unknown(const std::string& name) {
  const std::string_view nearest = nearest_name(name);
  if (nearest.empty())
    return fmt::format(
        "{} is not a setting of Crosslane, nor near to one; docs/settings.md and `crosslane doctor` list them", name);
  return fmt::format("{} is not a setting of Crosslane; the nearest one is {}", name, nearest);
}

bool known_elsewhere(std::string_view name) {
  return name.starts_with(tests_own) ||
         std::find(read_elsewhere.begin(), read_elsewhere.end(), name) != read_elsewhere.end();
}

}  // namespace

Settings Settings::from_environment() {
  std::vector<Refused> refused;
  Settings settings = from_environment(refused);
  if (!refused.empty()) throw Error(ErrorClass::argument, "{}", refused.front().told);
  return settings;
}

Settings Settings::from_environment(std::vector<Refused>& refused) {
  Settings settings;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view assignment = *variable;
    if (!assignment.starts_with(prefix)) continue;
    const auto equals = assignment.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name{assignment.substr(0, equals)};
    const std::string text{assignment.substr(equals + 1)};
    const auto* entry =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& one) { return one.name == name; });
    if (entry == entries.end()) {
      if (!known_elsewhere(name)) refused.push_back({name, unknown(name)});
      continue;
    }
    Settings with_it = settings;  // some are written before all of the text is judged
    if (!entry->read(with_it, text)) {
      refused.push_back({name, fmt::format("{}=\"{}\": expected {}", name, text, entry->allowed)});
      continue;
    }
    settings = std::move(with_it);
    settings.given.push_back(name);
  }
  std::sort(settings.given.begin(), settings.given.end());
  return settings;
}

std::vector<Settings::Row> Settings::rows() const {
  std::vector<Row> rows;
  rows.reserve(entries.size());
  for (const Entry& entry : entries) {
    const bool set = std::find(given.begin(), given.end(), entry.name) != given.end();
    rows.push_back({std::string{entry.name}, entry.print(*this), set ? "environment" : "default",
                    fmt::format("{} ({})", entry.help, entry.allowed)});
  }
  return rows;
}

std::string Settings::alike() const {
  std::string lines;
  for (const Entry& entry : entries)
    if (entry.alike) lines += fmt::format("{}={}\n", entry.name, entry.print(*this));
  return lines;
}

std::size_t parse_bytes(const std::string& name, const std::string& text) {
  std::size_t bytes = 0;
  if (!read_bytes(bytes, text))
    throw Error(ErrorClass::argument, "{}=\"{}\": expected a number of bytes, with an optional suffix k, m or g", name,
                text);
  return bytes;
}

}  // namespace crosslane::base
