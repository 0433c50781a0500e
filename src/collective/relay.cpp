// See relay.h.
#include "collective/relay.h"

#include "engine/completion.h"
#include "share/steps.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>

namespace crosslane::collective {
namespace {

using share::Step;

class Relay {
 public:
  Relay(Site& site, const Relayed& call, std::vector<RelayLevel> levels)
      : site_(site),
        call_(call),
        levels_(std::move(levels)),
        parts_((call.shape.bytes + call.slot_bytes - 1) / call.slot_bytes) {
    std::size_t slots = 0;
    for (const RelayLevel& level : levels_) {
      first_slot_.push_back(slots);
      slots += level.slots;
    }
  }

  engine::Task<> run() {
    switch (call_.shape.collective) {
      case Collective::allreduce:
        co_await allreduce();
        break;
      case Collective::reduce:
        co_await reduce();
        break;
      default:
        co_await broadcast();
        break;
    }
    co_await site_.reach(site_.mark());
  }

 private:
  using Word = std::atomic<std::uint64_t>;

  // Data on its way: nothing where another member has it now.
  using Data = const std::byte*;

  engine::Task<> allreduce() {
    // Who ends the way up turns a part round at once; the others send the next part up before they wait for one.
    const std::size_t lag = at_top() && call_.above == nullptr ? 0 : 1;
    std::array<Data, 2> top{};
    for (std::size_t part = 0; part < parts_ + lag; ++part) {
      if (part < parts_) {
        top[part % 2] = co_await up(part);
        if (call_.above != nullptr) call_.above->begin(part, top[part % 2]);
      }
      if (part < lag) continue;
      const std::size_t back = part - lag;
      if (call_.above != nullptr) top[back % 2] = co_await call_.above->end(back);
      const Data result = co_await down(back, top[back % 2]);
      copy(call_.receive + offset(back), result, bytes(back));
    }
  }

  engine::Task<> reduce() {
    Above* const above = call_.above;
    for (std::size_t part = 0; part < parts_; ++part) {
      const Data result = co_await up(part);
      if (above != nullptr)
        above->begin(part, result);
      else if (result != nullptr)
        copy(call_.receive + offset(part), result, bytes(part));
      // The slots of this part are read.
      const auto takes = [](const RelayLevel& level) { return !level.tree.children.empty(); };
      if (std::ranges::any_of(levels_, takes)) record(part);
      for (std::size_t level = 0; level < levels_.size(); ++level)
        if (takes(levels_[level])) tell_complete(level, part);
      if (above != nullptr && part > 0) co_await reduced(*above, part - 1);
    }
    if (above != nullptr) co_await reduced(*above, parts_ - 1);
  }

  engine::Task<> reduced(Above& above, std::size_t part) {
    const Data result = co_await above.end(part);
    if (result != nullptr) copy(call_.receive + offset(part), result, bytes(part));
  }

  engine::Task<> broadcast() {
    Above* const above = call_.above;
    for (std::size_t part = 0; part < parts_; ++part) {
      if (above != nullptr && part == 0) above->begin(part, own(part));
      if (above != nullptr && part + 1 < parts_) above->begin(part + 1, own(part + 1));
      Data data = own(part);
      if (above != nullptr && !call_.root) data = co_await above->end(part);
      const Data result = co_await down(part, data);
      if (call_.root) {
        // Not before: its own node need not wait for others.
        if (above != nullptr) static_cast<void>(co_await above->end(part));
        continue;
      }
      copy(call_.receive + offset(part), result, bytes(part));
      record(part);
      for (std::size_t level = 0; level < levels_.size(); ++level)
        if (levels_[level].tree.parent >= 0) tell_given(level, part);
    }
  }

  // What the root of a broadcast gives.
  [[nodiscard]] Data own(std::size_t part) const noexcept { return call_.root ? call_.send + offset(part) : nullptr; }

  // This rank's part, combined with what its children have, on all levels up to where it is given away.
  engine::Task<Data> up(std::size_t part) {
    Data data = call_.send + offset(part);
    for (std::size_t level = 0; level < levels_.size() && data != nullptr; ++level)
      data = co_await combine(level, part, data);
    co_return data;
  }

  // The result, wherever this rank can read it, once its children can do so too.
  engine::Task<Data> down(std::size_t part, Data data) {
    for (std::size_t level = levels_.size(); level-- > 0;)
      if (levels_[level].tree.inside) data = co_await spread(level, part, data);
    co_return data;
  }

  engine::Task<Data> combine(std::size_t level, std::size_t part, Data own) {
    const Tree& tree = levels_[level].tree;
    if (tree.alone()) co_return own;
    Data all = nullptr;
    bool own_taken = false;
    if (tree.own_first && !call_.in_order) {
      all = own;
      own_taken = true;
    }
    std::vector<Child> pending = tree.children;
    for (std::size_t taken = 0; !pending.empty(); ++taken) {
      if (call_.in_order && taken == tree.before && !own_taken) {
        all = take_own(level, part, all, own);
        own_taken = true;
      }
      const std::size_t next = co_await next_of(level, part, pending);
      const Child child = pending[next];
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(next));
      follow(child.member, part);
      std::byte* const given = slot(call_.me, level, child.slot, part);
      if (all != nullptr) combine_into(given, all, part);
      all = given;
    }
    if (!own_taken) all = take_own(level, part, all, own);
    if (tree.parent < 0) co_return all;
    if (part >= 2) {
      const Step read = step(part - 2, 0);
      co_await reached(site_.entry(tree.parent).complete[level], read, tree.parent);
      if (call_.shape.collective == Collective::reduce) follow(tree.parent, part - 2);
    }
    copy(slot(tree.parent, level, tree.slot, part), all, bytes(part));
    record(part);
    tell_given(level, part);
    co_return nullptr;
  }

