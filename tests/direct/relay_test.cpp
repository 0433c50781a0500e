// Host-driven collectives without GPUs. Every order in which GPUs may do what a relay enqueues is judged at once: what two of them do
// to one place in memory must be ordered by streams and events, whatever the hosts' order was; and a protocol that lacks something
// must be caught. Then the same with ranks as threads, for the flags themselves.
#include "collective/relay.h"

#include "engine/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace crosslane;
using namespace crosslane::collective;

constexpr std::size_t slot_bytes = 16;

class Loop final : public engine::Runner {
 private:
  void adopt(const engine::Completion& /*completion*/) override {}
};

// One place in a window or buffer, and who touched it last.
struct Place {
  struct Access {
    int member;
    std::size_t op;
  };
  Access write{-1, 0};
  std::vector<Access> reads;
};

// What may be missing in a protocol.
struct Lacks {
  bool events = false, parity = false, flags = false;
};

// The ranks of a node, their windows, and what their GPUs were told to do.
struct Node {
  Node(int members, std::size_t slots, std::size_t bytes, Lacks lacking)
      : lacks(lacking), entries(static_cast<std::size_t>(members)) {
    for (int member = 0; member < members; ++member) {
      windows.emplace_back(2 * slots * slot_bytes);
      send.emplace_back(bytes);
      receive.emplace_back(bytes);
      clocks.emplace_back(static_cast<std::size_t>(members), 0);
      recorded.push_back({clocks.back(), clocks.back()});
    }
    half = slots * slot_bytes;
  }
  [[nodiscard]] int members() const { return static_cast<int>(entries.size()); }

  Lacks lacks;
  std::vector<share::Entry> entries;
  std::vector<std::vector<std::byte>> windows, send, receive;
  std::size_t half = 0;
  bool ordered_by_hand = false;  // ranks are threads: nothing is logged
  // By member: how many operations of each member come before what it enqueues next; and before its last records.
  using Clock = std::vector<std::size_t>;
  std::vector<Clock> clocks;
  std::vector<std::array<Clock, 2>> recorded;
  std::map<const std::byte*, Place> places;
  std::size_t races = 0;
};

class NodeSite final : public Site {
 public:
  NodeSite(Node& node, int me, std::uint64_t call) : node_(node), me_(me), call_(call) {}

  [[nodiscard]] std::uint64_t call() const override { return node_.lacks.flags ? 1 : call_; }
  [[nodiscard]] share::Entry& own_entry() override { return node_.entries[of(me_)]; }
  [[nodiscard]] const share::Entry& entry(int member) const override { return node_.entries[of(member)]; }
  [[nodiscard]] std::byte* window(int member, std::size_t parity) const override {
    return node_.windows[of(member)].data() + (node_.lacks.parity ? 0 : parity * node_.half);
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    begin();
    read(from);
    write(to);
    std::copy_n(from, bytes, to);
  }
  void combine(std::byte* inout, const std::byte* in, std::size_t bytes) override {
    begin();
    read(in);
    write(inout);
    for (std::size_t at = 0; at < bytes; ++at)
      inout[at] = std::byte(std::to_integer<unsigned>(inout[at]) + std::to_integer<unsigned>(in[at]));
  }
  void record(std::size_t parity) override {
    if (!node_.ordered_by_hand) node_.recorded[of(me_)][parity] = node_.clocks[of(me_)];
  }
  void follow(int member, std::size_t parity) override {
    if (node_.ordered_by_hand || node_.lacks.events) return;
    Node::Clock& mine = node_.clocks[of(me_)];
    for (std::size_t other = 0; other < mine.size(); ++other)
      mine[other] = std::max(mine[other], node_.recorded[of(member)][parity][other]);
  }
  std::uint64_t mark() override { return 0; }
  engine::Task<> reach(std::uint64_t /*mark*/) override { co_return; }
  void waits_for(int /*member*/) noexcept override {}
  void look(int /*member*/, base::Time /*begin*/) override {}

 private:
  static std::size_t of(int member) { return static_cast<std::size_t>(member); }
  void begin() {
    if (!node_.ordered_by_hand) ++node_.clocks[of(me_)][of(me_)];
  }
  [[nodiscard]] bool before(const Place::Access& access) const {
    return access.member < 0 || node_.clocks[of(me_)][of(access.member)] >= access.op;
  }
  [[nodiscard]] Place::Access own() const { return {me_, node_.clocks[of(me_)][of(me_)]}; }
  void read(const std::byte* from) {
    if (node_.ordered_by_hand) return;
    Place& place = node_.places[from];
    node_.races += before(place.write) ? 0 : 1;
    place.reads.push_back(own());
  }
  void write(const std::byte* to) {
    if (node_.ordered_by_hand) return;
    Place& place = node_.places[to];
    node_.races += before(place.write) ? 0 : 1;
    for (const Place::Access& access : place.reads) node_.races += before(access) ? 0 : 1;
    place.reads.clear();
    place.write = own();
  }

