// The kernels of a team: every way of using them, on random counts, alignments and numbers of members, against the host; one after another,
// in graphs, and without a member. What is of words that carry flags alone is in team_low_latency_test.cpp.
#include "team_combining.h"
#include "team_moving.h"

#include "base/error.h"
#include "gpu/graph.h"

namespace crosslane::test {
namespace {

TYPED_TEST_SUITE(TeamTest, Machines, MachineNames);

// A launch of member m of three, of a kind of its own for each kernel; `buffers` are the members'. What its done word becomes.
constexpr int kinds = 11;
std::uint64_t launch_kind(int kind, Members& team, std::uint32_t m, const std::vector<std::uint64_t>& buffers) {
  constexpr std::uint32_t n = 3;
  const auto scope = team.enter(m);
  kernel::Frame frame = team.frame(m);
  const bool in_lines = kind == 10;
  const auto low_latency = [&](auto& p) {
    p.frame = frame;
    p.slot_bytes = Members::slot_bytes;
    for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = in_lines ? team.lines(k) : team.low_latency(k);
  };
  const std::uint64_t mine = buffers[m];
  if (kind == 0) {
    kernel::ExchangeMoveParameters p{};
    p.frame = frame;
    team.kernels(m).exchange_move(team.stream(m), p, 4);
  } else if (kind == 1) {
    kernel::ExchangeCombineParameters p{};
    p.frame = frame;
    p.second_barrier = true;
    p.sources = p.destinations = 1;
    p.source[0] = p.destination[0] = mine;
    p.count = 16;
    team.kernels(m).exchange_combine(team.stream(m), Op::sum, Element::f32, p, 4);
  } else if (kind == 5) {
    kernel::PipelinedReductionParameters p{};
    p.frame = frame;
    p.chunk_bytes = 1024;
    p.from = mine;
    p.results = n;
    p.collector = kernel::most_members;
    for (std::uint32_t k = 0; k < n; ++k) {
      p.shard_begin[k] = k * 1024;
      p.shard_bytes[k] = 1024;
      p.result[k] = buffers[k] + 4096;
      p.window[k] = team.area(k);
    }
    team.kernels(m).pipelined_reduction(team.stream(m), Op::sum, Element::f32, p, 4);
  } else if (kind == 6) {
    kernel::PairwiseMoveParameters p{};
    p.frame = frame;
    p.chunk_bytes = 16;
    for (std::uint32_t k = 0; k < n; ++k) {
      p.window[k] = team.area(k);
      p.send[k] = {mine, 0, 1000};
      p.receive[k] = {0, mine + 2048 * (k + 1), 1000};
    }
    team.kernels(m).pairwise_move(team.stream(m), p, 4);
  } else if (kind == 9) {
    kernel::RingParameters p{};
    p.frame = frame;
    p.chunk_bytes = 64;
    p.round = 2;
    p.places = 4;
    p.from = mine;
    p.result = mine + 4096;
    p.next_result = buffers[(m + 1) % n] + 4096;
    p.window = team.area(m);
    p.next_window = team.area((m + 1) % n);
    p.shards = n;
    p.starter = 1;
    p.complete = n - 1;
    p.end = 2 * n - 2;
    for (std::uint32_t k = 0; k < n; ++k) {
      p.shard_begin[k] = k * 1024;
      p.shard_bytes[k] = 1024;
    }
    team.kernels(m).ring_reduction(team.stream(m), Op::sum, Element::f32, p, 4);
  } else if (kind == 7) {
    kernel::LowLatencySharesParameters p{};
    low_latency(p);
    p.from = p.to = mine;
    p.own_to = mine + m * 1024;
    p.units = kernel::Packets::units_of(1024);
    p.takers = (1U << n) - 1;
    for (std::uint32_t k = 0; k < n; ++k) {
      p.share_begin[k] = k * 1024;
      p.share_bytes[k] = 1024;
    }
    team.kernels(m).low_latency_shares(team.stream(m), Op::sum, Element::f32, p, 4);
  } else if (kind == 8) {
    kernel::PushedMoveParameters p{};
    p.frame = frame;
    p.bytes = 1000;
    p.chunk_bytes = 16;
    p.places = 2;
    (m == 0 ? p.receive_from : p.send_to) = m == 0 ? 6U : 1U;
    for (std::uint32_t k = 0; k < n; ++k) {
      p.window[k] = team.area(k);
      p.user[k] = mine + 1024 * k;
    }
    team.kernels(m).pushed_move(team.stream(m), p, 4);
  } else if (kind == 2) {
    kernel::LowLatencyCombineParameters p{};
    low_latency(p);
    p.from = p.to = mine;
    p.count = 2000;
    p.send_to = p.receive_from = (1U << n) - 1;
    team.kernels(m).low_latency_combine(team.stream(m), Op::sum, Element::f32, p, 4);
  } else {
    kernel::LowLatencyMoveParameters p{};
    low_latency(p);
    if (kind != 4) {
      for (std::uint32_t k = 0; k < n; ++k) {
        p.send[k] = {mine, 0, 1000};
        p.receive[k] = {0, mine + 2048 * (k + 1), 1000};
      }
    }  // else: tokens alone
    if (in_lines) {
      team.kernels(m).low_latency_move<kernel::Lines>(team.stream(m), p, 4);
    } else {
      team.kernels(m).low_latency_move<kernel::Packets>(team.stream(m), p, 4);
    }
  }
  return frame.done_value;
}

TYPED_TEST(TeamTest, EveryOperationAndElement) {
  for (const Element element : all_elements()) {
    for (const Op op : all_ops()) {
      if (!defined(op, element)) continue;
      const std::size_t size = kernel::bytes_of(element);
      this->low_latency_all_reduce(this->members(this->some_members()), op, element,
                                   this->some_count(Members::slot_bytes / 2 / size), this->some_blocks());
      this->exchange_one_shot(this->members(this->some_members()), op, element, this->some_count(40'000 / size),
                              this->some_blocks());
      this->exchange_two_shot(this->members(this->some_members()), op, element, this->some_count(100'000 / size),
                              this->some_blocks(), this->between(0, 1) == 0);
      if (kernel::Kernels::pipelines(op, element)) {
        this->pipelined_reduction(this->members(this->some_members()), op, element, this->some_count(20'000 / size),
                                  this->some_blocks());
        this->ring(this->members(std::max(this->some_members(), 3U)), op, element, this->some_count(20'000 / size),
                   this->some_blocks());
        this->low_latency_shares(this->members(this->some_members()), op, element,
                                 this->some_count(Members::slot_bytes / 4 / size), this->some_blocks());
      }
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(TeamTest, UndefinedOperations) {
  Members& team = this->members(1);
  for (const Element element : all_elements()) {
    for (const Op op : all_ops()) {
      if (!kernel::Kernels::pipelines(op, element)) {
        EXPECT_THROW(team.kernels(0).pipelined_reduction(team.stream(0), op, element, {}, 1), base::Error);
        EXPECT_THROW(team.kernels(0).ring_reduction(team.stream(0), op, element, {}, 1), base::Error);
        EXPECT_THROW(team.kernels(0).low_latency_shares(team.stream(0), op, element, {}, 1), base::Error);
      }
      if (defined(op, element)) continue;
      EXPECT_THROW(team.kernels(0).exchange_combine(team.stream(0), op, element, {}, 1), base::Error);
      EXPECT_THROW(team.kernels(0).low_latency_combine(team.stream(0), op, element, {}, 1), base::Error);
    }
  }
}

TYPED_TEST(TeamTest, AsManyMembersAsThereMayBe) {
  Members& team = this->members(kernel::most_members);
  for (int i = 0; i < 4; ++i) {
    this->low_latency_all_reduce(team, Op::sum, Element::f32, 100, 1);
    this->low_latency_all_reduce(team, Op::sum, Element::c128, 20, 2);
    this->exchange_two_shot(team, Op::bxor, Element::i16, 3000, 2, i % 2 == 0);
    this->exchange_all_gather(team, 1, i % 2 == 0);
    this->pairwise_all_to_all(team, 1);
    this->line_all_to_all(team, 1);
    this->exchange_spread(team, 1);
    this->pushed_move(team, 1);
    this->ring(team, Op::sum, Element::f32, 5000, 1);
  }
}

// Sizes that only the two members of a pair know, from nothing to several chunks; one kernel after another.
TYPED_TEST(TeamTest, PairwiseMoves) {
  for (int i = 0; i < 200 / CROSSLANE_TESTS_FEWER; ++i) {
    this->pairwise_all_to_all(this->members(this->some_members()), this->some_blocks());
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(TeamTest, Spreads) {
  for (int i = 0; i < 100; ++i) {
    this->exchange_spread(this->members(this->some_members()), this->some_blocks());
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(TeamTest, PushedMoves) {
  for (int i = 0; i < 150; ++i) {
    this->pushed_move(this->members(this->some_members()), this->some_blocks());
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(TeamTest, Rings) {
  for (int i = 0; i < 150 / CROSSLANE_TESTS_FEWER; ++i) {
    this->ring(this->members(std::max(this->some_members(), 3U)), Op::sum, Element::f32, this->some_count(20'000),
               this->some_blocks());
    if (this->HasFatalFailure()) return;
  }
}

// What was told long ago, or never, is no step of a launch of today.
TYPED_TEST(TeamTest, StepsAfterManyLaunches) {
  constexpr std::uint32_t n = 3;
  for (const std::uint64_t start :
       {(std::uint64_t{1} << 31) - 2, (std::uint64_t{1} << 32) - 2, (std::uint64_t{1} << 39) - 2}) {
    Members team(this->driver(), n, std::is_same_v<TypeParam, Emulated> ? 0 : 1);
    for (std::uint32_t m = 0; m < n; ++m) {
      auto control = team.read_control(m);
      control.launches = start;
      team.write_control(m, control);
    }
    for (int i = 0; i < 4; ++i) {
      this->pairwise_all_to_all(team, 2);
      this->pipelined_reduction(team, Op::sum, Element::f32, 20'000, 2);
      this->pushed_move(team, 2);
      this->ring(team, Op::sum, Element::f32, 20'000, 2);
      if (this->HasFatalFailure()) return;
    }
    EXPECT_EQ(team.read_control(0).launches, start + 16);
  }
}

// A graph of two launches, replayed: all that changes from launch to launch must live on the GPU.
TYPED_TEST(TeamTest, GraphsReplay) {
  constexpr std::uint32_t n = 3;
  constexpr int replays = 1000 / CROSSLANE_TESTS_FEWER;
  constexpr std::size_t count = 77;
  Members& team = this->members(n);
  const auto data = this->elements(n, Element::u32, count);
  const auto buffers = this->buffers(team, data, {0, 4, 8});
  std::vector<gpu::GraphExec> graphs;
  for (std::uint32_t m = 0; m < n; ++m) {
    const auto scope = team.enter(m);
    gpu::Capture capture(team.stream(m));
    kernel::LowLatencyCombineParameters low{};
    low.frame = team.frame(m);
    low.slot_bytes = Members::slot_bytes;
    low.from = low.to = this->address(buffers[m]);
    low.send_to = low.receive_from = (1U << n) - 1;
    low.count = count;
    kernel::ExchangeCombineParameters exchange{};
    exchange.frame = team.frame(m);
    exchange.parity = Members::parity();
    exchange.ins = exchange.destinations = 1;
    exchange.in[0] = {this->address(buffers[m]), team.area(m), count * 4};
    exchange.sources = n;
    exchange.destination[0] = this->address(buffers[m]);
    exchange.count = count;
    for (std::uint32_t k = 0; k < n; ++k) {
      low.low_latency[k] = team.low_latency(k);
      exchange.source[k] = team.area(k);
    }
    team.kernels(m).low_latency_combine(team.stream(m), Op::sum, Element::u32, low, 1);
    team.kernels(m).exchange_combine(team.stream(m), Op::sum, Element::u32, exchange, 2);
    graphs.push_back(capture.end());
  }
  // The first sum makes all equal; each of the others multiplies by n.
  Bytes expected = this->fold(Op::sum, Element::u32, data, 0, n);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t value = 0;
    std::memcpy(&value, expected.data() + 4 * i, 4);
    for (int k = 1; k < 2 * replays; ++k) value *= n;
    std::memcpy(expected.data() + 4 * i, &value, 4);
  }
  // Round by round: streams that share one of the GPU's queues must not keep each other's next round from coming.
  const auto order = this->order(n);
  for (int i = 0; i < replays; ++i) {
    for (const auto m : order) {
      const auto scope = team.enter(m);
      graphs[m].launch(team.stream(m));
    }
  }
  team.wait();
  for (std::uint32_t m = 0; m < n; ++m) {
    EXPECT_EQ(team.failed(m), 0U);
    ASSERT_EQ(buffers[m].bytes(), expected) << "member " << m;
    EXPECT_EQ(team.read_control(m).launches, 2U * replays);
  }
}

// A member that never comes: everybody else's launch ends, and names it.
TYPED_TEST(TeamTest, LaunchesEndWithoutAMember) {
  for (int kind = 0; kind < kinds; ++kind) {
    for (const bool aborted : {false, true}) {
      constexpr std::uint32_t n = 3;
      Members team(this->driver(), n, std::is_same_v<TypeParam, Emulated> ? 0 : 1);
      team.limit_nanoseconds = aborted ? ~std::uint64_t{0} : 20'000'000;
      const std::uint32_t missing = static_cast<std::uint32_t>(this->between(0, n - 1));
      std::vector<std::uint64_t> values(n);
      const auto buffers = this->buffers(team, std::vector<Bytes>(n, Bytes(8192)), {0, 0, 0});
      std::vector<std::uint64_t> where;
      for (const auto& buffer : buffers) where.push_back(this->address(buffer));
      for (std::uint32_t m = 0; m < n; ++m) {
        if (m == missing) continue;
        values[m] = launch_kind(kind, team, m, where);
      }
      if (aborted) {
        for (std::uint32_t m = 0; m < n; ++m) team.abort(m);
      }
      team.wait();
      for (std::uint32_t m = 0; m < n; ++m) {
        if (m == missing) continue;
        EXPECT_EQ(team.done(m), values[m]) << "kind " << kind;
        if (aborted) {
          EXPECT_NE(team.failed(m), 0U);
        } else {
          EXPECT_EQ(team.failed(m), missing + 1) << "kind " << kind;
        }
        const auto control = team.read_control(m);
        EXPECT_EQ(control.launches, 1U);
        EXPECT_EQ(control.finished, 0U);
        EXPECT_EQ(control.given_up, 1U);
      }
    }
  }
}

// A launch after one that gave up stores nothing and tells nobody that it has come: who is late must not take what is there for results.
TYPED_TEST(TeamTest, NobodyPassesALostTeam) {
  for (int kind = 0; kind < kinds; ++kind) {
    constexpr std::uint32_t n = 3, late = 2;
    Members team(this->driver(), n, std::is_same_v<TypeParam, Emulated> ? 0 : 1);
    team.limit_nanoseconds = 100'000'000;
    const auto buffers = this->buffers(team, std::vector<Bytes>(n, Bytes(8192)), {0, 0, 0});
    std::vector<std::uint64_t> where;
    for (const auto& buffer : buffers) where.push_back(this->address(buffer));
    SCOPED_TRACE(testing::Message() << "kind " << kind);
    constexpr int launches = 3;
    for (int i = 0; i < launches; ++i) {
      for (std::uint32_t m = 0; m < late; ++m) launch_kind(kind, team, m, where);
      team.wait();
      for (std::uint32_t m = 0; m < late; ++m) EXPECT_EQ(team.failed(m), late + 1);
    }
    launch_kind(kind, team, late, where);
    team.wait();
    if (kind == 0) {
      EXPECT_EQ(team.failed(late), late + 1) << "the others came to the first one, and have called it off";
    }
    launch_kind(kind, team, late, where);
    team.wait();
    EXPECT_NE(team.failed(late), 0U);
    EXPECT_LE(team.read_control(late).given_up, 2U);
    for (std::uint32_t m = 0; m < n; ++m) EXPECT_EQ(team.read_control(m).launches, m == late ? 2U : launches);
  }
}

// Its peers have given up, and their memory is in use for something else by then: the windows of large calls, and what users passed. Kernels
// without a barrier write to the team's own region alone, and may. Kind 0 has nothing to store: it tells, too.
TYPED_TEST(TeamTest, WhoComesTooLateStoresNothing) {
  for (const int kind : {0, 1, 5, 8, 9}) {
    constexpr std::uint32_t n = 3;
    SCOPED_TRACE(testing::Message() << "kind " << kind);
    Members team(this->driver(), n, std::is_same_v<TypeParam, Emulated> ? 0 : 1);
    team.limit_nanoseconds = 20'000'000;
    const auto late = static_cast<std::uint32_t>(this->between(0, n - 1));
    const auto buffers = this->buffers(team, this->elements(n, Element::u8, 8192), {0, 0, 0});
    std::vector<std::uint64_t> where;
    for (const auto& buffer : buffers) where.push_back(this->address(buffer));
    for (std::uint32_t m = 0; m < n; ++m)
      if (m != late) launch_kind(kind, team, m, where);
    team.wait();
    std::vector<Bytes> areas, passed;
    for (std::uint32_t m = 0; m < n; ++m) {
      if (m != late) {
        EXPECT_EQ(team.failed(m), late + 1);
      }
      areas.push_back(team.read_areas(m));
      passed.push_back(buffers[m].bytes());
    }
    launch_kind(kind, team, late, where);
    team.wait();
    EXPECT_EQ(team.failed(late), late + 1);
    for (std::uint32_t m = 0; m < n; ++m) {
      EXPECT_EQ(team.read_areas(m), areas[m]) << "of member " << m;
      EXPECT_EQ(buffers[m].bytes(), passed[m]) << "of member " << m;
    }
  }
}

// Counters and parities go on through any sequence of kernels, blocks and members. Emulated blocks are threads: each launch takes long.
TYPED_TEST(TeamTest, LongSequences) {
  constexpr int launches = (std::is_same_v<TypeParam, Emulated> ? 400 : 1000) / CROSSLANE_TESTS_FEWER;
  std::map<std::uint32_t, std::uint64_t> launched;
  for (int i = 0; i < launches; ++i) {
    const std::uint32_t n = i % 3 == 0 ? 2 : i % 3 == 1 ? 5 : 8;
    Members& team = this->members(n);
    ++launched[n];
    const unsigned blocks = this->some_blocks();
    team.tells_host = this->between(0, 1) == 0;
    switch (this->between(0, 11)) {
      case 0:
        this->low_latency_all_reduce(team, Op::sum, Element::f32, this->some_count(4096), blocks);
        break;
      case 1:
        this->low_latency_all_reduce(team, Op::prod, Element::c128, this->some_count(1024), blocks);
        break;
      case 2:
        this->low_latency_all_to_all(team, blocks);
        this->low_latency_shares(team, Op::sum, Element::f32, this->some_count(2000), blocks);
        ++launched[n];
        break;
      case 3:
        this->exchange_all_gather(team, blocks, this->between(0, 1) == 0);
        this->exchange_spread(team, blocks);
        ++launched[n];
        break;
      case 4:
        this->exchange_one_shot(team, Op::sum, Element::f64, this->some_count(5000), blocks);
        break;
      case 5:
        this->pipelined_reduction(team, Op::sum, Element::f32, this->some_count(20'000), blocks);
        break;
      case 6:
        this->pairwise_all_to_all(team, blocks);
        break;
      case 7:
        this->pushed_move(team, blocks);
        break;
      case 8:
        this->line_all_to_all(team, blocks);
        break;
      case 9:
        if (n == 2) {
          this->pairwise_all_to_all(team, blocks);
        } else {
          this->ring(team, Op::sum, Element::f64, this->some_count(10'000), blocks);
        }
        break;
      default:
        this->exchange_two_shot(team, Op::max, Element::i16, this->some_count(20'000), blocks,
                                this->between(0, 1) == 0);
    }
    if (this->HasFatalFailure()) return;
  }
  for (const auto& [n, count] : launched) {
    for (std::uint32_t m = 0; m < n; ++m) {
      const auto control = this->members(n).read_control(m);
      EXPECT_EQ(control.launches, count);
      EXPECT_EQ(control.finished, 0U);
    }
  }
}

}  // namespace
}  // namespace crosslane::test