  // Own data after `all` that came so far, into the result slot: kernels combine into their second operand.
  Data take_own(std::size_t level, std::size_t part, Data all, Data own) {
    if (all == nullptr) return own;
    std::byte* const result = slot(call_.me, level, levels_[level].tree.result_slot, part);
    copy(result, own, bytes(part));
    combine_into(result, all, part);
    return result;
  }

  engine::Task<Data> spread(std::size_t level, std::size_t part, Data data) {
    const Tree& tree = levels_[level].tree;
    if (tree.parent >= 0) {
      co_await reached(site_.entry(tree.parent).complete[level], step(part, 0), tree.parent);
      follow(tree.parent, part);
      data = slot(tree.parent, level, tree.result_slot, part);
    }
    if (tree.children.empty()) co_return data;
    if (call_.shape.collective == Collective::broadcast && part >= 2) {
      for (const Child& child : tree.children) {
        co_await reached(site_.entry(child.member).given[level], step(part - 2, child.level), child.member);
        follow(child.member, part - 2);
      }
    }
    std::byte* const result = slot(call_.me, level, tree.result_slot, part);
    copy(result, data, bytes(part));
    record(part);
    tell_complete(level, part);
    co_return result;
  }

  // The index of the child whose data is taken next: in the group's order if that counts, else the first that came of those that
  // give at the lowest level.
  engine::Task<std::size_t> next_of(std::size_t level, std::size_t part, const std::vector<Child>& pending) {
    std::size_t candidates = 1;
    if (!call_.in_order) {
      while (candidates < pending.size() && pending[candidates].level == pending.front().level) ++candidates;
    }
    const auto given = [&](std::size_t index) -> const Word& {
      return site_.entry(pending[index].member).given[level];
    };
    if (candidates == 1) {
      co_await reached(given(0), step(part, pending[0].level), pending[0].member);
      co_return 0;
    }
    for (base::Time begin = base::now();;) {
      for (std::size_t index = 0; index < candidates; ++index)
        if (is_at(given(index), step(part, pending[index].level))) co_return index;
      std::vector<engine::Completion> any;
      any.reserve(candidates);
      for (std::size_t index = 0; index < candidates; ++index)
        any.push_back(engine::Completion::of(given(index), step(part, pending[index].level).value()));
      site_.waits_for(pending[0].member);
      co_await engine::Completion::when_any(std::move(any)).or_after(look_every);
      site_.look(pending[0].member, begin);
    }
  }

  engine::Task<> reached(const Word& word, Step wanted, int member) {
    if (is_at(word, wanted)) co_return;
    site_.waits_for(member);
    for (const base::Time begin = base::now(); !is_at(word, wanted); site_.look(member, begin)) {
      co_await engine::Completion::of(word, wanted.value()).or_after(look_every);
    }
  }

  [[nodiscard]] static bool is_at(const Word& word, Step wanted) noexcept {
    return word.load(std::memory_order_acquire) >= wanted.value();
  }
  [[nodiscard]] Step step(std::size_t part, int level) const noexcept { return {site_.call(), part, level}; }

  [[nodiscard]] std::size_t offset(std::size_t part) const noexcept { return part * call_.slot_bytes; }
  [[nodiscard]] std::size_t bytes(std::size_t part) const noexcept {
    return std::min(call_.slot_bytes, call_.shape.bytes - offset(part));
  }
  [[nodiscard]] std::byte* slot(int member, std::size_t level, std::size_t which, std::size_t part) const {
    return site_.window(member, part % 2) + (first_slot_[level] + which) * call_.slot_bytes;
  }
  [[nodiscard]] bool at_top() const noexcept {
    return std::ranges::all_of(levels_,
                               [](const RelayLevel& level) { return level.tree.inside && level.tree.parent < 0; });
  }
  void copy(std::byte* to, Data from, std::size_t size) {
    if (to != from) site_.copy(to, from, size);
  }
  void combine_into(std::byte* inout, Data in, std::size_t part) { site_.combine(inout, in, bytes(part)); }
  // What comes next on this rank's stream comes after what `member` had enqueued when it told of this part.
  void follow(int member, std::size_t part) { site_.follow(member, step(part, 0).parity()); }
  void record(std::size_t part) { site_.record(step(part, 0).parity()); }

  // After record(): who sees the step sees an event that was recorded since.
  void tell_given(std::size_t level, std::size_t part) {
    const Step given = step(part, levels_[level].tree.level);
    site_.own_entry().given[level].store(given.value(), std::memory_order_release);
  }
  void tell_complete(std::size_t level, std::size_t part) {
    site_.own_entry().complete[level].store(step(part, 0).value(), std::memory_order_release);
  }

  Site& site_;
  const Relayed call_;
  const std::vector<RelayLevel> levels_;
  const std::size_t parts_;
  std::vector<std::size_t> first_slot_;  // of each level
};

}  // namespace

engine::Task<> relay(Site& site, Relayed call, std::vector<RelayLevel> levels) {
  Relay relay(site, call, std::move(levels));
  co_await relay.run();
}

}  // namespace crosslane::collective