  Node& node_;
  int me_;
  std::uint64_t call_;
};

// Where the root of a call is, if there are other nodes.
enum class Nodes { one, root_here, root_elsewhere };

// The level above the node's: another node, which gives as much as one member. It holds the relay to what Above says: parts come in
// order, two at a time, what is given is read in the stream's order, and a result is not read after the next but one has begun.
class OtherNode final : public Above {
 public:
  OtherNode(NodeSite& site, Collective collective, Nodes nodes, const std::vector<std::byte>& has,
            const std::atomic<std::uint64_t>& turns, std::mt19937& random)
      : site_(site),
        gives_(collective != Collective::broadcast || nodes == Nodes::root_here),
        gets_(collective == Collective::allreduce || (collective == Collective::reduce) == (nodes == Nodes::root_here)),
        combines_(collective != Collective::broadcast),
        has_(has),
        turns_(turns),
        random_(random),
        given_(has.size()) {}

  void begin(std::size_t part, const std::byte* data) override {
    EXPECT_EQ(part, begun_++) << "parts begin out of order";
    EXPECT_LE(part, ended_ + 1) << "three parts at once";
    EXPECT_EQ(data != nullptr, gives_);
    std::ranges::fill(results_[part % 2], std::byte{0xee});
    if (data != nullptr) site_.copy(&given_[part * slot_bytes], data, bytes(part));
  }

  engine::Task<const std::byte*> end(std::size_t part) override {
    EXPECT_EQ(part, ended_) << "parts end out of order";
    EXPECT_LT(part, begun_) << "ends before it began";
    const std::uint64_t later = turns_.load() + random_() % 20;
    co_await engine::Completion::of(turns_, later);
    ++ended_;
    if (!gets_) co_return nullptr;
    auto& result = results_[part % 2];
    for (std::size_t at = 0; at < bytes(part); ++at) {
      const std::size_t place = part * slot_bytes + at;
      result[at] = std::byte(std::to_integer<unsigned>(has_[place]) +
                             (combines_ ? std::to_integer<unsigned>(given_[place]) : 0));
    }
    co_return result.data();
  }

  [[nodiscard]] bool gives() const { return gives_; }
  [[nodiscard]] const std::vector<std::byte>& given() const { return given_; }

 private:
  [[nodiscard]] std::size_t bytes(std::size_t part) const {
    return std::min(slot_bytes, given_.size() - part * slot_bytes);
  }

  NodeSite& site_;
  const bool gives_, gets_, combines_;
  const std::vector<std::byte>& has_;
  const std::atomic<std::uint64_t>& turns_;
  std::mt19937& random_;
  std::vector<std::byte> given_;
  std::array<std::array<std::byte, slot_bytes>, 2> results_{};
  std::size_t begun_ = 0, ended_ = 0;
};

struct Plan {
  std::string name;
  std::vector<std::vector<int>> gpus;  // members by GPU
  std::vector<TreeKind> kinds;         // by level
};

std::vector<int> everybody(const Plan& plan) {
  std::vector<int> all;
  for (const auto& gpu : plan.gpus) all.insert(all.end(), gpu.begin(), gpu.end());
  std::ranges::sort(all);
  return all;
}

// As shared_buffer.cpp and hierarchy.cpp make them.
std::vector<RelayLevel> levels_of(const Plan& plan, int root, int me) {
  const auto all = everybody(plan);
  if (plan.kinds.size() == 1) return {{plan.kinds[0].tree(all, root, me), plan.kinds[0].slots(all.size())}};
  std::vector<int> leaders;
  std::size_t most = 0;
  Tree inside;
  for (const auto& gpu : plan.gpus) {
    const int leader = std::ranges::find(gpu, root) != gpu.end() ? root : gpu.back();
    leaders.push_back(leader);
    most = std::max(most, gpu.size());
    if (std::ranges::find(gpu, me) != gpu.end()) inside = plan.kinds[0].tree(gpu, leader, me);
  }
  std::ranges::sort(leaders);
  return {{inside, plan.kinds[0].slots(most)},
          {plan.kinds[1].tree(leaders, root, me), plan.kinds[1].slots(leaders.size())}};
}

