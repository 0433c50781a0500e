// The kernels of a team: every way of using them, on random counts, alignments and numbers of members, against the host.
#include "team_machine.h"

#include "base/error.h"
#include "gpu/graph.h"

#include <cstring>
#include <numeric>

namespace crosslane::test {
namespace {

using kernel::Element;
using kernel::Op;

template <class Kind>
class TeamTest : public KernelTest<Kind> {
 protected:
  using OnGpu = typename KernelTest<Kind>::OnGpu;

  void SetUp() override {
    KernelTest<Kind>::SetUp();
    random_.seed(this->seed_ + 1);
  }

  // On the machine's own GPUs all members share one: so their blocks are few, and resident together.
  Members& members(std::uint32_t n) {
    auto& made = made_[n];
    if (!made) made = std::make_unique<Members>(this->driver(), n, std::is_same_v<Kind, Emulated> ? 0 : 1);
    return *made;
  }
  std::uint32_t some_members() { return static_cast<std::uint32_t>(this->between(1, 8)); }
  unsigned some_blocks() { return static_cast<unsigned>(this->between(1, 5)); }
  std::size_t some_shift(std::size_t unit) {
    switch (this->between(0, 3)) {
      case 0:
        return static_cast<std::size_t>(this->between(0, 15));
      case 1:
        return unit * static_cast<std::size_t>(this->between(0, 3));
      default:
        return 0;
    }
  }
  std::size_t some_count(std::size_t most) {
    switch (this->between(0, 5)) {
      case 0:
        return static_cast<std::size_t>(this->between(0, 3));
      case 1:
      case 2:
        return static_cast<std::size_t>(this->between(0, static_cast<std::int64_t>(std::min<std::size_t>(most, 40))));
      default:
        return static_cast<std::size_t>(this->between(0, static_cast<std::int64_t>(most)));
    }
  }
  std::vector<std::uint32_t> order(std::uint32_t n) {
    std::vector<std::uint32_t> all(n);
    std::iota(all.begin(), all.end(), 0U);
    std::shuffle(all.begin(), all.end(), random_);
    return all;
  }
  // A buffer of each member, in its GPU's memory.
  std::vector<OnGpu> buffers(Members& team, const std::vector<Bytes>& contents,
                             const std::vector<std::size_t>& shifts) {
    std::vector<OnGpu> result;
    for (std::uint32_t m = 0; m < team.count(); ++m) {
      const auto scope = team.enter(m);
      result.emplace_back(this->driver(), contents[m], shifts[m]);
    }
    return result;
  }
  std::vector<Bytes> elements(std::uint32_t n, Element element, std::size_t count) {
    std::vector<Bytes> result;
    for (std::uint32_t m = 0; m < n; ++m) result.push_back(random_elements(element, count, random_));
    return result;
  }
  std::vector<std::size_t> shifts(std::uint32_t n, std::size_t unit, bool alike) {
    std::vector<std::size_t> result;
    const auto first = some_shift(unit);
    for (std::uint32_t m = 0; m < n; ++m) result.push_back(alike ? first : some_shift(unit));
    return result;
  }
  static std::uint64_t address(const OnGpu& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data()); }

  // What members [first, last) of `in` combine to, in order.
  static Bytes fold(Op op, Element element, const std::vector<Bytes>& in, std::size_t first, std::size_t last) {
    Bytes result = in[first];
    for (std::size_t m = first + 1; m < last; ++m) {
      Bytes next = in[m];
      combine(op, element, result, next);
      result = next;
    }
    return result;
  }
  void expect_done(Members& team, const std::vector<std::uint64_t>& values) {
    for (std::uint32_t m = 0; m < team.count(); ++m) {
      EXPECT_EQ(team.done(m), values[m]);
      EXPECT_EQ(team.failed(m), 0U);
    }
  }

