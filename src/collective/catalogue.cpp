// The one list. Order does not matter: choose.cpp has the preferences.
#include "collective/catalogue.h"

#include "collective/copy_engine.h"
#include "collective/hierarchy.h"
#include "collective/low_latency.h"
#include "collective/pairwise.h"
#include "collective/pipelined.h"
#include "collective/ring.h"
#include "collective/shared_buffer.h"
#include "collective/window.h"
#include "collective/zero_copy.h"

#include <array>

namespace crosslane::collective {
namespace {

constexpr std::string_view ll_summary = "data and flags in one word, written to every peer in one flight";
constexpr std::string_view ll_source = "NCCL's LL protocol; flags in library windows, double-buffered by launch";
constexpr std::string_view lines_summary = "lines of 120 bytes and a flag, written to every peer in one flight";
constexpr std::string_view lines_source = "NCCL's LL128 protocol; flags in library windows, double-buffered by launch";
constexpr std::string_view two_shot_ll_summary =
    "shares combined by their owners, data and flags in one word, in two flights; sum, prod, min, max";
constexpr std::string_view window_summary = "through the members' windows, each reading what it needs";
constexpr std::string_view window_source = "COLL 4.1.1 (GPU shared buffer), one buffer a rank, over peer memory";
constexpr std::string_view push_summary = "each block written once from its owner's buffer into its taker's";
constexpr std::string_view own = "this library's";
constexpr std::string_view ring_source = "the ring algorithms of Patarasuk and Yuan, and NCCL's; over peer memory";
constexpr std::string_view copied_summary =
    "each block copied once from its owner's buffer into its taker's, by copy engines";
constexpr std::string_view pipelined_summary =
    "parts pushed to their owners and results to who wants them, chunk by chunk in one kernel; sum, prod, min, max";
constexpr std::string_view pushed_summary =
    "blocks pushed through their takers' large windows, chunk by chunk in one kernel";
constexpr std::string_view ring_summary =
    "shards from each member to the next one, combined on the way, chunk by chunk in one kernel; sum, prod, min, max";
constexpr std::string_view ring_move_summary = "blocks from each member to the next one, chunk by chunk in one kernel";
constexpr std::string_view pairwise_summary =
    "each pair by itself, in chunks through the sender's window; sizes need be known to the two alone";
constexpr std::string_view gsb_summary =
    "gathered in one member's window, combined there as it comes, read by all; the host drives";
constexpr std::string_view hierarchy_summary =
    "by the first among members of one GPU, by the second among GPUs; the host drives";
constexpr std::string_view btb_summary = "along a binomial tree of windows and back; the host drives";

#define CROSSLANE_LL(kind) {"ll", ll_summary, ll_source, Collective::kind, low_latency::supports, low_latency::prepare}
#define CROSSLANE_TWO_SHOT_LL(kind) \
  {"two_shot_ll",                   \
   two_shot_ll_summary,             \
   ll_source,                       \
   Collective::kind,                \
   low_latency::supports_two_shot,  \
   low_latency::prepare_two_shot}
#define CROSSLANE_LINES(kind) \
  {"ll128", lines_summary, lines_source, Collective::kind, low_latency::supports_lines, low_latency::prepare_lines}
#define CROSSLANE_WINDOW(kind, name) \
  {name, window_summary, window_source, Collective::kind, window::supports, window::prepare_one_shot}
#define CROSSLANE_PUSH(kind) \
  {"zero_copy", push_summary, own, Collective::kind, zero_copy::supports, zero_copy::prepare_push}
#define CROSSLANE_COPIED(kind) \
  {"copy_engine", copied_summary, own, Collective::kind, zero_copy::supports, copy_engine::prepare_push}
#define CROSSLANE_PIPELINED(kind) \
  {"pipelined", pipelined_summary, own, Collective::kind, pipelined::supports, pipelined::prepare}
#define CROSSLANE_PUSHED(kind) \
  {"pipelined", pushed_summary, own, Collective::kind, pipelined::supports, pipelined::prepare}
#define CROSSLANE_RING(kind, summary) {"ring", summary, ring_source, Collective::kind, ring::supports, ring::prepare}
#define CROSSLANE_PAIRWISE(kind) \
  {"pairwise", pairwise_summary, own, Collective::kind, pairwise::supports, pairwise::prepare}
#define CROSSLANE_DRIVEN(kind, name, summary, source, supports, run) \
  {name, summary, source, Collective::kind, supports, nullptr, run}
#define CROSSLANE_HIERARCHY(kind, name, run) \
  CROSSLANE_DRIVEN(kind, "hierarchy(" name ")", hierarchy_summary, "COLL 4.2.1", hierarchy::supports, hierarchy::run)
#define CROSSLANE_SHARED_BUFFER(kind)                                                                                \
  CROSSLANE_DRIVEN(kind, "gsb", gsb_summary, "COLL 4.1.1", shared_buffer::supports_gsb, shared_buffer::run_gsb),     \
      CROSSLANE_DRIVEN(kind, "btb", btb_summary, "COLL 4.1.2", shared_buffer::supports_btb, shared_buffer::run_btb), \
      CROSSLANE_HIERARCHY(kind, "gsb,gsb", run_gsb_gsb), CROSSLANE_HIERARCHY(kind, "gsb,btb", run_gsb_btb),          \
      CROSSLANE_HIERARCHY(kind, "btb,gsb", run_btb_gsb), CROSSLANE_HIERARCHY(kind, "btb,btb", run_btb_btb)

constexpr std::array rows = std::to_array<Algorithm>({
    CROSSLANE_LL(allreduce),
    CROSSLANE_LL(reduce),
    CROSSLANE_LL(broadcast),
    CROSSLANE_LL(allgather),
    CROSSLANE_LL(reduce_scatter_block),
    CROSSLANE_LL(alltoall),
    CROSSLANE_LL(gather),
    CROSSLANE_LL(scatter),
    CROSSLANE_LL(scan),
    CROSSLANE_LL(exscan),
    CROSSLANE_LL(allgatherv),
    CROSSLANE_LL(gatherv),
    CROSSLANE_LL(scatterv),
    CROSSLANE_LL(alltoallv),
    CROSSLANE_LL(reduce_scatter),
    {"ll", "a flag from each member to each", ll_source, Collective::barrier, low_latency::supports,
     low_latency::prepare},
    CROSSLANE_WINDOW(allreduce, "one_shot"),
    CROSSLANE_WINDOW(reduce, "one_shot"),
    CROSSLANE_WINDOW(broadcast, "window"),
    CROSSLANE_WINDOW(allgather, "window"),
    CROSSLANE_WINDOW(reduce_scatter_block, "window"),
    CROSSLANE_WINDOW(alltoall, "window"),
    CROSSLANE_WINDOW(gather, "window"),
    CROSSLANE_WINDOW(scatter, "window"),
    CROSSLANE_WINDOW(scan, "window"),
    CROSSLANE_WINDOW(exscan, "window"),
    CROSSLANE_WINDOW(allgatherv, "window"),
    CROSSLANE_WINDOW(reduce_scatter, "window"),
    CROSSLANE_PAIRWISE(gatherv),
    CROSSLANE_PAIRWISE(scatterv),
    CROSSLANE_PAIRWISE(alltoallv),
    {"two_shot_window", "shares combined by their owners, in parts through the members' windows", own,
     Collective::allreduce, window::supports, window::prepare_two_shot},
    {"two_shot_window", "shares combined by their owners, in parts through the members' windows", own,
     Collective::reduce, window::supports, window::prepare_two_shot},
    {"two_shot", "shares read from all send buffers, results written to all receive buffers", own,
     Collective::allreduce, zero_copy::supports, zero_copy::prepare_two_shot},
    {"two_shot", "shares of all but the root, read from all send buffers, results written to the root's", own,
     Collective::reduce, zero_copy::supports, zero_copy::prepare_two_shot},
    {"two_shot_told", "the same, on streams, where kernels tell each other of the buffers; else as pipelined", own,
     Collective::reduce, pipelined::supports_told, pipelined::prepare_told},
    {"zero_copy", "each member combines its block straight from all send buffers", own,
     Collective::reduce_scatter_block, zero_copy::supports, zero_copy::prepare_two_shot},
    {"zero_copy", "each member combines its block straight from all send buffers", own, Collective::reduce_scatter,
     zero_copy::supports, zero_copy::prepare_two_shot},
    {"zero_copy", "each but the root reads a share from it once and writes it to all others", own,
     Collective::broadcast, zero_copy::supports, zero_copy::prepare_broadcast},
    CROSSLANE_TWO_SHOT_LL(allreduce),
    CROSSLANE_TWO_SHOT_LL(reduce),
    CROSSLANE_LINES(broadcast),
    CROSSLANE_LINES(allgather),
    CROSSLANE_LINES(alltoall),
    CROSSLANE_LINES(gather),
    CROSSLANE_LINES(scatter),
    CROSSLANE_LINES(allgatherv),
    CROSSLANE_LINES(gatherv),
    CROSSLANE_LINES(scatterv),
    CROSSLANE_LINES(alltoallv),
    CROSSLANE_PIPELINED(allreduce),
    CROSSLANE_PIPELINED(reduce),
    CROSSLANE_PIPELINED(reduce_scatter_block),
    CROSSLANE_RING(allreduce, ring_summary),
    CROSSLANE_RING(reduce, ring_summary),
    CROSSLANE_RING(reduce_scatter_block, ring_summary),
    CROSSLANE_RING(allgather, ring_move_summary),
    CROSSLANE_RING(broadcast, ring_move_summary),
    CROSSLANE_PUSHED(gather),
    CROSSLANE_PUSHED(scatter),
    CROSSLANE_PUSH(allgather),
    CROSSLANE_PUSH(alltoall),
    CROSSLANE_PUSH(gather),
    CROSSLANE_PUSH(scatter),
    CROSSLANE_PUSH(allgatherv),
    CROSSLANE_PUSH(gatherv),
    CROSSLANE_PUSH(scatterv),
    CROSSLANE_PUSH(alltoallv),
    {"copy_engine",
     "parts pushed to their owners and combined, results copied to all by copy engines; sum, prod, min, max", own,
     Collective::allreduce, pipelined::supports, copy_engine::prepare_two_shot},
    CROSSLANE_COPIED(allgather),
    CROSSLANE_COPIED(alltoall),
    CROSSLANE_COPIED(gather),
    CROSSLANE_COPIED(scatter),
    CROSSLANE_COPIED(allgatherv),
    CROSSLANE_COPIED(gatherv),
    CROSSLANE_COPIED(scatterv),
    CROSSLANE_COPIED(alltoallv),
    CROSSLANE_SHARED_BUFFER(allreduce),
    CROSSLANE_SHARED_BUFFER(reduce),
    CROSSLANE_SHARED_BUFFER(broadcast),
});

#undef CROSSLANE_LL
#undef CROSSLANE_TWO_SHOT_LL
#undef CROSSLANE_LINES
#undef CROSSLANE_WINDOW
#undef CROSSLANE_PUSH
#undef CROSSLANE_COPIED
#undef CROSSLANE_PIPELINED
#undef CROSSLANE_PUSHED
#undef CROSSLANE_RING
#undef CROSSLANE_PAIRWISE
#undef CROSSLANE_SHARED_BUFFER
#undef CROSSLANE_HIERARCHY
#undef CROSSLANE_DRIVEN

constexpr std::array<std::string_view, collective_count> collective_names{
    "allreduce", "reduce",    "broadcast",      "allgather", "reduce_scatter_block", "alltoall",
    "gather",    "scatter",   "scan",           "exscan",    "allgatherv",           "gatherv",
    "scatterv",  "alltoallv", "reduce_scatter", "barrier"};

}  // namespace

std::span<const Algorithm> catalogue() noexcept { return rows; }

std::string_view name_of(Collective collective) noexcept {
  return collective_names[static_cast<std::size_t>(collective)];
}

}  // namespace crosslane::collective
