// The ways in which a team's kernels move bytes, each on random counts, alignments and orders of arrival, against the host.
#pragma once

#include "team_fixture.h"

namespace crosslane::test {

// Sizes of their own for every pair, some of them 0.
template <class Kind>
void TeamTest<Kind>::all_to_all(Members& team, unsigned blocks, Way way) {
  const std::uint32_t n = team.count();
  // Of a few windows, of one, of some bytes: chunks of pairs differ in number.
  const auto granules = static_cast<std::size_t>(Members::parity() / kernel::pairwise_window_bytes(blocks, n, 16));
  const std::size_t chunk = 16 * std::min<std::size_t>(granules, std::size_t{1} << this->between(0, 10));
  const std::size_t most = way == Way::packets ? kernel::Packets::payload(Members::slot_bytes)
                           : way == Way::lines ? kernel::Lines::payload(Members::slot_bytes)
                                               : chunk * blocks * 5 + 100;
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
    if (way != Way::pairwise) {
      kernel::LowLatencyMoveParameters p{};
      fill(p);
      p.slot_bytes = Members::slot_bytes;
      for (std::uint32_t k = 0; k < n; ++k) p.low_latency[k] = way == Way::lines ? team.lines(k) : team.low_latency(k);
      if (way == Way::lines) {
        team.kernels(m).low_latency_move<kernel::Lines>(team.stream(m), p, blocks);
      } else {
        team.kernels(m).low_latency_move<kernel::Packets>(team.stream(m), p, blocks);
      }
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

// Each member but the root reads a part of the root's bytes, and writes it to some members or none.
template <class Kind>
void TeamTest<Kind>::exchange_spread(Members& team, unsigned blocks) {
  const std::uint32_t n = team.count(), root = static_cast<std::uint32_t>(this->between(0, n - 1));
  const std::size_t bytes = some_count(200'000);
  const Bytes data = pattern(bytes, random_());
  const bool alike = this->between(0, 1) == 0;
  std::vector<std::size_t> start{0};
  for (std::uint32_t m = 0; m < n; ++m)
    start.push_back(m + 1 == n ? bytes : std::min(bytes, start.back() + some_count(2 * bytes / n)));
  std::vector<Bytes> contents(n, Bytes(bytes)), expected(n, Bytes(bytes));
  contents[root] = expected[root] = data;
  std::vector<std::vector<std::uint32_t>> goes(n);
  for (std::uint32_t m = 0; m < n; ++m) {
    for (std::uint32_t p = 0; p < n; ++p) {
      if (m == root || p == root || this->between(0, 5) == 0) continue;
      goes[m].push_back(p);
      std::copy(data.begin() + static_cast<std::ptrdiff_t>(start[m]),
                data.begin() + static_cast<std::ptrdiff_t>(start[m + 1]),
                expected[p].begin() + static_cast<std::ptrdiff_t>(start[m]));
    }
  }
  const auto all = buffers(team, contents, shifts(n, 4, alike));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::ExchangeSpreadParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.from = address(all[root]) + start[m];
    p.bytes = start[m + 1] - start[m];
    for (const std::uint32_t to : goes[m]) p.to[p.destinations++] = address(all[to]) + start[m];
    team.kernels(m).exchange_spread(team.stream(m), p, blocks);
  });
  expect_done(team, values);
  for (std::uint32_t m = 0; m < n; ++m)
    ASSERT_EQ(all[m].bytes(), expected[m])
        << "member " << m << " of " << n << ", root " << root << ", " << blocks << " blocks, " << bytes << " bytes";
}

// One member gathers from some others, or scatters to them, in few or many chunks.
template <class Kind>
void TeamTest<Kind>::pushed_move(Members& team, unsigned blocks) {
  const std::uint32_t n = team.count(), root = static_cast<std::uint32_t>(this->between(0, n - 1));
  const bool gathers = this->between(0, 1) == 0;
  const bool lands = gathers && this->between(0, 1) == 0;  // the root tells where
  // Or all others do, each of a buffer of its own choice; one may tell of none.
  const bool tells = !gathers && this->between(0, 1) == 0;
  const auto silent = static_cast<std::uint32_t>(this->between(0, 2 * n));
  const bool known = tells && silent >= n;
  const std::uint64_t number = this->between(0, kernel::Landing::most_buffers - 1), offset = this->between(0, 100'000);
  const auto places = static_cast<std::size_t>(this->between(1, 5));
  const auto granules =
      static_cast<std::size_t>(2 * Members::area_bytes / kernel::pushed_window_bytes(blocks, n, places, 16));
  const std::size_t chunk = 16 * std::min<std::size_t>(granules, std::size_t{1} << this->between(0, 10));
  const std::size_t bytes = some_count(chunk * blocks * 9 + 100);
  std::uint32_t others = 0;
  for (std::uint32_t m = 0; m < n; ++m)
    if (m != root && this->between(0, 4) != 0) others |= 1U << m;
  const bool keeps = this->between(0, 2) == 0;  // the own block is where it belongs
  // The root's array has a block a member; the others' is one.
  std::vector<Bytes> data, expected;
  for (std::uint32_t m = 0; m < n; ++m) data.push_back(pattern(bytes * (m == root ? n : 1), random_()));
  const auto from = buffers(team, data, shifts(n, 4, false));
  std::vector<Bytes> empty;
  for (const Bytes& one : data) empty.emplace_back(one.size());
  expected = empty;
  const auto copy = [&](const Bytes& a, std::size_t at, Bytes& b, std::size_t to) {
    std::copy_n(a.begin() + static_cast<std::ptrdiff_t>(at), bytes, b.begin() + static_cast<std::ptrdiff_t>(to));
  };
  for (std::uint32_t m = 0; m < n; ++m) {
    if ((others >> m & 1) == 0) continue;
    if (gathers) {
      copy(data[m], 0, expected[root], m * bytes);
    } else {
      copy(data[root], m * bytes, expected[m], 0);
    }
  }
  if (!keeps && (others != 0 || lands)) copy(data[root], root * bytes, expected[root], gathers ? root * bytes : 0);
  const auto to = buffers(team, empty, shifts(n, 4, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::PushedMoveParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.bytes = bytes;
    p.chunk_bytes = chunk;
    p.places = places;
    p.root = gathers ? root : kernel::most_members;
    if (lands) p.landing.base[number] = address(to[root]) - offset;
    if (lands && m == root) p.landing.told = kernel::Landing::word(number, offset);
    const bool sends = (m == root) != gathers;
    const std::uint32_t peers = m == root ? others : (others & 1U << m) != 0 ? 1U << root : 0;
    (sends ? p.send_to : p.receive_from) = peers;
    p.tells = tells;
    if (tells) {
      const auto buffer = [n](std::uint32_t k) { return k % kernel::Parts::most_buffers(n); };
      if (m != silent) p.parts.told = kernel::Landing::word(buffer(m), 16 * m);
      for (std::uint32_t k = 0; k < n; ++k) p.parts.base[buffer(k) * n + k] = address(to[k]) - 16 * k;
    }
    for (std::uint32_t k = 0; k < n; ++k) {
      p.window[k] = known ? 0 : team.area(k);  // what is not to be used is not there
      p.user[k] = address((sends ? from : to)[m]) + (m == root ? k * bytes : 0);
    }
    if (m == root && !keeps)
      p.own = {address(from[m]) + root * bytes, address(to[m]) + (gathers ? root * bytes : 0), bytes};
    team.kernels(m).pushed_move(team.stream(m), p, blocks);
  });
  expect_done(team, values);
  for (std::uint32_t m = 0; m < n; ++m) {
    ASSERT_EQ(to[m].bytes(), expected[m])
        << "member " << m << " of " << n << ", root " << root << ", " << bytes << " bytes, chunks of " << chunk << ", "
        << places << " places, " << blocks << " blocks"
        << (lands     ? ", landed"
            : gathers ? ", gathered"
            : known   ? ", told and scattered"
                      : ", scattered");
    ASSERT_EQ(from[m].bytes(), data[m]);
  }
}

}  // namespace crosslane::test