  void low_latency_all_reduce(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void exchange_one_shot(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void exchange_two_shot(Members& team, Op op, Element element, std::size_t count, unsigned blocks, bool zero_copy);
  void pipelined_reduction(Members& team, Op op, Element element, std::size_t count, unsigned blocks);
  void low_latency_all_to_all(Members& team, unsigned blocks) { all_to_all(team, blocks, true); }
  void pairwise_all_to_all(Members& team, unsigned blocks) { all_to_all(team, blocks, false); }
  void exchange_all_gather(Members& team, unsigned blocks, bool push);

  std::mt19937_64 random_;

 private:
  void all_to_all(Members& team, unsigned blocks, bool low_latency);

  std::map<std::uint32_t, std::unique_ptr<Members>> made_;
};
TYPED_TEST_SUITE(TeamTest, Machines, MachineNames);

template <class Kind>
void TeamTest<Kind>::low_latency_all_reduce(Members& team, Op op, Element element, std::size_t count, unsigned blocks) {
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element);
  const bool in_place = this->between(0, 2) == 0;
  const auto data = elements(n, element, count);
  const auto from = buffers(team, data, shifts(n, size, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(count * size)), shifts(n, size, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::LowLatencyCombineParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.slot_bytes = Members::slot_bytes;
    for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = team.low_latency(k);
    p.from = address(from[m]);
    p.to = in_place ? p.from : address(to[m]);
    p.send_to = p.receive_from = n == 32 ? ~0U : (1U << n) - 1;
    p.count = count;
    team.kernels(m).low_latency_combine(team.stream(m), op, element, p, blocks);
  });
  expect_done(team, values);
  const Bytes expected = significant(element, fold(op, element, data, 0, n));
  for (std::uint32_t m = 0; m < n; ++m) {
    ASSERT_EQ(significant(element, (in_place ? from : to)[m].bytes()), expected)
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks << " blocks";
    if (!in_place) {
      ASSERT_EQ(from[m].bytes(), data[m]);
    }
  }
}

template <class Kind>
void TeamTest<Kind>::exchange_one_shot(Members& team, Op op, Element element, std::size_t count, unsigned blocks) {
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element), bytes = count * size;
  const auto data = elements(n, element, count);
  const auto from = buffers(team, data, shifts(n, size, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(bytes)), shifts(n, size, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::ExchangeCombineParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.parity = Members::parity();
    p.ins = 1;
    p.in[0] = {address(from[m]), team.area(m), bytes};
    p.sources = n;
    for (std::uint32_t k = 0; k < n; ++k) p.source[k] = team.area(k);
    p.destinations = 1;
    p.destination[0] = address(to[m]);
    p.count = count;
    team.kernels(m).exchange_combine(team.stream(m), op, element, p, blocks);
  });
  expect_done(team, values);
  const Bytes expected = significant(element, fold(op, element, data, 0, n));
  for (std::uint32_t m = 0; m < n; ++m) {
    ASSERT_EQ(significant(element, to[m].bytes()), expected)
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks << " blocks";
    ASSERT_EQ(from[m].bytes(), data[m]);
  }
}

template <class Kind>
void TeamTest<Kind>::exchange_two_shot(Members& team, Op op, Element element, std::size_t count, unsigned blocks,
                                       bool zero_copy) {
  // Each member combines its share, from and into everybody's buffers or windows.
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element), bytes = count * size;
  const bool in_place = zero_copy && this->between(0, 1) == 0;
  const auto data = elements(n, element, count);
  const auto at = shifts(n, size, this->between(0, 2) != 0);
  const auto from = buffers(team, data, at);
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(bytes)), at);
  const std::size_t unit = std::max<std::size_t>(16 / size, 1), units = (count + unit - 1) / unit;
  const auto first = [&](std::uint32_t m) { return std::min(count, units * m / n * unit); };
  const std::uint64_t room = Members::area_bytes / 2;  // windows: what comes in, then results
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::ExchangeCombineParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.sources = p.destinations = n;
    p.second_barrier = true;
    p.count = first(m + 1) - first(m);
    if (zero_copy) {
      for (std::uint32_t k = 0; k < n; ++k) {
        p.source[k] = address(from[k]) + first(m) * size;
        p.destination[k] = address((in_place ? from : to)[k]) + first(m) * size;
      }
    } else {
      p.parity = Members::parity();
      p.ins = p.outs = n;
      for (std::uint32_t k = 0; k < n; ++k) {
        const std::uint64_t start = first(k) * size, length = (first(k + 1) - first(k)) * size;
        p.in[k] = {address(from[m]) + start, team.area(m) + start, length};
        p.out[k] = {team.area(m) + room + start, address(to[m]) + start, length};
        p.source[k] = team.area(k) + first(m) * size;
        p.destination[k] = team.area(k) + room + first(m) * size;
      }
      p.destination_parity = true;
    }
    team.kernels(m).exchange_combine(team.stream(m), op, element, p, blocks);
  });
  expect_done(team, values);
  const Bytes expected = significant(element, fold(op, element, data, 0, n));
  for (std::uint32_t m = 0; m < n; ++m) {
    ASSERT_EQ(significant(element, (in_place ? from : to)[m].bytes()), expected)
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks << " blocks";
    if (!in_place) {
      ASSERT_EQ(from[m].bytes(), data[m]);
    }
  }
}