std::vector<Plan> plans() {
  std::vector<Plan> all;
  for (int members = 2; members <= 9; ++members) {
    std::vector<int> one(static_cast<std::size_t>(members));
    std::iota(one.begin(), one.end(), 0);
    all.push_back({"star of " + std::to_string(members), {one}, {stars}});
    all.push_back({"binomial tree of " + std::to_string(members), {one}, {binomials}});
  }
  const std::vector<std::vector<std::vector<int>>> shapes{
      {{0, 1}, {2, 3}}, {{0, 3, 5}, {1}, {2, 4}}, {{0}, {1}, {2}}, {{0, 1, 2}}, {{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 9}}};
  for (const auto& shape : shapes) {
    for (const auto& [lower, lower_name] : {std::pair{stars, "star"}, std::pair{binomials, "binomial"}}) {
      for (const auto& [upper, upper_name] : {std::pair{stars, "star"}, std::pair{binomials, "binomial"}}) {
        all.push_back({std::string(lower_name) + " in " + upper_name + " on " + std::to_string(shape.size()) + " GPUs",
                       shape,
                       {lower, upper}});
      }
    }
  }
  return all;
}

// A few calls in a row on a node; `random` decides whose host goes on.
class Calls {
 public:
  Calls(const Plan& plan, Lacks lacks, std::size_t bytes, std::mt19937& random)
      : plan_(plan),
        bytes_(bytes),
        random_(random),
        node_(static_cast<int>(everybody(plan).size()), slots(plan), bytes, lacks) {}

  Node& node() { return node_; }

  void fill(Collective collective, int root, Nodes nodes = Nodes::one) {
    for (int member = 0; member < node_.members(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      for (std::size_t at = 0; at < bytes_; ++at) node_.send[m][at] = std::byte(random_());
      std::ranges::fill(node_.receive[m], std::byte{0});
    }
    elsewhere_.resize(bytes_);
    for (std::byte& byte : elsewhere_) byte = std::byte(random_());
    given_ = node_.send[static_cast<std::size_t>(root)];
    expected_ = nodes == Nodes::root_elsewhere ? elsewhere_ : given_;
    if (collective == Collective::broadcast) return;
    std::ranges::fill(given_, std::byte{0});
    for (const auto& data : node_.send) add(given_, data);
    expected_ = given_;
    if (nodes != Nodes::one) add(expected_, elsewhere_);
  }

  engine::Task<> task(Site& site, Collective collective, int root, int me, bool in_order, Nodes nodes = Nodes::one,
                      Above* above = nullptr) {
    const auto m = static_cast<std::size_t>(me);
    const Relayed call{.shape = {.collective = collective, .bytes = bytes_, .root = root},
                       .me = me,
                       .root = me == root && nodes != Nodes::root_elsewhere,
                       .send = node_.send[m].data(),
                       .receive = node_.receive[m].data(),
                       .slot_bytes = slot_bytes,
                       .in_order = in_order,
                       .above = above};
    return relay(site, call, levels_of(plan_, root, me));
  }

  // False where it did not end. With other nodes `root` is the member that is at the top.
  bool run(Collective collective, int root, bool in_order, Nodes nodes = Nodes::one) {
    ++call_;
    nodes_ = nodes;
    fill(collective, root, nodes);
    std::atomic<std::uint64_t> turns{0};
    std::optional<OtherNode> other;
    std::vector<std::unique_ptr<Loop>> loops;
    std::vector<std::unique_ptr<NodeSite>> sites;
    std::vector<engine::Completion> ends;
    for (int member = 0; member < node_.members(); ++member) {
      loops.push_back(std::make_unique<Loop>());
      sites.push_back(std::make_unique<NodeSite>(node_, member, call_));
      if (nodes != Nodes::one && member == root)
        other.emplace(*sites.back(), collective, nodes, elsewhere_, turns, random_);
      Above* const above = member == root && other ? &*other : nullptr;
      ends.push_back(loops.back()->post(task(*sites.back(), collective, root, member, in_order, nodes, above)));
    }
    // Before the next call all have arrived, when their GPUs are done: what was done is over.
    for (int turn = 0; turn < 20'000; ++turn) {
      loops[random_() % loops.size()]->turn();
      turns.fetch_add(1);
      if (std::ranges::all_of(loops, [](const auto& loop) { return loop->idle(); })) break;
    }
    const bool ended = std::ranges::all_of(ends, [](const auto& end) { return end.done(); });
    for (auto& loop : loops) loop->abandon();
    node_.places.clear();
    if (ended)
      for (const auto& end : ends) end.rethrow();
    gave_ = !other || !other->gives() || other->given() == given_;
    return ended;
  }

  [[nodiscard]] bool right(Collective collective, int root) const {
    for (int member = 0; member < node_.members(); ++member) {
      const bool is_root = member == root && nodes_ != Nodes::root_elsewhere;
      const bool gets = collective == Collective::allreduce || (collective == Collective::reduce) == is_root;
      if (gets && node_.receive[static_cast<std::size_t>(member)] != expected_) return false;
    }
    return gave_;
  }

  static std::size_t slots(const Plan& plan) {
    std::size_t slots = 0;
    for (const RelayLevel& level : levels_of(plan, 0, 0)) slots += level.slots;
    return slots;
  }

 private:
  static void add(std::vector<std::byte>& sum, const std::vector<std::byte>& data) {
    for (std::size_t at = 0; at < sum.size(); ++at)
      sum[at] = std::byte(std::to_integer<unsigned>(sum[at]) + std::to_integer<unsigned>(data[at]));
  }

  const Plan& plan_;
  std::size_t bytes_;
  std::mt19937& random_;
  Node node_;
  std::uint64_t call_ = 0;
  Nodes nodes_ = Nodes::one;
  std::vector<std::byte> elsewhere_;         // what the other node has
  std::vector<std::byte> given_, expected_;  // what it is to be given, and what comes out
  bool gave_ = true;
};

constexpr std::array collectives{Collective::allreduce, Collective::reduce, Collective::broadcast};
constexpr std::size_t several_parts = 6 * slot_bytes + 5;

int pick_root(Collective collective, int members, std::mt19937& random) {
  return collective == Collective::allreduce ? members - 1
                                             : static_cast<int>(random() % static_cast<unsigned>(members));
}

TEST(Relay, OrdersAllThatMeets) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const Plan& plan : plans()) {
    for (const std::size_t bytes : {std::size_t{3}, slot_bytes, several_parts}) {
      Calls calls(plan, {}, bytes, random);
      for (int round = 0; round < 12; ++round) {
        const Collective collective = collectives[random() % collectives.size()];
        const int root = pick_root(collective, calls.node().members(), random);
        const bool in_order = plan.kinds.size() == 1 && random() % 2 == 0;
        ASSERT_TRUE(calls.run(collective, root, in_order)) << plan.name << " hangs";
        ASSERT_TRUE(calls.right(collective, root)) << plan.name << ", " << bytes << " bytes, root " << root;
        ASSERT_EQ(calls.node().races, 0U) << plan.name << ", " << bytes << " bytes, root " << root;
      }
    }
  }
}

