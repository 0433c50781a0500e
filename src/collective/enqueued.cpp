// See enqueued.h. Whether the application's own buffers are used must be decided alike by all members, none of which knows the
// others' arguments: where a call uses a prepared buffer, all members use the one of that number, at the same offset
// (crosslane.h says so to the application).
#include "collective/enqueued.h"

#include "base/error.h"
#include "collective/blocking.h"
#include "collective/frame.h"
#include "collective/pipelined.h"
#include "gpu/context.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

namespace crosslane::collective {
namespace {

// Which buffers every member passes and the others would reach: only then all see the same prepared ones. Nothing for those
// with a root that alone passes one, and where a buffer in place would be read and written at once.
struct ReachedSides {
  bool send, receive;
};
std::optional<ReachedSides> reached_in(const Shape& shape, bool in_place) {
  switch (shape.collective) {
    case Collective::allreduce:
      return ReachedSides{true, true};
    case Collective::broadcast:
    case Collective::allgather:
      return ReachedSides{false, true};
    case Collective::alltoall:
      if (in_place) return std::nullopt;
      return ReachedSides{false, true};
    case Collective::reduce_scatter_block:
    case Collective::reduce_scatter:
      if (in_place) return std::nullopt;
      return ReachedSides{true, false};
    default:
      return std::nullopt;
  }
}

// Of the buffer that a member passes for what it receives, if it receives anything.
std::size_t received_bytes(const team::Prepared& prepared, const Shape& shape) noexcept {
  return shape.bytes * (receives_blocks(shape.collective) ? static_cast<std::size_t>(prepared.size()) : 1);
}

// All members' buffers as mapped here; empty where they are not prepared.
std::vector<Buffers> prepared_buffers(const team::Prepared& prepared, const Shape& shape, const Buffers& mine,
                                      const Pieces* pieces, bool in_place) {
  const auto reached = reached_in(shape, in_place);
  if (!reached || !worth_exposing(shape, prepared.size(), least_worth_using_prepared)) return {};
  const auto blocks = static_cast<std::size_t>(prepared.size());
  int send = -1;
  int receive = -1;
  if (reached->send) {
    std::size_t bytes = shape.bytes * (sends_blocks(shape.collective) ? blocks : 1);
    if (pieces != nullptr) {
      bytes = 0;
      for (const Pieces::Piece& piece : pieces->send) bytes += piece.bytes;
    }
    send = prepared.find(mine.send, bytes);
    if (send < 0) return {};
  }
  if (reached->receive) {
    receive = prepared.find(mine.receive, received_bytes(prepared, shape));
    if (receive < 0) return {};
  }
  std::vector<Buffers> all;
  for (int member = 0; member < prepared.size(); ++member) {
    Buffers buffers;
    if (send >= 0) buffers.send = prepared.reach(send, mine.send, member);
    if (receive >= 0) buffers.receive = prepared.reach(receive, mine.receive, member);
    all.push_back(member == prepared.me() ? mine : buffers);
  }
  return all;
}

// How kernels tell of memory of this rank: by number and offset, if it lies in one of the first `known` buffers that all have mapped.
std::uint64_t word_of(const team::Prepared& prepared, const std::byte* memory, std::size_t bytes, int known) {
  const int index = prepared.find(memory, bytes);
  if (index < 0 || index >= known) return kernel::Landing::nowhere;
  const std::uint64_t begin = address_of(prepared.begin(index, prepared.me()));
  return kernel::Landing::word(static_cast<std::uint64_t>(index), address_of(memory) - begin);
}

// What the root of a reduce or gather tells the others, and how they understand it. Nothing of other collectives, and where no algorithm asks
// for it: those that do go through large windows else.
std::optional<kernel::Landing> landing_of(const team::Prepared& prepared, const Shape& shape, const Buffers& mine) {
  const bool rooted = shape.collective == Collective::reduce || shape.collective == Collective::gather;
  if (!rooted || !prepared.view().has_large_windows()) return std::nullopt;
  kernel::Landing landing{};
  const int known = std::min(prepared.buffers(), static_cast<int>(kernel::Landing::most_buffers));
  for (int index = 0; index < known; ++index) landing.base[index] = address_of(prepared.begin(index, shape.root));
  if (prepared.me() == shape.root)
    landing.told = word_of(prepared, mine.receive, received_bytes(prepared, shape), known);
  return landing;
}

// The same of what a reduce's members combine, or those of a scatter receive, wherever that is on each of them.
bool tells_of_parts(const team::Prepared& prepared, const Shape& shape) noexcept {
  const bool rooted = shape.collective == Collective::reduce || shape.collective == Collective::scatter;
  return rooted && prepared.buffers() > 0 && prepared.view().has_large_windows();
}
kernel::Parts parts_of(const team::Prepared& prepared, const Shape& shape, const Buffers& mine) {
  kernel::Parts parts{};
  const int members = prepared.size();
  const auto most = static_cast<int>(kernel::Parts::most_buffers(static_cast<std::uint32_t>(members)));
  const int known = std::min(prepared.buffers(), most);
  for (int index = 0; index < known; ++index)
    for (int member = 0; member < members; ++member)
      parts.base[index * members + member] = address_of(prepared.begin(index, member));
  const bool scatters = shape.collective == Collective::scatter;
  parts.told = scatters && prepared.me() == shape.root
                   ? kernel::Landing::word(0, 0)  // nobody writes there
                   : word_of(prepared, scatters ? mine.receive : mine.send, shape.bytes, known);
  return parts;
}

bool captures(gpu::StreamView stream) noexcept {
  try {
    return stream.capturing();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

// A peer may still be far from enqueueing its side.
double Enqueued::limit_seconds() const noexcept { return limit_of_waits(watchdog_seconds_); }

const Algorithm& Enqueued::run(const team::Prepared& prepared, const Shape& shape, const Buffers& mine,
                               const Pieces* pieces, bool in_place, gpu::StreamView stream) const {
  const team::TeamView team = prepared.view();
  TeamFacts facts = facts_of(team);
  const std::vector<Buffers> all = prepared_buffers(prepared, shape, mine, pieces, in_place);
  facts.exposed = !all.empty();
  facts.large_windows = team.has_large_windows();
  facts.deterministic = choice_.deterministic();
  facts.told = tells_of_parts(prepared, shape);
  const Algorithm* const algorithm = choice_.choose(shape, facts);
  if (algorithm == nullptr)
    throw base::Error(base::ErrorClass::intern, "no algorithm for {} of {} bytes", name_of(shape.collective),
                      shape.bytes);
  const Report report{.failed = prepared.failed_word(), .limit_ns = static_cast<std::uint64_t>(limit_seconds() * 1e9)};
  team::Home& home = prepared.home();
  const gpu::ContextScope scope(home.driver(), home.context());
  std::optional<kernel::Landing> landing;
  std::optional<kernel::Parts> parts;
  const bool tells = pipelined::tells(*algorithm);
  if (tells) landing = landing_of(prepared, shape, mine);
  if (tells && facts.told) parts = parts_of(prepared, shape, mine);
  const auto plan = algorithm->prepare(
      Call{shape, mine, team, all, pieces, landing ? &*landing : nullptr, parts ? &*parts : nullptr});
  const bool captured = captures(stream);
  try {
    plan->start(stream, report);
  } catch (...) {
    if (!captured) prepared.give_up();  // of a capture that has failed nothing runs
    throw;
  }
  if (!captured) prepared.enqueued(plan->launches());
  return *algorithm;
}

}  // namespace crosslane::collective