// Chunks are small, so that there are many of them, and each place of a window is used again and again.
template <class Kind>
void TeamTest<Kind>::pipelined_reduction(Members& team, Op op, Element element, std::size_t count, unsigned blocks) {
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element);
  const std::uint64_t chunk = 16 * static_cast<std::uint64_t>(this->between(1, 100));
  ASSERT_LE(kernel::pipelined_window_bytes(blocks, n, chunk), 2 * Members::area_bytes);
  const bool in_place = this->between(0, 1) == 0;
  enum class What { all_reduce, reduce, reduce_scatter };
  const auto what = static_cast<What>(this->between(0, 2));
  const auto root = static_cast<std::uint32_t>(this->between(0, n - 1));
  // Shares of equal whole vectors, or any, some of them nothing.
  std::vector<std::size_t> start{0};
  if (this->between(0, 1) == 0) {
    const std::size_t each = (count * size + 16 * n - 1) / (16 * n) * 16 / size;
    for (std::uint32_t m = 1; m < n; ++m) start.push_back(std::min(count, m * each));
  } else {
    for (std::uint32_t m = 1; m < n; ++m) start.push_back(random_() % (count + 1));
    std::sort(start.begin(), start.end());
  }
  start.push_back(count);
  const auto data = elements(n, element, count);
  const auto from = buffers(team, data, shifts(n, size, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(count * size)), shifts(n, size, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::PipelinedReductionParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.chunk_bytes = chunk;
    p.from = address(from[m]);
    for (std::uint32_t k = 0; k < n; ++k) {
      const bool wants = what == What::all_reduce || k == (what == What::reduce ? root : m);
      if (wants) p.result[p.results++] = address((in_place ? from : to)[k]);
      p.shard_begin[k] = start[k] * size;
      p.shard_bytes[k] = (start[k + 1] - start[k]) * size;
      p.window[k] = team.area(k);
    }
    team.kernels(m).pipelined_reduction(team.stream(m), op, element, p, blocks);
  });
  expect_done(team, values);
  const Bytes result = fold(op, element, data, 0, n);
  for (std::uint32_t m = 0; m < n; ++m) {
    Bytes expected = in_place ? data[m] : Bytes(count * size);
    const std::size_t whole = what == What::all_reduce || (what == What::reduce && m == root) ? 1 : 0;
    const std::size_t first = what == What::reduce_scatter ? start[m] : 0;
    const std::size_t last = what == What::reduce_scatter ? start[m + 1] : whole * count;
    std::copy(result.begin() + static_cast<std::ptrdiff_t>(first * size),
              result.begin() + static_cast<std::ptrdiff_t>(last * size),
              expected.begin() + static_cast<std::ptrdiff_t>(first * size));
    ASSERT_EQ(significant(element, (in_place ? from : to)[m].bytes()), significant(element, expected))
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks
        << " blocks, chunks of " << chunk << ", kind " << static_cast<int>(what);
    if (!in_place) {
      ASSERT_EQ(from[m].bytes(), data[m]);
    }
  }
}

