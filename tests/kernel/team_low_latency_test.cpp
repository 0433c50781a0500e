// Words that carry flags: who sends what to whom in each collective, in place, and after 2^32 launches, against the host.
#include "team_combining.h"
#include "team_moving.h"

namespace crosslane::test {
namespace {

template <class Kind>
class TeamLowLatencyTest : public TeamTest<Kind> {};
TYPED_TEST_SUITE(TeamLowLatencyTest, Machines, MachineNames);

// Who sends what to whom in each collective: reduce, reduce-scatter-block (out of place, and in place as MPI has it),
// scan, exscan. Who has nothing for a peer sends a token.
TYPED_TEST(TeamLowLatencyTest, Collectives) {
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

TYPED_TEST(TeamLowLatencyTest, AllToAllInPlace) {
  for (int i = 0; i < 50; ++i) {
    Members& team = this->members(this->some_members());
    const std::uint32_t n = team.count();
    const std::size_t bytes = this->some_count(3000);
    const unsigned blocks = this->some_blocks();
    const bool in_lines = i % 2 == 1;
    std::vector<Bytes> data;
    for (std::uint32_t m = 0; m < n; ++m) data.push_back(pattern(n * bytes, this->random_()));
    const auto buffers = this->buffers(team, data, this->shifts(n, 4, false));
    team.run(this->order(n), [&](std::uint32_t m) {
      kernel::LowLatencyMoveParameters p{};
      p.frame = team.frame(m);
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) {
        const std::uint64_t at = this->address(buffers[m]) + k * bytes;
        p.low_latency[k] = in_lines ? team.lines(k) : team.low_latency(k);
        p.send[k] = {at, 0, bytes};
        p.receive[k] = {0, at, bytes};
      }
      if (in_lines) {
        team.kernels(m).low_latency_move<kernel::Lines>(team.stream(m), p, blocks);
      } else {
        team.kernels(m).low_latency_move<kernel::Packets>(team.stream(m), p, blocks);
      }
    });
    for (std::uint32_t m = 0; m < n; ++m) {
      Bytes expected;
      for (std::uint32_t k = 0; k < n; ++k) {
        const auto begin = data[k].begin() + static_cast<std::ptrdiff_t>(m * bytes);
        expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
      }
      ASSERT_EQ(buffers[m].bytes(), expected) << "member " << m << " of " << n << (in_lines ? ", in lines" : "");
    }
  }
}

// Blocks of one length, from whom and to whom it may be: all or one of what is sent, and what nobody sends stays as it was.
TYPED_TEST(TeamLowLatencyTest, EvenMoves) {
  for (int i = 0; i < 200; ++i) {
    Members& team = this->members(this->some_members());
    const std::uint32_t n = team.count();
    const bool in_lines = i % 2 == 1, one_for_all = this->between(0, 1) == 0, numbers = i % 4 < 2;
    const std::size_t most =
        in_lines ? kernel::Lines::payload(Members::slot_bytes) : kernel::Packets::payload(Members::slot_bytes);
    const std::size_t some = this->some_count(most), bytes = numbers ? some / 4 * 4 : some;
    const unsigned blocks = this->some_blocks();
    // Everybody to everybody, from one, to one, or any.
    const std::int64_t kind = this->between(0, 3), root = this->between(0, n - 1);
    std::vector<std::uint32_t> send_to(n, 0), receive_from(n, 0);
    for (std::uint32_t a = 0; a < n && bytes != 0; ++a) {
      for (std::uint32_t b = 0; b < n; ++b) {
        const bool goes = kind == 0 || (kind == 1 && a == root) || (kind == 2 && b == root) ||
                          (kind == 3 && this->between(0, 2) != 0);
        send_to[a] |= (goes ? 1U : 0U) << b;
        receive_from[b] |= (goes ? 1U : 0U) << a;
      }
    }
    std::vector<Bytes> data, before;
    for (std::uint32_t m = 0; m < n; ++m) {
      data.push_back(pattern(one_for_all ? bytes : n * bytes, this->random_()));
      before.push_back(pattern(n * bytes + 8, this->random_()));
    }
    const auto from = this->buffers(team, data, this->shifts(n, 4, false)),
               to = this->buffers(team, before, this->shifts(n, 4, false));
    std::vector<std::uint64_t> values(n);
    team.run(this->order(n), [&](std::uint32_t m) {
      kernel::LowLatencyEvenParameters p{};
      p.frame = team.frame(m);
      values[m] = p.frame.done_value;
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = in_lines ? team.lines(k) : team.low_latency(k);
      p.from = this->address(from[m]);
      p.from_stride = one_for_all ? 0 : bytes;
      p.to = this->address(to[m]);
      p.to_stride = p.bytes = bytes;
      p.send_to = send_to[m];
      p.receive_from = receive_from[m];
      if (in_lines) {
        team.kernels(m).low_latency_move<kernel::Lines>(team.stream(m), p, blocks);
      } else {
        team.kernels(m).low_latency_move<kernel::Packets>(team.stream(m), p, blocks);
      }
    });
    this->expect_done(team, values);
    for (std::uint32_t m = 0; m < n; ++m) {
      Bytes expected = before[m];
      for (std::uint32_t k = 0; k < n; ++k) {
        if ((receive_from[m] >> k & 1) == 0) continue;
        const auto begin = data[k].begin() + static_cast<std::ptrdiff_t>(one_for_all ? 0 : m * bytes);
        std::copy(begin, begin + static_cast<std::ptrdiff_t>(bytes),
                  expected.begin() + static_cast<std::ptrdiff_t>(k * bytes));
      }
      ASSERT_EQ(to[m].bytes(), expected) << "case " << i << ": " << bytes << " bytes at member " << m << " of " << n
                                         << (in_lines ? ", in lines" : "");
    }
  }
}

// Flags of 32 bits: 0 is left out, and what an old launch left behind is replaced before it looks new again.
TYPED_TEST(TeamLowLatencyTest, Epochs) {
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
  for (const std::uint64_t round : {1, 2, 3}) {
    set_epoch(period * round);
    for (int i = 0; i < 2; ++i) {
      // Lines have epochs of their own.
      this->line_all_to_all(team, 2);
      if (round == 3) {
        this->low_latency_shares(team, Op::sum, Element::f32, 100, 3);
      } else if (round == 2) {
        this->low_latency_all_to_all(team, 3);
      } else {
        this->low_latency_all_reduce(team, Op::sum, Element::f32, 5, 2);
      }
    }
    const auto flag = static_cast<std::uint32_t>(period * round);
    for (std::uint32_t m = 0; m < n; ++m)
      EXPECT_EQ(flags_of(m), (std::map<std::uint32_t, std::size_t>{{flag + 1, halves}, {flag + 2, halves}}));
  }
}

}  // namespace
}  // namespace crosslane::test
