// Settings: everything that a user can set, read once from the environment, with the origin of each value.
// A new setting is one field here and one row in settings.cpp; `crosslane doctor` prints that table.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::base {

enum class Order { none, legacy };
enum class Unmap { soon, at_rest };
enum class World { all, partial };
enum class Mixed { automatic, no, yes };
enum class Mode { automatic, replace, passthrough };

/// All settings, each with its CROSSLANE_* name. Sizes take a suffix k, m or g (powers of 1,024).
struct Settings {
  bool disable = false;       ///< CROSSLANE_DISABLE: forward every call untouched.
  std::string gpu = "auto";   ///< CROSSLANE_GPU: auto, none, or emulated:<GPUs a node>[:<topology file>].
  std::string log;            ///< CROSSLANE_LOG: topics to print (info, route, debug, all). `base/log.h` parses them.
  double watchdog_s = 60;     ///< CROSSLANE_WATCHDOG_S: seconds without progress until a call is reported; 0 is never.
  int node_size = 0;          ///< CROSSLANE_NODE_SIZE: ranks a pretended node; 0 keeps the real nodes.
  Order order = Order::none;  ///< CROSSLANE_ORDER: none, or legacy (wait for the default streams first).
  Mode mode = Mode::automatic;  ///< CROSSLANE_MODE: auto, replace, or passthrough (as `disable`).
  World world = World::all;     ///< CROSSLANE_WORLD: all, or partial where some ranks do not load Crosslane.
  std::size_t pipeline_bytes = std::size_t{4}
                               << 20;  ///< CROSSLANE_PIPELINE_BYTES: from here calls that wait for a send overlap copy
                                       ///< and MPI; 0 is never. The same on all ranks.
  std::size_t chunk_bytes = std::size_t{1} << 21;  ///< CROSSLANE_CHUNK_BYTES: size of such a chunk.
  std::size_t direct_bytes =
      std::size_t{8};  ///< CROSSLANE_DIRECT_BYTES: from here messages from GPU memory to ranks of the node
                       ///< that can open it are read from where they lie; 0 is never.
  std::size_t export_bytes = std::size_t{2}
                             << 20;  ///< CROSSLANE_EXPORT_BYTES: smallest allocation that others may open
                                     ///< for messages from its first one on.
  Unmap unmap = Unmap::soon;         ///< CROSSLANE_UNMAP: when mappings of what others have freed are closed.
  unsigned export_uses = 8;  ///< CROSSLANE_EXPORT_USES: with which message of a smaller one they may; 0: with none.
  std::size_t message_window = std::size_t{32}
                               << 20;  ///< CROSSLANE_MESSAGE_WINDOW: GPU memory of ours for messages that others
                                       ///< cannot read from where they lie; 0 is none.
  std::size_t packed_bytes = std::size_t{16}
                             << 10;  ///< CROSSLANE_PACKED_BYTES: least of a message that goes through the window.
  std::size_t piece_bytes = std::size_t{4} << 20;  ///< CROSSLANE_PIECE_BYTES: size of a piece of such a message.
  std::size_t put_bytes =
      std::size_t{4} << 20;  ///< CROSSLANE_PUT_BYTES: least of a message that its sender may write where
                             ///< it belongs, rather than that its receiver reads it; 0: none.
  double patience_ms = 3;    ///< CROSSLANE_PATIENCE_MS: until such a send keeps what nobody fetches, and returns.
  std::optional<double>
      linger_us;  ///< CROSSLANE_LINGER_US: how long kernels of short blocking collectives stay for the
                  ///< next one, and half of how long those of messages do; auto: 20, but emulated GPUs 0.
  std::size_t pinned_limit = std::size_t{4}
                             << 30;  ///< CROSSLANE_PINNED_LIMIT: most bytes of pinned staging memory a rank.
  unsigned copy_blocks = 0;  ///< CROSSLANE_COPY_BLOCKS: most thread blocks of a copy kernel; 0 for as many as help.
  std::size_t list_limit = std::size_t{16}
                           << 20;  ///< CROSSLANE_LIST_LIMIT: most bytes of lists of datatypes kept on a GPU.
  /// CROSSLANE_ALLREDUCE, CROSSLANE_BROADCAST, ... by the collective's name: preferred algorithms by bytes, such as
  /// 0-4k:ll,4k-:two_shot. `collective/choose.h` parses them.
  std::map<std::string, std::string> algorithms;
  bool mapped_windows =
      true;  ///< CROSSLANE_MAPPED_WINDOWS: one-sided communication within a node where memory lies. The same on all ranks.
  bool deterministic = false;      ///< CROSSLANE_DETERMINISTIC: reductions give the same bits whatever the algorithm.
                                   ///< The same on all ranks.
  Mixed mixed = Mixed::automatic;  ///< CROSSLANE_MIXED: whether ranks of several nodes may pass GPU memory and host
                                   ///< memory to one collective (auto, 0 or 1). The same on all ranks.
  std::string trace;   ///< CROSSLANE_TRACE: file to write a Perfetto trace to, a file a rank (name.rank.json).
  bool check = false;  ///< CROSSLANE_CHECK: compare the arguments of collectives on GPU memory over their ranks.
  bool stats = false;  ///< CROSSLANE_STATS: print each rank's counters when MPI is finalized.

  /// Reads the environment. Throws Error (argument) that names the variable, its value and what is allowed, for a
  /// malformed value and for an unknown CROSSLANE_* name (with the nearest known one, where one is near).
  static Settings from_environment();

  /// What was not taken of the environment: the variable, and what from_environment() says of it.
  struct Refused {
    std::string name, told;
  };
  /// The same with all that is good in it; what is not keeps its default, and is added to `refused`.
  static Settings from_environment(std::vector<Refused>& refused);

  /// True if every call is forwarded untouched, whatever else is set.
  [[nodiscard]] bool switched_off() const noexcept { return disable || mode == Mode::passthrough; }

  /// One row a setting for `crosslane doctor`.
  struct Row {
    std::string name, value, origin, help;
  };
  [[nodiscard]] std::vector<Row> rows() const;

  /// Those that must be alike on all ranks of a job, as lines NAME=value; the same text for the same values.
  [[nodiscard]] std::string alike() const;

  std::vector<std::string> given;  ///< The names that the environment set; all others have their default.
};

/// Parses "64k", "2m", "1g" or plain bytes; throws Error (argument) naming `name`.
std::size_t parse_bytes(const std::string& name, const std::string& text);

}  // namespace crosslane::base