// Sizes of their own for every pair, some of them 0.
template <class Kind>
void TeamTest<Kind>::all_to_all(Members& team, unsigned blocks, bool low_latency) {
  const std::uint32_t n = team.count();
  // Of a few windows, of one, of some bytes: chunks of pairs differ in number.
  const auto granules = static_cast<std::size_t>(Members::parity() / kernel::pairwise_window_bytes(blocks, n, 16));
  const std::size_t chunk = 16 * std::min<std::size_t>(granules, std::size_t{1} << this->between(0, 10));
  const std::size_t most = low_latency ? Members::slot_bytes / 2 : chunk * blocks * 5 + 100;
  std::vector<std::vector<std::size_t>> bytes(n, std::vector<std::size_t>(n));
  std::vector<Bytes> data, expected(n);
  for (auto& row : bytes)
    for (auto& one : row) one = this->between(0, 3) == 0 ? 0 : some_count(most);
  const auto start = [&](std::uint32_t m, std::uint32_t p) {
    return std::accumulate(bytes[m].begin(), bytes[m].begin() + p, std::size_t{0});
  };
  for (std::uint32_t m = 0; m < n; ++m) data.push_back(pattern(start(m, n), random_()));
  for (std::uint32_t m = 0; m < n; ++m) {
    for (std::uint32_t p = 0; p < n; ++p) {
      const auto begin = data[p].begin() + static_cast<std::ptrdiff_t>(start(p, m));
      expected[m].insert(expected[m].end(), begin, begin + static_cast<std::ptrdiff_t>(bytes[p][m]));
    }
  }
  std::vector<Bytes> empty;
  for (const auto& one : expected) empty.emplace_back(one.size());
  const auto from = buffers(team, data, shifts(n, 4, false)), to = buffers(team, empty, shifts(n, 8, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    const auto fill = [&](auto& p) {
      p.frame = team.frame(m);
      values[m] = p.frame.done_value;
      std::uint64_t at = address(to[m]);
      for (std::uint32_t k = 0; k < n; ++k) {
        p.send[k] = {address(from[m]) + start(m, k), 0, bytes[m][k]};
        p.receive[k] = {0, at, bytes[k][m]};
        at += bytes[k][m];
      }
    };
    if (low_latency) {
      kernel::LowLatencyMoveParameters p{};
      fill(p);
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = team.low_latency(k);
      team.kernels(m).low_latency_move(team.stream(m), p, blocks);
    } else {
      kernel::PairwiseMoveParameters p{};
      fill(p);
      p.parity = Members::parity();
      p.chunk_bytes = chunk;
      for (std::uint32_t k = 0; k < n; ++k) p.window[k] = team.area(k);
      team.kernels(m).pairwise_move(team.stream(m), p, blocks);
    }
  });
  expect_done(team, values);
  for (std::uint32_t m = 0; m < n; ++m) {
    ASSERT_EQ(to[m].bytes(), expected[m])
        << "member " << m << " of " << n << ", " << blocks << " blocks, chunks of " << chunk;
    ASSERT_EQ(from[m].bytes(), data[m]);
  }
}

