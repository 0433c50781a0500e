// Which words of a functor's parameters differ from call to call: those that a kernel which stays (lingering.h) is told of each, in an order
// of which both sides know. The others it keeps. It must not know how they come.
#pragma once

#include "kernel/carry.h"
#include "kernel/exchange.h"
#include "kernel/low_latency.h"
#include "kernel/low_latency_shares.h"

#include <cstddef>
#include <cstdint>

namespace crosslane::kernel {

/// A run of such words: so many, and so many more for each member.
struct ToldRun {
  std::uint32_t begin, words, words_a_member;
};

struct ToldRuns {
  ToldRun run[6];
};

CROSSLANE_DEVICE constexpr ToldRuns told_runs(const LowLatencyCombineParameters* /*which*/) {
  using P = LowLatencyCombineParameters;
  return {{{offsetof(P, from) / 8, (sizeof(P) - offsetof(P, from)) / 8, 0}}};
}
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const LowLatencySharesParameters* /*which*/) {
  using P = LowLatencySharesParameters;
  return {{{offsetof(P, from) / 8, 3, 0},
           {offsetof(P, share_begin) / 8, 0, 1},
           {offsetof(P, share_bytes) / 8, 0, 1},
           {offsetof(P, units) / 8, 2, 0}}};
}
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const LowLatencyMoveParameters* /*which*/) {
  using P = LowLatencyMoveParameters;
  return {{{offsetof(P, send) / 8, 0, 3}, {offsetof(P, receive) / 8, 0, 3}}};
}
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const LowLatencyEvenParameters* /*which*/) {
  using P = LowLatencyEvenParameters;
  return {{{offsetof(P, from) / 8, (sizeof(P) - offsetof(P, from)) / 8, 0}}};
}
/// Where there are no more moves than members.
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const ExchangeMoveParameters* /*which*/) {
  using P = ExchangeMoveParameters;
  return {{{offsetof(P, parity) / 8, 3, 0}, {offsetof(P, in) / 8, 0, 3}, {offsetof(P, move) / 8, 0, 3}}};
}
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const ExchangeSpreadParameters* /*which*/) {
  using P = ExchangeSpreadParameters;
  return {{{offsetof(P, from) / 8, 3, 0}, {offsetof(P, to) / 8, 0, 1}}};
}
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const ExchangeCombineParameters* /*which*/) {
  using P = ExchangeCombineParameters;
  return {{{offsetof(P, parity) / 8, 4, 0},
           {offsetof(P, in) / 8, 0, 3},
           {offsetof(P, source) / 8, 0, 1},
           {offsetof(P, destination) / 8, 0, 1},
           {offsetof(P, count) / 8, 1, 0},
           {offsetof(P, out) / 8, 0, 3}}};
}
CROSSLANE_DEVICE constexpr ToldRuns told_runs(const CarryParameters* /*which*/) {
  using P = CarryParameters;
  return {{{(offsetof(P, frame) + offsetof(Frame, done)) / 8, 1, 0}, {offsetof(P, from) / 8, 4, 0}}};
}

/// What a call may bring beyond these: a run of words, as many as those tell of.
struct ToldAlso {
  std::uint32_t begin, words;
};
template <class Parameters>
CROSSLANE_DEVICE constexpr ToldAlso told_also(const Parameters& /*heard*/) {
  return {};
}
CROSSLANE_DEVICE constexpr ToldAlso told_also(const CarryParameters& heard) {
  using P = CarryParameters;
  return {offsetof(P, other) / 8, static_cast<std::uint32_t>(heard.others * sizeof(P::Payload) / 8)};
}
template <class Parameters>
inline constexpr std::uint32_t most_told_also = 0;
template <>
inline constexpr std::uint32_t most_told_also<CarryParameters> = sizeof(CarryParameters::other) / 8;

/// How many there are among so many members, but for those.
template <class Parameters>
CROSSLANE_DEVICE constexpr std::uint32_t told_words(std::uint32_t members) {
  const ToldRuns runs = told_runs(static_cast<const Parameters*>(nullptr));
  std::uint32_t words = 0;
  CROSSLANE_UNROLLED
  for (const ToldRun& run : runs.run) words += run.words + run.words_a_member * members;
  return words;
}

/// The place of number k of them among the words of the parameters.
template <class Parameters>
CROSSLANE_DEVICE constexpr std::uint32_t told_place(std::uint32_t k, std::uint32_t members) {
  const ToldRuns runs = told_runs(static_cast<const Parameters*>(nullptr));
  std::uint32_t before = 0, place = 0;
  CROSSLANE_UNROLLED
  for (const ToldRun& run : runs.run) {
    const std::uint32_t words = run.words + run.words_a_member * members;
    if (k >= before && k < before + words) place = run.begin + k - before;
    before += words;
  }
  return place;
}

}  // namespace crosslane::kernel