// The same with a level above, for which everybody of one level waits.
TEST(Relay, OrdersWhatOtherNodesHave) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto all = plans();
  all.push_back({"a member alone", {{0}}, {stars}});
  for (const Plan& plan : all) {
    for (const std::size_t bytes : {std::size_t{3}, slot_bytes, several_parts}) {
      Calls calls(plan, {}, bytes, random);
      for (int round = 0; round < 12; ++round) {
        const Collective collective = collectives[random() % collectives.size()];
        const int root = pick_root(collective, calls.node().members(), random);
        const Nodes nodes = random() % 2 == 0 ? Nodes::root_here : Nodes::root_elsewhere;
        const auto what = plan.name + ", " + std::to_string(bytes) + " bytes, root " + std::to_string(root) +
                          (nodes == Nodes::root_elsewhere ? ", of which another node has the real one" : "");
        ASSERT_TRUE(calls.run(collective, root, false, nodes)) << what << " hangs";
        ASSERT_TRUE(calls.right(collective, root)) << what;
        ASSERT_EQ(calls.node().races, 0U) << what;
        ASSERT_FALSE(testing::Test::HasFailure()) << what;
      }
    }
  }
}

// Another node that takes its time.
class LateNode final : public Above {
 public:
  void begin(std::size_t /*part*/, const std::byte* /*data*/) override {}
  engine::Task<const std::byte*> end(std::size_t /*part*/) override {
    co_await engine::Completion::of(came_, 1);
    co_return nullptr;
  }
  void come() { came_.store(1); }

 private:
  std::atomic<std::uint64_t> came_{0};
};