// Through windows, or pushed straight into peers' buffers.
template <class Kind>
void TeamTest<Kind>::exchange_all_gather(Members& team, unsigned blocks, bool push) {
  const std::uint32_t n = team.count();
  std::vector<Bytes> data;
  Bytes expected;
  std::vector<std::size_t> start;
  for (std::uint32_t m = 0; m < n; ++m) {
    data.push_back(pattern(some_count(100'000), random_()));
    start.push_back(expected.size());
    expected.insert(expected.end(), data[m].begin(), data[m].end());
  }
  const auto from = buffers(team, data, shifts(n, 4, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(expected.size())), shifts(n, 4, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::ExchangeMoveParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.moves = n;
    p.end_barrier = push;
    if (!push) {
      p.parity = Members::parity();
      p.ins = 1;
      p.in[0] = {address(from[m]), team.area(m), data[m].size()};
    }
    for (std::uint32_t k = 0; k < n; ++k) {
      p.move[k] = push ? kernel::Move{address(from[m]), address(to[k]) + start[m], data[m].size()}
                       : kernel::Move{team.area(k), address(to[m]) + start[k], data[k].size()};
    }
    team.kernels(m).exchange_move(team.stream(m), p, blocks);
  });
  expect_done(team, values);
  for (std::uint32_t m = 0; m < n; ++m) {
    ASSERT_EQ(to[m].bytes(), expected) << "member " << m << " of " << n << ", " << blocks << " blocks";
    ASSERT_EQ(from[m].bytes(), data[m]);
  }
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
      }
      if (defined(op, element)) continue;
      EXPECT_THROW(team.kernels(0).exchange_combine(team.stream(0), op, element, {}, 1), base::Error);
      EXPECT_THROW(team.kernels(0).low_latency_combine(team.stream(0), op, element, {}, 1), base::Error);
    }
  }
}

// Who sends what to whom in each collective: reduce, reduce-scatter-block (out of place, and in place as MPI has it),
// scan, exscan. Who has nothing for a peer sends a token.
TYPED_TEST(TeamTest, LowLatencyCollectives) {
  enum class What { reduce, reduce_scatter, reduce_scatter_in_place, scan, exscan };
  for (int i = 0; i < 150; ++i) {
    const auto what = static_cast<What>(i % 5);
    Members& team = this->members(this->some_members());
    const std::uint32_t n = team.count(), root = static_cast<std::uint32_t>(this->between(0, n - 1)),
                        all = (1U << n) - 1;
    const Element element = i % 3 == 0 ? Element::f64_i32 : i % 3 == 1 ? Element::i16 : Element::f32;
    const Op op = i % 3 == 0 ? Op::minloc : Op::sum;
    const std::size_t size = kernel::bytes_of(element), count = this->some_count(2000 / size), bytes = count * size;
    const bool scatter = what == What::reduce_scatter || what == What::reduce_scatter_in_place;
    const std::size_t pieces = scatter ? n : 1;
    const unsigned blocks = this->some_blocks();
    const auto data = this->elements(n, element, count * pieces);
    const auto from = this->buffers(team, data, this->shifts(n, size, false));
    const auto to = this->buffers(team, std::vector<Bytes>(n, Bytes(bytes)), this->shifts(n, size, false));
    team.run(this->order(n), [&](std::uint32_t m) {
      kernel::LowLatencyCombineParameters p{};
      p.frame = team.frame(m);
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = team.low_latency(k);
      p.from = this->address(from[m]);
      p.from_stride = scatter ? bytes : 0;
      p.to = what == What::reduce_scatter_in_place ? p.from : this->address(to[m]);
      p.count = count;
      const std::uint32_t below = (1U << m) - 1, own = 1U << m;
      switch (what) {
        case What::reduce:
          p.send_to = 1U << root;
          p.receive_from = m == root ? all : 0;
          break;
        case What::scan:
          p.send_to = all & ~below;
          p.receive_from = below | own;
          break;
        case What::exscan:
          p.send_to = all & ~below & ~own;
          p.receive_from = below;
          break;
        default:
          p.send_to = p.receive_from = all;
      }
      team.kernels(m).low_latency_combine(team.stream(m), op, element, p, blocks);
    });
    for (std::uint32_t m = 0; m < n; ++m) {
      ASSERT_EQ(team.failed(m), 0U);
      const std::size_t terms = what == What::scan ? m + 1 : what == What::exscan ? m : n;
      Bytes expected(bytes);  // untouched
      if (terms != 0 && (what != What::reduce || m == root)) {
        std::vector<Bytes> parts;
        for (const auto& one : data) {
          const auto begin = one.begin() + static_cast<std::ptrdiff_t>(scatter ? m * bytes : 0);
          parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(bytes));
        }
        expected = this->fold(op, element, parts, 0, terms);
      }
      Bytes found = what == What::reduce_scatter_in_place ? from[m].bytes() : to[m].bytes();
      found.resize(bytes);
      ASSERT_EQ(significant(element, found), significant(element, expected))
          << "case " << i << " of " << count << " at member " << m << " of " << n << ", root " << root;
    }
  }
}

