// See among_nodes.h.
#include "collective/among_nodes.h"

#include "base/error.h"
#include "base/log.h"
#include "collective/frame.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace crosslane::collective {
namespace {

constexpr int ending_purpose = 4;  // the others are those of the parts
constexpr std::uint64_t went_well = 0, went_wrong = 1;

// Tasks of their own: who waits for them may give up, and the memory is theirs until MPI has done with it. They throw nothing: what goes
// wrong is noted.
engine::Task<> send_from(std::shared_ptr<const void> memory, std::shared_ptr<AmongNodes::Failure> failure,
                         team::Messenger messenger, std::span<const std::byte> bytes, int to, team::Tag tag) {
  static_cast<void>(memory);
  try {
    co_await messenger.send(bytes, to, tag);
  } catch (...) {
    failure->note(std::current_exception());
  }
}

engine::Task<> receive_into(std::shared_ptr<const void> memory, std::shared_ptr<AmongNodes::Failure> failure,
                            team::Messenger messenger, std::span<std::byte> bytes, int from, team::Tag tag) {
  static_cast<void>(memory);
  try {
    const std::size_t came = co_await messenger.receive_up_to(bytes, from, tag);
    if (came != bytes.size())
      throw base::Error(base::ErrorClass::truncate,
                        "rank {} of MPI_COMM_WORLD sent {} bytes of {}: the ranks pass different counts", from, came,
                        bytes.size());
  } catch (...) {
    failure->note(std::current_exception());
  }
}

engine::Task<> receive_ending(std::shared_ptr<std::uint64_t> ending, std::shared_ptr<AmongNodes::Failure> failure,
                              team::Messenger messenger, int from, team::Tag tag) {
  try {
    co_await messenger.receive(std::as_writable_bytes(std::span{ending.get(), 1}), from, tag);
    if (*ending != went_well)
      throw base::Error(base::ErrorClass::other, "rank {} of MPI_COMM_WORLD, on another node, failed in this call",
                        from);
  } catch (...) {
    failure->note(std::current_exception());
  }
}

int leader(const Beyond& beyond, int node) { return beyond.span.world_rank(beyond.leader_of(node)); }

std::vector<engine::Completion> tell_leaders(const Beyond& beyond, const std::shared_ptr<AmongNodes::Failure>& failure,
                                             std::uint64_t ending) {
  std::vector<engine::Completion> told;
  const auto word = std::make_shared<const std::uint64_t>(ending);
  for (int node = 0; node < beyond.span.nodes(); ++node) {
    if (node == beyond.span.node()) continue;
    told.push_back(
        beyond.engine.spawn(send_from(word, failure, beyond.messenger, std::as_bytes(std::span{word.get(), 1}),
                                      leader(beyond, node), beyond.span.tag(ending_purpose))));
  }
  return told;
}

// The messages need nobody's help, unless a node has ended.
engine::Task<> tell_of_failure(const Beyond& beyond, std::shared_ptr<AmongNodes::Failure> failure) {
  co_await engine::Completion::when_all(tell_leaders(beyond, failure, went_wrong)).or_after(look_every);
}

}  // namespace

engine::Task<> do_without(const Beyond& beyond) {
  if (beyond.leader_of(beyond.span.node()) != beyond.span.me()) co_return;
  auto telling = tell_of_failure(beyond, std::make_shared<AmongNodes::Failure>());
  co_await std::move(telling);
}

struct AmongNodes::Part {
  Shape shape;  // as if it were all
  int nodes;
  std::size_t parity;
  std::byte* host;    // of this parity: own data, the others' shares, the result
  std::byte* device;  // the same without the result
  std::size_t others, result;

  /// Which bytes a node owns.
  [[nodiscard]] std::size_t offset(int node) const noexcept { return owned(node).first; }
  [[nodiscard]] std::size_t bytes(int node) const noexcept { return owned(node).second; }
  [[nodiscard]] bool gives(int node) const noexcept {
    return shape.collective != Collective::broadcast || node == shape.root;
  }
  [[nodiscard]] bool takes(int node) const noexcept {
    return shape.collective == Collective::allreduce ||
           (node == shape.root) == (shape.collective == Collective::reduce);
  }

 private:
  // First and how many. The root of a broadcast owns none: it has it all.
  [[nodiscard]] std::pair<std::size_t, std::size_t> owned(int node) const noexcept {
    if (shape.collective != Collective::broadcast) return share_of(shape, nodes, node);
    const SharesOfOthers shares(shape, nodes);
    return {shares.offset(node), shares.bytes(node)};
  }
};

void AmongNodes::Failure::note(std::exception_ptr reason) {
  if (word.load(std::memory_order_relaxed) != 0) return;
  error = std::move(reason);
  word.store(1, std::memory_order_release);
}

AmongNodes::AmongNodes(Site& site, const Beyond& beyond, const Shape& shape)
    : site_(site),
      beyond_(beyond),
      span_(beyond.span),
      shape_(shape),
      me_(beyond.span.node()),
      failure_(std::make_shared<Failure>()) {
  for (int node = 0; node < span_.nodes(); ++node) {
    if (node == me_) continue;
    endings_.push_back(
        beyond_.engine.spawn(receive_ending(std::make_shared<std::uint64_t>(), failure_, beyond_.messenger,
                                            leader(beyond_, node), span_.tag(ending_purpose))));
  }
}

AmongNodes::Part AmongNodes::part_of(std::size_t number) const {
  const team::Span::Memory& memory = *span_.memory();
  const std::size_t parity = number % 2;
  Part part{.shape = shape_,
            .nodes = span_.nodes(),
            .parity = parity,
            .host = memory.host.data() + parity * memory.half,
            .device = memory.device.data() + parity * memory.result,
            .others = memory.others,
            .result = memory.result};
  part.shape.bytes = std::min(span_.part_bytes(), shape_.bytes - number * span_.part_bytes());
  return part;
}