TEST(Relay, GivesTheRootsNodeWhatOthersHaveYetToTake) {
  std::mt19937 random(5);
  const Plan plan{"a star", {{0, 1, 2}}, {stars}};
  constexpr int root = 1;
  Calls calls(plan, {}, slot_bytes, random);
  Node& node = calls.node();
  calls.fill(Collective::broadcast, root);
  LateNode late;
  std::vector<std::unique_ptr<NodeSite>> sites;
  Loop loop;
  std::vector<engine::Completion> ends;
  for (int member = 0; member < node.members(); ++member) {
    sites.push_back(std::make_unique<NodeSite>(node, member, 1));
    Above* const above = member == root ? &late : nullptr;
    ends.push_back(loop.post(calls.task(*sites.back(), Collective::broadcast, root, member, false, Nodes::one, above)));
  }
  for (int turn = 0; turn < 1000; ++turn) loop.turn();
  for (const int other : {0, 2}) EXPECT_TRUE(ends[static_cast<std::size_t>(other)].done()) << other;
  EXPECT_FALSE(ends[root].done());
  late.come();
  for (int turn = 0; turn < 1000; ++turn) loop.turn();
  EXPECT_TRUE(ends[root].done());
  EXPECT_TRUE(calls.right(Collective::broadcast, root));
  loop.abandon();
}

TEST(Relay, CatchesProtocolsThatLackSomething) {
  std::mt19937 random(7);
  const auto caught = [&](Lacks lacks) {
    std::size_t wrong = 0;
    for (const Plan& plan : plans()) {
      Calls calls(plan, lacks, several_parts, random);
      for (int round = 0; round < 4; ++round) {
        const Collective collective = collectives[static_cast<std::size_t>(round) % collectives.size()];
        const int root = pick_root(collective, calls.node().members(), random);
        wrong +=
            !calls.run(collective, root, false) || !calls.right(collective, root) || calls.node().races != 0 ? 1 : 0;
      }
    }
    return wrong;
  };
  EXPECT_EQ(caught({}), 0U);
  EXPECT_GT(caught({.events = true}), 0U);
  EXPECT_GT(caught({.parity = true}), 0U);
  EXPECT_GT(caught({.flags = true}), 0U) << "flags that do not change from call to call";
}

// GPUs that do all at once: what orders the threads is the flags alone.
TEST(Relay, RacesItsFlags) {
  std::mt19937 random(11);
  for (const Plan& plan : plans()) {
    const int members = static_cast<int>(everybody(plan).size());
    if (members > 4 && plan.kinds.size() == 1) continue;
    Calls calls(plan, {}, several_parts, random);
    calls.node().ordered_by_hand = true;
    for (std::uint64_t call = 1; call <= 6; ++call) {
      const Collective collective = collectives[call % collectives.size()];
      const int root = pick_root(collective, members, random);
      calls.fill(collective, root);
      std::vector<std::thread> threads;
      for (int member = 0; member < members; ++member) {
        threads.emplace_back([&, member] {
          NodeSite site(calls.node(), member, call);
          Loop loop;
          const engine::Completion end = loop.post(calls.task(site, collective, root, member, false));
          while (!end.done()) {
            if (!loop.turn()) std::this_thread::yield();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_TRUE(calls.right(collective, root)) << plan.name;
    }
  }
}

TEST(Tree, AgreesForAllMembers) {
  for (const TreeKind& kind : {stars, binomials}) {
    for (int members = 1; members <= 32; ++members) {
      std::vector<int> group;
      for (int index = 0; index < members; ++index) group.push_back(3 * index + 1);
      for (const int root : group) {
        std::size_t given = 0;
        for (const int me : group) {
          const Tree tree = kind.tree(group, root, me);
          EXPECT_TRUE(tree.inside);
          EXPECT_EQ(tree.parent < 0, me == root);
          if (members > 1) {
            EXPECT_LT(tree.result_slot, kind.slots(group.size()));
          }
          std::vector<std::size_t> slots{tree.result_slot};
          for (const Child& child : tree.children) {
            const Tree theirs = kind.tree(group, root, child.member);
            EXPECT_EQ(theirs.parent, me);
            EXPECT_EQ(theirs.level, child.level);
            EXPECT_EQ(theirs.slot, child.slot);
            slots.push_back(child.slot);
            ++given;
          }
          std::ranges::sort(slots);
          EXPECT_EQ(std::ranges::adjacent_find(slots), slots.end()) << "two use one slot";
        }
        EXPECT_EQ(given, group.size() - 1);
        EXPECT_FALSE(kind.tree(group, root, 0).inside);
      }
    }
  }
}

}  // namespace