TYPED_TEST(TeamTest, LowLatencyAllToAllInPlace) {
  for (int i = 0; i < 50; ++i) {
    Members& team = this->members(this->some_members());
    const std::uint32_t n = team.count();
    const std::size_t bytes = this->some_count(3000);
    const unsigned blocks = this->some_blocks();
    std::vector<Bytes> data;
    for (std::uint32_t m = 0; m < n; ++m) data.push_back(pattern(n * bytes, this->random_()));
    const auto buffers = this->buffers(team, data, this->shifts(n, 4, false));
    team.run(this->order(n), [&](std::uint32_t m) {
      kernel::LowLatencyMoveParameters p{};
      p.frame = team.frame(m);
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) {
        const std::uint64_t at = this->address(buffers[m]) + k * bytes;
        p.low_latency[k] = team.low_latency(k);
        p.send[k] = {at, 0, bytes};
        p.receive[k] = {0, at, bytes};
      }
      team.kernels(m).low_latency_move(team.stream(m), p, blocks);
    });
    for (std::uint32_t m = 0; m < n; ++m) {
      Bytes expected;
      for (std::uint32_t k = 0; k < n; ++k) {
        const auto begin = data[k].begin() + static_cast<std::ptrdiff_t>(m * bytes);
        expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
      }
      ASSERT_EQ(buffers[m].bytes(), expected) << "member " << m << " of " << n;
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
  }
}