void AmongNodes::begin(std::size_t number, const std::byte* data) {
  const Part part = part_of(number);
  if (data != nullptr) {
    // What others own goes to the host; the own share stays, apart from `data`, which may be gone when the others' have come.
    const std::size_t first = part.offset(me_);
    const std::size_t last = first + part.bytes(me_);
    if (first > 0) site_.copy(part.host, data, first);
    if (last < part.shape.bytes) site_.copy(part.host + last, data + last, part.shape.bytes - last);
    if (last > first) site_.copy(part.device, data + first, last - first);
  }
  begun_[part.parity] = beyond_.engine.spawn(exchange(number, site_.mark(), data != nullptr));
}

engine::Task<const std::byte*> AmongNodes::end(std::size_t number) {
  const engine::Completion& begun = begun_[number % 2];
  co_await begun;
  const Part part = part_of(number);
  co_return part.takes(me_) ? part.host + part.result : nullptr;
}

// `copied`: when what begin() enqueued is done, and what read this parity's memory before.
engine::Task<> AmongNodes::exchange(std::size_t number, std::uint64_t copied, bool gives) {
  const Part part = part_of(number);
  co_await site_.reach(copied);
  const bool combines_it = combines(shape_.collective);
  std::byte* const result = part.host + part.result;
  const std::size_t own_first = part.offset(me_), own_bytes = part.bytes(me_);

  std::vector<engine::Completion> in, out;
  std::byte* other = part.host + part.others;
  for (int node = 0; node < part.nodes; ++node) {
    if (node == me_ || !part.gives(node) || own_bytes == 0) continue;
    std::byte* const to = combines_it ? other : result + own_first;
    in.push_back(receive(part, Way::to_owners, node, std::span{to, own_bytes}));
    other += own_bytes;
  }
  if (gives) {
    for (int node = 0; node < part.nodes; ++node)
      if (node != me_ && part.bytes(node) != 0)
        out.push_back(send(part, Way::to_owners, node, {part.host + part.offset(node), part.bytes(node)}));
  }
  co_await all(std::move(in));
  if (combines_it && own_bytes != 0) co_await combine(part);

  in.clear();
  for (int node = 0; node < part.nodes; ++node) {
    if (node == me_) continue;
    if (part.takes(me_) && part.bytes(node) != 0)
      in.push_back(receive(part, Way::from_owners, node, {result + part.offset(node), part.bytes(node)}));
    if (part.takes(node) && own_bytes != 0)
      out.push_back(send(part, Way::from_owners, node, {result + own_first, own_bytes}));
  }
  std::ranges::move(out, std::back_inserter(in));
  co_await all(std::move(in));
}

// The own share: this node's and the others', in the order of the nodes behind it: the same in each run.
engine::Task<> AmongNodes::combine(Part part) {
  const std::size_t bytes = part.bytes(me_);
  const std::byte* sum = part.device;
  for (int index = 0; index < part.nodes - 1; ++index) {
    const std::size_t offset = part.others + static_cast<std::size_t>(index) * bytes;
    std::byte* const next = part.device + offset;
    site_.copy(next, part.host + offset, bytes);
    site_.combine(next, sum, bytes);
    sum = next;
  }
  site_.copy(part.host + part.result + part.offset(me_), sum, bytes);
  co_await site_.reach(site_.mark());
}

engine::Task<> AmongNodes::all(std::vector<engine::Completion> messages) {
  const engine::Completion every = engine::Completion::when_all(std::move(messages));
  const engine::Completion failed = engine::Completion::of(failure_->word, 1);
  site_.waits_for(other_nodes);
  for (const base::Time begin = base::now(); !every.done() && !failed.done(); site_.look(other_nodes, begin)) {
    std::vector<engine::Completion> any{every, failed};
    co_await engine::Completion::when_any(std::move(any)).or_after(look_every);
  }
  if (failed.done()) std::rethrow_exception(failure_->error);
}

engine::Task<> AmongNodes::finish() {
  std::vector<engine::Completion> messages = tell_leaders(beyond_, failure_, went_well);
  std::ranges::copy(endings_, std::back_inserter(messages));
  co_await all(std::move(messages));
}

engine::Task<> AmongNodes::give_up() {
  failure_->note(std::make_exception_ptr(base::Error(base::ErrorClass::other, "the call has failed")));
  for (const engine::Completion& begun : begun_) {
    try {
      co_await begun;
    } catch (const std::exception& error) {
      base::log(base::Topic::debug, "a collective among nodes was given up: {}", error.what());
    }
  }
  auto telling = tell_of_failure(beyond_, failure_);
  co_await std::move(telling);
}

engine::Completion AmongNodes::send(const Part& part, Way way, int node, std::span<const std::byte> bytes) const {
  const int purpose = 2 * static_cast<int>(way) + static_cast<int>(part.parity);
  return beyond_.engine.spawn(
      send_from(span_.memory(), failure_, beyond_.messenger, bytes, leader(beyond_, node), span_.tag(purpose)));
}

engine::Completion AmongNodes::receive(const Part& part, Way way, int node, std::span<std::byte> bytes) const {
  const int purpose = 2 * static_cast<int>(way) + static_cast<int>(part.parity);
  return beyond_.engine.spawn(
      receive_into(span_.memory(), failure_, beyond_.messenger, bytes, leader(beyond_, node), span_.tag(purpose)));
}

}  // namespace crosslane::collective
