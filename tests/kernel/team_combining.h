// The ways in which a team's kernels combine elements, each on random counts, alignments and orders of arrival, against the host.
#pragma once

#include "team_fixture.h"

namespace crosslane::test {

// Where each member's share begins, and behind them the end: shares of equal whole vectors, or any, some of them nothing.
template <class Kind>
std::vector<std::size_t> TeamTest<Kind>::starts_of_shares(std::uint32_t n, std::size_t size, std::size_t count) {
  std::vector<std::size_t> start{0};
  if (this->between(0, 1) == 0) {
    const std::size_t each = (count * size + 16 * n - 1) / (16 * n) * 16 / size;
    for (std::uint32_t m = 1; m < n; ++m) start.push_back(std::min(count, m * each));
  } else {
    for (std::uint32_t m = 1; m < n; ++m) start.push_back(random_() % (count + 1));
    std::sort(start.begin(), start.end());
  }
  start.push_back(count);
  return start;
}

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

// Shares of any size, some of them nothing, whose results some members want, or each its own alone.
template <class Kind>
void TeamTest<Kind>::low_latency_shares(Members& team, Op op, Element element, std::size_t count, unsigned blocks) {
  using Wire = kernel::Packets;
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element);
  const bool in_place = this->between(0, 1) == 0, scatters = this->between(0, 3) == 0;
  const auto start = starts_of_shares(n, size, count);
  std::uint32_t takers = scatters ? 0 : n == 32 ? ~0U : (1U << n) - 1;
  if (this->between(0, 1) == 0) takers = random_() & takers;
  std::size_t largest = 0;
  for (std::uint32_t m = 0; m < n; ++m) largest = std::max(largest, (start[m + 1] - start[m]) * size);
  ASSERT_LE(2 * Wire::units_of(largest), Members::slot_bytes / 16);
  const auto data = elements(n, element, count);
  const auto from = buffers(team, data, shifts(n, size, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(count * size)), shifts(n, size, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::LowLatencySharesParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.slot_bytes = Members::slot_bytes;
    p.units = Wire::units_of(largest);
    p.takers = takers;
    p.from = address(from[m]);
    p.to = in_place ? p.from : address(to[m]);
    if (scatters || (takers >> m & 1) != 0) p.own_to = p.to + start[m] * size;
    for (std::uint32_t k = 0; k < n; ++k) {
      p.low_latency[k] = team.low_latency(k);
      p.share_begin[k] = start[k] * size;
      p.share_bytes[k] = (start[k + 1] - start[k]) * size;
    }
    team.kernels(m).low_latency_shares(team.stream(m), op, element, p, blocks);
  });
  expect_done(team, values);
  const Bytes result = fold(op, element, data, 0, n);
  for (std::uint32_t m = 0; m < n; ++m) {
    Bytes expected = (takers >> m & 1) != 0 ? result : in_place ? data[m] : Bytes(count * size);
    if (scatters)
      std::copy_n(result.data() + start[m] * size, (start[m + 1] - start[m]) * size, expected.data() + start[m] * size);
    ASSERT_EQ(significant(element, (in_place ? from : to)[m].bytes()), significant(element, expected))
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks
        << " blocks, takers " << takers << (scatters ? ", scattered" : "");
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
  // Each member combines its share, from and into everybody's buffers or windows, or keeps its result.
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element), bytes = count * size;
  const bool in_place = zero_copy && this->between(0, 1) == 0, scatters = zero_copy && this->between(0, 2) == 0;
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
      if (scatters) {
        p.destination[0] = p.destination[m];
        p.destinations = 1;
        p.own_results = true;
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
  const Bytes result = fold(op, element, data, 0, n);
  for (std::uint32_t m = 0; m < n; ++m) {
    Bytes expected = !scatters ? result : in_place ? data[m] : Bytes(bytes);
    if (scatters)
      std::copy_n(result.data() + first(m) * size, (first(m + 1) - first(m)) * size, expected.data() + first(m) * size);
    ASSERT_EQ(significant(element, (in_place ? from : to)[m].bytes()), significant(element, expected))
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks << " blocks"
        << (scatters ? ", scattered" : "");
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
  // Whose root tells where its results belong, or not; whose members tell where their parts are, alike or not.
  enum class What { all_reduce, reduce, collected_reduce, landed_reduce, told_reduce, read_reduce, reduce_scatter };
  auto what = static_cast<What>(this->between(0, 6));
  const bool reads = what == What::read_reduce, tells = reads || what == What::told_reduce;
  const bool landed = what == What::told_reduce || what == What::landed_reduce;
  if (reads) what = What::reduce;
  if (landed) what = What::collected_reduce;
  const std::uint64_t number = this->between(0, kernel::Landing::most_buffers - 1), offset = this->between(0, 100'000);
  const auto root = static_cast<std::uint32_t>(this->between(0, n - 1));
  // Who tells of no place, if anybody; else each tells of one in a buffer of its own choice.
  const auto silent = static_cast<std::uint32_t>(this->between(0, 2 * n));
  const bool known = silent >= n;
  auto start = starts_of_shares(n, size, count);
  const bool to_root = what == What::reduce || what == What::collected_reduce;
  // The root combines all by itself.
  if (reads)
    for (std::uint32_t m = 0; m < n; ++m) start[m] = m <= root ? 0 : count;
  if (what == What::collected_reduce) {
    // Who collects has no share; what would be its own is its successor's, or its predecessor's.
    if (root + 1 == n) {
      start[root] = count;
    } else {
      start[root + 1] = start[root];
    }
    if (n == 1) return;
  }
  const auto data = elements(n, element, count);
  const auto from = buffers(team, data, shifts(n, size, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(count * size)), shifts(n, size, false));
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::PipelinedReductionParameters p{};
    p.collector = what == What::collected_reduce ? root : kernel::most_members;
    if (what == What::collected_reduce && m != root) p.results = 1;
    if (landed) p.landing.base[number] = address((in_place ? from : to)[root]) - offset;
    if (landed && m == root) p.landing.told = kernel::Landing::word(number, offset);
    p.tells = tells;
    if (tells) {
      const auto buffer = [n](std::uint32_t k) { return k % kernel::Parts::most_buffers(n); };
      if (m != silent) p.parts.told = kernel::Landing::word(buffer(m), 16 * m);
      for (std::uint32_t k = 0; k < n; ++k) p.parts.base[buffer(k) * n + k] = address(from[k]) - 16 * k;
    }
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.chunk_bytes = chunk;
    p.from = address(from[m]);
    for (std::uint32_t k = 0; k < n; ++k) {
      const bool reached = what != What::collected_reduce || m == root;
      const bool wants = what == What::all_reduce || k == (to_root ? root : m);
      if (wants && reached) p.result[p.results++] = address((in_place ? from : to)[k]);
      p.shard_begin[k] = start[k] * size;
      p.shard_bytes[k] = (start[k + 1] - start[k]) * size;
      // What is not to be used is not there.
      p.window[k] = tells && known ? 0 : team.area(k);
    }
    team.kernels(m).pipelined_reduction(team.stream(m), op, element, p, blocks);
  });
  expect_done(team, values);
  const Bytes result = fold(op, element, data, 0, n);
  for (std::uint32_t m = 0; m < n; ++m) {
    Bytes expected = in_place ? data[m] : Bytes(count * size);
    const std::size_t whole = what == What::all_reduce || (to_root && m == root) ? 1 : 0;
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

// Along a ring of at least three. Chunks and rounds are small, so that places are used again and again.
template <class Kind>
void TeamTest<Kind>::ring(Members& team, Op op, Element element, std::size_t count, unsigned blocks) {
  const std::uint32_t n = team.count();
  const std::size_t size = kernel::bytes_of(element);
  enum class What { all_reduce, reduce, reduce_scatter, all_gather, broadcast };
  const auto what = static_cast<What>(this->between(0, 4));
  const bool combining = what != What::all_gather && what != What::broadcast;
  const bool one_shard = what == What::reduce || what == What::broadcast;
  const bool in_place = what == What::broadcast || this->between(0, 1) == 0;
  const auto root = static_cast<std::uint32_t>(this->between(0, n - 1));
  const std::uint64_t chunk = 16 * static_cast<std::uint64_t>(this->between(1, 60));
  const auto round = static_cast<std::uint32_t>(this->between(1, 5));
  const auto places = round + static_cast<std::uint32_t>(this->between(1, 3));
  ASSERT_LE(kernel::ring_window_bytes(blocks, places, chunk), 2 * Members::area_bytes);
  // As MPI has it in place: the result where the first of equal shares was.
  const bool over_first = what == What::reduce_scatter && in_place && this->between(0, 1) == 0;
  if (over_first) count = count / n * n;
  auto start = starts_of_shares(n, size, count);
  if (over_first) {
    for (std::uint32_t s = 0; s <= n; ++s) start[s] = s * (count / n);
  }
  const auto data = elements(n, element, count);
  const auto from = buffers(team, data, shifts(n, size, false));
  const auto to = buffers(team, std::vector<Bytes>(n, Bytes(count * size)), shifts(n, size, false));
  const auto& results = in_place ? from : to;
  // Where shard s starts.
  const auto starter = [&](std::uint32_t s) {
    return what == What::reduce ? (root + 1) % n : what == What::broadcast ? root : (s + (combining ? 1 : 0)) % n;
  };
  std::vector<std::uint64_t> values(n);
  team.run(order(n), [&](std::uint32_t m) {
    kernel::RingParameters p{};
    p.frame = team.frame(m);
    values[m] = p.frame.done_value;
    p.chunk_bytes = chunk;
    p.round = round;
    p.places = places;
    p.from = address(from[m]);
    p.result = what == What::reduce && m != root ? 0 : address(results[m]);
    if (over_first) p.result -= start[m] * size;
    p.next_result = address(results[(m + 1) % n]);
    p.window = team.area(m);
    p.next_window = team.area((m + 1) % n);
    p.shards = one_shard ? 1 : n;
    p.starter = starter(0);
    p.complete = combining ? n - 1 : 0;
    p.end = what == What::all_reduce ? 2 * n - 2 : n - 1;
    for (std::uint32_t s = 0; s < p.shards; ++s) {
      p.shard_begin[s] = one_shard ? 0 : start[s] * size;
      p.shard_bytes[s] = one_shard ? count * size : (start[s + 1] - start[s]) * size;
    }
    if (combining) {
      team.kernels(m).ring_reduction(team.stream(m), op, element, p, blocks);
    } else {
      team.kernels(m).ring_move(team.stream(m), p, blocks);
    }
  });
  expect_done(team, values);
  // Each shard is combined from where it starts on, and lies there whole where nothing is combined.
  Bytes whole(count * size);
  for (std::uint32_t s = 0; s < (one_shard ? 1 : n); ++s) {
    std::vector<Bytes> turned;
    for (std::uint32_t k = 0; k < n; ++k) turned.push_back(data[(starter(s) + k) % n]);
    const Bytes shard = combining ? fold(op, element, turned, 0, n) : turned.front();
    const std::size_t first = one_shard ? 0 : start[s] * size, last = one_shard ? count * size : start[s + 1] * size;
    std::copy_n(shard.data() + first, last - first, whole.data() + first);
  }
  for (std::uint32_t m = 0; m < n; ++m) {
    Bytes expected = in_place ? data[m] : Bytes(count * size);
    const bool takes = what != What::reduce || m == root;
    const std::size_t first = what == What::reduce_scatter ? start[m] * size : 0;
    const std::size_t last = !takes ? 0 : what == What::reduce_scatter ? start[m + 1] * size : count * size;
    if (first < last) std::copy_n(whole.data() + first, last - first, expected.data() + (over_first ? 0 : first));
    ASSERT_EQ(significant(element, results[m].bytes()), significant(element, expected))
        << name_of(op, element) << " of " << count << " at member " << m << " of " << n << ", " << blocks
        << " blocks, chunks of " << chunk << ", rounds of " << round << ", places " << places << ", kind "
        << static_cast<int>(what);
    if (!in_place) {
      ASSERT_EQ(from[m].bytes(), data[m]);
    }
  }
}

}  // namespace crosslane::test