// Sizes that only the two members of a pair know, from nothing to several chunks; one kernel after another.
TYPED_TEST(TeamTest, PairwiseMoves) {
  for (int i = 0; i < 200 / CROSSLANE_TESTS_FEWER; ++i) {
    this->pairwise_all_to_all(this->members(this->some_members()), this->some_blocks());
    if (this->HasFatalFailure()) return;
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
  for (int kind = 0; kind < 7; ++kind) {
    for (const bool aborted : {false, true}) {
      constexpr std::uint32_t n = 3;
      Members team(this->driver(), n, std::is_same_v<TypeParam, Emulated> ? 0 : 1);
      team.limit_nanoseconds = aborted ? ~std::uint64_t{0} : 20'000'000;
      const std::uint32_t missing = static_cast<std::uint32_t>(this->between(0, n - 1));
      std::vector<std::uint64_t> values(n);
      const auto buffers = this->buffers(team, std::vector<Bytes>(n, Bytes(8192)), {0, 0, 0});
      for (std::uint32_t m = 0; m < n; ++m) {
        if (m == missing) continue;
        const auto scope = team.enter(m);
        kernel::Frame frame = team.frame(m);
        values[m] = frame.done_value;
        const auto low_latency = [&](auto& p) {
          p.frame = frame;
          p.slot_bytes = Members::slot_bytes;
          for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = team.low_latency(k);
        };
        const std::uint64_t mine = this->address(buffers[m]);
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
          for (std::uint32_t k = 0; k < n; ++k) {
            p.shard_begin[k] = k * 1024;
            p.shard_bytes[k] = 1024;
            p.result[k] = this->address(buffers[k]) + 4096;
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
          if (kind == 3) {
            for (std::uint32_t k = 0; k < n; ++k) {
              p.send[k] = {mine, 0, 1000};
              p.receive[k] = {0, mine + 2048 * (k + 1), 1000};
            }
          }  // else: tokens alone
          team.kernels(m).low_latency_move(team.stream(m), p, 4);
        }
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

// Flags of 32 bits: 0 is left out, and what an old launch left behind is replaced before it looks new again.
TYPED_TEST(TeamTest, LowLatencyEpochs) {
  constexpr std::uint32_t n = 3;
  Members team(this->driver(), n, std::is_same_v<TypeParam, Emulated> ? 0 : 1);
  const auto set_epoch = [&](std::uint64_t epoch) {
    for (std::uint32_t m = 0; m < n; ++m) {
      auto control = team.read_control(m);
      control.low_latency_launches = epoch;
      team.write_control(m, control);
    }
  };
  constexpr std::uint64_t wrap = std::uint64_t{1} << 32, period = std::uint64_t{1} << 30;
  for (const std::uint64_t start : {wrap - 3, 2 * wrap - 2}) {
    set_epoch(start);
    for (int i = 0; i < 6; ++i) this->low_latency_all_reduce(team, Op::sum, Element::f32, 1000, 2);
    if (this->HasFatalFailure()) return;
    EXPECT_EQ(team.read_control(0).low_latency_launches, start + 6);
  }
  // Two launches that fill the slots, two that refresh them, whatever they carry: no old flag is left.
  constexpr std::uint32_t old = 40;
  set_epoch(old);
  for (int i = 0; i < 2; ++i) this->low_latency_all_reduce(team, Op::sum, Element::f32, Members::slot_bytes / 8, 2);
  const auto flags_of = [&](std::uint32_t m) {
    std::map<std::uint32_t, std::size_t> counts;
    const auto scope = team.enter(m);
    const Bytes area =
        read(this->driver(), reinterpret_cast<const void*>(team.low_latency(m)), 2 * n * Members::slot_bytes);
    for (std::size_t at = 4; at < area.size(); at += 8) {
      const bool own = at / Members::slot_bytes % n == m;
      std::uint32_t flag = 0;
      std::memcpy(&flag, area.data() + at, 4);
      if (!own) ++counts[flag];
    }
    return counts;
  };
  constexpr std::size_t halves = Members::slot_bytes / 8 * (n - 1);
  for (std::uint32_t m = 0; m < n; ++m)
    EXPECT_EQ(flags_of(m), (std::map<std::uint32_t, std::size_t>{{old + 1, halves}, {old + 2, halves}}));
  for (const bool move : {false, true}) {
    set_epoch(period * (move ? 2 : 1));
    for (int i = 0; i < 2; ++i) {
      if (move) {
        this->low_latency_all_to_all(team, 3);
      } else {
        this->low_latency_all_reduce(team, Op::sum, Element::f32, 5, 2);
      }
    }
    const auto flag = static_cast<std::uint32_t>(period * (move ? 2 : 1));
    for (std::uint32_t m = 0; m < n; ++m)
      EXPECT_EQ(flags_of(m), (std::map<std::uint32_t, std::size_t>{{flag + 1, halves}, {flag + 2, halves}}));
  }
}

// Counters and parities go on through any sequence of kernels, blocks and members.
TYPED_TEST(TeamTest, LongSequences) {
  constexpr int launches = 1000 / CROSSLANE_TESTS_FEWER;
  std::map<std::uint32_t, std::uint64_t> launched;
  for (int i = 0; i < launches; ++i) {
    const std::uint32_t n = i % 3 == 0 ? 2 : i % 3 == 1 ? 5 : 8;
    Members& team = this->members(n);
    ++launched[n];
    const unsigned blocks = this->some_blocks();
    switch (this->between(0, 9)) {
      case 0:
        this->low_latency_all_reduce(team, Op::sum, Element::f32, this->some_count(4096), blocks);
        break;
      case 1:
        this->low_latency_all_reduce(team, Op::prod, Element::c128, this->some_count(1024), blocks);
        break;
      case 2:
        this->low_latency_all_to_all(team, blocks);
        break;
      case 3:
        this->exchange_all_gather(team, blocks, this->between(0, 1) == 0);
        break;
      case 4:
        this->exchange_one_shot(team, Op::sum, Element::f64, this->some_count(5000), blocks);
        break;
      case 5:
        this->pipelined_reduction(team, Op::sum, Element::f32, this->some_count(20'000), blocks);
        break;
      case 6:
      case 7:
        this->pairwise_all_to_all(team, blocks);
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
