// Preferences of algorithms: what is understood, what is refused and how, and what a call that a preference does not support
// falls through to. It must not know how algorithms run.
#include "collective/choose.h"
#include "collective/describe.h"
#include "collective/frame.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace crosslane;
using namespace crosslane::collective;

std::string refusal(Collective collective, const std::string& text) {
  try {
    (void)parse_preferences("CROSSLANE_TEST", collective, text);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.error_class(), base::ErrorClass::argument);
    return error.what();
  }
  return "";
}

TEST(Preferences, AreRangesOfBytesAndNames) {
  const auto found = parse_preferences("s", Collective::allreduce, "0-4k:ll,4k-1m:one_shot,1m-:two_shot,-2:mpi,ll");
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[0].begin, 0U);
  EXPECT_EQ(found[0].end, 4096U);
  EXPECT_EQ(found[0].algorithm, "ll");
  EXPECT_EQ(found[1].begin, 4096U);
  EXPECT_EQ(found[1].end, std::size_t{1} << 20);
  EXPECT_EQ(found[2].end, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(found[3].begin, 0U);
  EXPECT_EQ(found[3].end, 2U);
  EXPECT_EQ(found[3].algorithm, "mpi");
  EXPECT_EQ(found[4].begin, 0U);  // a name alone is for all sizes
  EXPECT_EQ(found[4].end, std::numeric_limits<std::size_t>::max());
}

TEST(Preferences, HaveCommasInsideParentheses) {
  for (const std::string inner : {"gsb,gsb", "gsb,btb", "btb,gsb", "btb,btb"}) {
    const auto found = parse_preferences("s", Collective::reduce, "0-4k:ll,4k-1m:hierarchy(" + inner + "),gsb");
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[1].row->name, "hierarchy(" + inner + ")");
    EXPECT_EQ(found[1].row->drive(), Drive::host);
    EXPECT_EQ(found[2].row->name, "gsb");
  }
  const std::string told = refusal(Collective::allreduce, "0-4k:ll,4k-:hierarchy(ll,btb),0-:gsb");
  EXPECT_NE(told.find("\"hierarchy(ll,btb)\""), std::string::npos) << told;
  EXPECT_NE(refusal(Collective::allreduce, "hierarchy(gsb").find("hierarchy(gsb"), std::string::npos);
  EXPECT_NE(refusal(Collective::allreduce, "gsb),btb").find("\"gsb)\""), std::string::npos);
}

TEST(Preferences, OfWhatIsNotThereNameSettingAndChoices) {
  for (const std::string text : {"nonsense", "0-:nonsense", "0-4k:", "0-4k:ll,,4k-:ll"}) {
    const std::string told = refusal(Collective::allreduce, text);
    for (const std::string word : {"CROSSLANE_TEST", "allreduce", "ll", "one_shot", "two_shot", "mpi"})
      EXPECT_NE(told.find(word), std::string::npos) << text << ": " << told;
  }
  // An algorithm of another collective.
  EXPECT_NE(refusal(Collective::broadcast, "0-:two_shot").find("broadcast"), std::string::npos);
}

TEST(Preferences, WithBadRangesAreRefused) {
  for (const std::string text : {"4k-4k:ll", "8k-4k:ll", "4k:ll", "x-4k:ll", "0-y:ll", "0-4q:ll", "0--1:ll"})
    EXPECT_NE(refusal(Collective::allreduce, text).find("CROSSLANE_TEST"), std::string::npos) << text;
}

base::Settings with(const std::string& collective, const std::string& text) {
  base::Settings settings;
  settings.algorithms[collective] = text;
  return settings;
}

TEST(Preferences, MayBeForFewMembersAlone) {
  const auto found = parse_preferences("s", Collective::reduce, "0-4k:ll@4,4k-:hierarchy(gsb,btb)@16,one_shot@2,ll");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].most_members, 4);
  EXPECT_EQ(found[0].algorithm, "ll");
  EXPECT_EQ(found[1].row->name, "hierarchy(gsb,btb)");
  EXPECT_EQ(found[1].most_members, 16);
  EXPECT_EQ(found[2].end, std::numeric_limits<std::size_t>::max());
  EXPECT_GE(found[3].most_members, 32);
  for (const std::string text :
       {"0-4k:ll@", "0-4k:ll@x", "0-4k:ll@4x", "0-4k:ll@0", "0-4k:ll@-1", "0-4k:mpi@4", "0-4k:@4"})
    EXPECT_NE(refusal(Collective::reduce, text).find("CROSSLANE_TEST"), std::string::npos) << text;
  const Choice choice(with("reduce", "0-:one_shot@3,0-:two_shot_window"));
  const Shape shape{.collective = Collective::reduce, .bytes = 4096, .element = kernel::Element::f32};
  EXPECT_EQ(choice.choose(shape, {.members = 3})->name, "one_shot");
  EXPECT_EQ(choice.choose(shape, {.members = 4})->name, "two_shot_window");
  std::vector<Step> steps;
  EXPECT_EQ(choice.explain(shape, {.members = 4}, steps)->name, "two_shot_window");
  EXPECT_EQ(steps.front().fate, Fate::other_team);
  // What is for fewer is nothing to the others, who go on to MPI.
  const Choice to_mpi(with("reduce", "0-64k:ll@4,0-:mpi"));
  EXPECT_FALSE(to_mpi.left_to_mpi(shape, 4));
  EXPECT_TRUE(to_mpi.left_to_mpi(shape, 5));
  steps.clear();
  EXPECT_EQ(to_mpi.explain(shape, {.members = 5}, steps), nullptr);
  EXPECT_EQ(steps.back().fate, Fate::taken);
}

// Kernels that wait for one another must be resident together, on whatever GPU.
TEST(Blocks, AreNoMoreThanGpusHold) {
  constexpr std::size_t much = std::size_t{1} << 30, kib = 1024;
  EXPECT_EQ(blocks_for({.members = 8, .blocks = 132}, much, 16 * kib, 128), 128U);
  EXPECT_EQ(blocks_for({.members = 8, .blocks = 56}, much, 16 * kib, 128), 56U);
  EXPECT_EQ(blocks_for({.members = 8, .most_on_one_gpu = 4, .blocks = 58}, much, 16 * kib, 128), 14U);
  EXPECT_EQ(blocks_for({.members = 32, .most_on_one_gpu = 16, .blocks = 10}, much, 16 * kib, 128), 1U);
  EXPECT_EQ(blocks_for({.members = 8, .blocks = 132}, 40 * kib, 16 * kib, 128), 3U);
  EXPECT_EQ(blocks_for({.members = 8, .blocks = 132}, 0, 16 * kib, 128), 1U);
  EXPECT_EQ(blocks_for({.members = 8, .blocks = 132, .emulated = true}, much, 16 * kib, 128), 2U);
}

TEST(Choice, TakesTheFirstThatSupports) {
  const Choice choice(with("allreduce", "0-:two_shot,0-8k:ll,0-:two_shot_window"));
  Shape shape{.collective = Collective::allreduce, .bytes = 4096, .element = kernel::Element::f32};
  TeamFacts facts{.members = 4};
  EXPECT_EQ(choice.choose(shape, facts)->name, "ll");  // nothing is exposed
  facts.exposed = true;
  EXPECT_EQ(choice.choose(shape, facts)->name, "two_shot");
  facts.exposed = false;
  shape.bytes = 8192;  // the end is not in the range
  EXPECT_EQ(choice.choose(shape, facts)->name, "two_shot_window");
}

TEST(Choice, FallsThroughToShippedPreferences) {
  const Choice choice(with("allgather", "0-:zero_copy"));
  const Shape small{.collective = Collective::allgather, .bytes = 100};
  const Shape large{.collective = Collective::allgather, .bytes = std::size_t{1} << 20};
  EXPECT_EQ(choice.choose(small, {.members = 3})->name, "ll");
  EXPECT_EQ(choice.choose(large, {.members = 3})->name, "window");
  EXPECT_TRUE(choice.overridden(Collective::allgather));
  EXPECT_FALSE(choice.overridden(Collective::alltoall));
}

TEST(Choice, PrefersOtherOnesOnOneGpu) {
  const Shape shape{
      .collective = Collective::allreduce, .bytes = std::size_t{64} << 20, .element = kernel::Element::f32};
  TeamFacts facts{.members = 8, .exposed = true, .large_windows = true};
  const Choice shipped(base::Settings{});
  EXPECT_EQ(shipped.choose(shape, facts)->name, "pipelined");
  facts.most_on_one_gpu = 4;
  EXPECT_EQ(shipped.choose(shape, facts)->name, "pipelined");
  facts.most_on_one_gpu = 8;
  EXPECT_EQ(shipped.choose(shape, facts)->name, "two_shot");
  std::vector<Step> steps;
  EXPECT_EQ(shipped.explain(shape, facts, steps)->name, "two_shot");
  EXPECT_EQ(steps.back().preference->origin, "shipped for one GPU");
  // The user comes first.
  EXPECT_EQ(Choice(with("allreduce", "0-:one_shot")).choose(shape, facts)->name, "one_shot");
}

TEST(Choice, SpansNodesOnlyWhereTheUserSaysSo) {
  const Shape shape{
      .collective = Collective::allreduce, .bytes = std::size_t{1} << 20, .element = kernel::Element::f32};
  TeamFacts facts{.members = 100, .driven = true};
  base::Settings settings;
  EXPECT_FALSE(Choice(settings).spans_nodes());
  settings.mixed = base::Mixed::no;
  EXPECT_EQ(Choice(settings).choose_across_nodes(shape, facts)->name, "hierarchy(gsb,btb)");
  EXPECT_FALSE(Choice(settings).spans_nodes(Collective::allgather));
  settings = with("allreduce", "0-4k:mpi,0-:two_shot,0-2m:btb,0-:mpi,0-:gsb");
  EXPECT_EQ(Choice(settings).choose_across_nodes(shape, facts)->name, "btb");
  EXPECT_EQ(Choice(settings).choose_across_nodes({.bytes = 100}, facts), nullptr);
  EXPECT_EQ(Choice(settings).choose_across_nodes({.bytes = std::size_t{8} << 20}, facts), nullptr);
  facts.deterministic = settings.deterministic = true;
  EXPECT_EQ(Choice(settings).choose_across_nodes(shape, facts), nullptr);
  settings.mixed = base::Mixed::yes;
  EXPECT_FALSE(Choice(settings).spans_nodes());
}

// Around where any of a collective's preferences begins or ends, where what LL's slots of teams of so many hold ends, at nothing, and at what is
// larger than any. Where the sizes are private, unknown_bytes is one.
std::set<std::size_t> sizes_around_thresholds(const Choice& choice, Collective collective, int members) {
  constexpr std::size_t without_end = std::numeric_limits<std::size_t>::max();
  const team::RegionLayout layout = team::region_layout(members);
  std::set<std::size_t> thresholds{1, kernel::Packets::payload(layout.packets.slot_bytes),
                                   kernel::Lines::payload(layout.lines.slot_bytes)};
  for (std::size_t bytes = 1024; bytes <= std::size_t{1} << 40; bytes *= 16) thresholds.insert(bytes);
  for (const Preference& preference : choice.preferences(collective)) {
    thresholds.insert(std::max<std::size_t>(preference.begin, 1));
    if (preference.end != without_end) thresholds.insert(preference.end);
  }
  std::set<std::size_t> sizes;
  for (const std::size_t threshold : thresholds) sizes.insert({threshold - 1, threshold, threshold + 1});
  if (sizes_are_private(collective)) sizes.insert(unknown_bytes);
  return sizes;
}

// Nobody is to find out in a call that nothing takes it: where kernels may wait for one another, something always does; where they may not,
// hosts do what is long, if GPUs' streams can wait for one another and the parts can be numbered, or MPI does.
TEST(Choice, HasAnAlgorithmForEverything) {
  constexpr std::size_t least_driven = std::size_t{256} << 10, most_driven = std::size_t{32} << 30;
  base::Settings same_bits;
  same_bits.deterministic = true;
  const std::array choices{Choice(base::Settings{}), Choice(same_bits)};
  constexpr std::array operations{std::pair{kernel::Element::f32, kernel::Op::sum},
                                  std::pair{kernel::Element::u8, kernel::Op::bxor},
                                  std::pair{kernel::Element::f64_i32, kernel::Op::minloc}};
  for (std::size_t index = 0; index < collective_count; ++index) {
    const auto collective = static_cast<Collective>(index);
    for (int members = 1; members <= share::Board::most_members; ++members) {
      for (const std::size_t bytes : sizes_around_thresholds(choices[0], collective, members)) {
        for (unsigned bits = 0; bits < 1U << 7; ++bits) {
          const auto has = [bits](unsigned bit) { return (bits >> bit & 1U) != 0; };
          for (const auto& [element, op] : operations) {
            if (!combines(collective) && element != kernel::Element::u8) continue;
            if (collective != Collective::reduce_scatter && !has(0)) continue;
            const Shape shape{.collective = collective, .bytes = bytes, .even = has(0), .element = element, .op = op};
            const TeamFacts facts{.members = members,
                                  .most_on_one_gpu = has(1) ? members : 1,
                                  .exposed = has(2),
                                  .large_windows = has(3),
                                  .spinning = has(4),
                                  .driven = has(5),
                                  .deterministic = has(6)};
            const Choice& choice = choices[has(6) ? 1 : 0];
            const auto call = [&] {
              return fmt::format("{} of {} bytes among {}, {:#x}", name_of(collective), bytes, members, bits);
            };
            ASSERT_FALSE(choice.left_to_mpi(shape, members)) << call();
            const Algorithm* const row = choice.choose(shape, facts);
            const bool driven = collective == Collective::allreduce || collective == Collective::reduce ||
                                collective == Collective::broadcast;
            const bool hosts = driven && facts.driven && bytes >= least_driven && bytes <= most_driven;
            ASSERT_EQ(row != nullptr, facts.spinning || hosts) << call();
            if (row == nullptr) continue;
            ASSERT_EQ(row->collective, collective) << call();
            ASSERT_TRUE(row->supports(shape, facts)) << call();
            ASSERT_TRUE(facts.spinning || row->drive() == Drive::host) << call();
          }
        }
      }
    }
  }
}

// The sizes at which each of the shipped preferences of a collective is taken by some call, whatever its members' GPUs, buffers and windows allow.
std::map<const Preference*, std::set<std::size_t>> sizes_taken(const Choice& choice, Collective collective,
                                                               const std::set<std::size_t>& sizes) {
  std::map<const Preference*, std::set<std::size_t>> taken;
  std::vector<Step> steps;
  for (const std::size_t bytes : sizes) {
    for (unsigned bits = 0; bits < 1U << 8; ++bits) {
      const auto has = [bits](unsigned bit) { return (bits >> bit & 1U) != 0; };
      const Shape shape{.collective = collective,
                        .bytes = bytes,
                        .even = has(0),
                        .element = has(1) ? kernel::Element::u8 : kernel::Element::f32,
                        .op = has(1) ? kernel::Op::bxor : kernel::Op::sum};
      for (const int members : {2, 3, 4, 5, 8, 9, 32}) {
        steps.clear();
        static_cast<void>(choice.explain(shape,
                                         {.members = members,
                                          .most_on_one_gpu = has(2) ? members : 1,
                                          .exposed = has(3),
                                          .large_windows = has(4),
                                          .told = has(5),
                                          .spinning = has(6),
                                          .whole_lines = has(7)},
                                         steps));
        for (const Step& step : steps) taken.try_emplace(step.preference);
        if (!steps.empty() && steps.back().fate == Fate::taken) taken[steps.back().preference].insert(bytes);
      }
    }
  }
  return taken;
}

// Nobody is to read of a size that it goes where it never does.
TEST(Choice, TakesEachShippedPreferenceFromItsBeginToItsEnd) {
  constexpr std::size_t page = 4096, without_end = std::numeric_limits<std::size_t>::max();
  const Choice choice(base::Settings{});
  for (std::size_t index = 0; index < collective_count; ++index) {
    const auto collective = static_cast<Collective>(index);
    const auto first = [](const Preference& preference) { return preference.begin + 1; };
    const auto last = [](const Preference& preference) {
      return preference.end - page;
    };  // a size that the algorithm supports
    std::set<std::size_t> sizes;
    for (const Preference& preference : choice.preferences(collective)) {
      sizes.insert(first(preference));
      sizes.insert(last(preference));
    }
    for (const auto& [preference, taken] : sizes_taken(choice, collective, sizes)) {
      const std::string where = fmt::format("{} {}", name_of(collective), preference->text);
      EXPECT_FALSE(taken.empty()) << where;
      if (preference->begin == 0 && preference->end == without_end) continue;  // whatever others leave
      EXPECT_TRUE(taken.contains(first(*preference))) << where << ": its first sizes go elsewhere";
      EXPECT_TRUE(taken.contains(last(*preference))) << where << ": its last sizes go elsewhere";
    }
  }
}

TEST(Choice, SpinsNowhereIfMembersTakeTurns) {
  const Choice choice(base::Settings{});
  const Choice forced(with("reduce", "0-:ll,0-:btb"));
  const TeamFacts turns{.members = 8, .most_on_one_gpu = 8, .exposed = true, .spinning = false, .driven = true};
  TeamFacts helpless = turns;
  helpless.driven = false;
  for (std::size_t index = 0; index < collective_count; ++index) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20, std::size_t{1} << 30}) {
      const Shape shape{.collective = static_cast<Collective>(index), .bytes = bytes};
      const bool driven = shape.collective == Collective::allreduce || shape.collective == Collective::reduce ||
                          shape.collective == Collective::broadcast;
      const Algorithm* const row = choice.choose(shape, turns);
      EXPECT_EQ(row != nullptr, driven && bytes >= (std::size_t{256} << 10)) << name_of(shape.collective);
      EXPECT_TRUE(row == nullptr || row->drive() == Drive::host);
      EXPECT_EQ(choice.choose(shape, helpless), nullptr);
      if (shape.collective == Collective::reduce) {
        EXPECT_EQ(forced.choose(shape, turns)->name, "btb");
      }
    }
  }
  EXPECT_TRUE(forced.drives());
  EXPECT_FALSE(choice.drives());
}

TEST(Choice, KeepsTheOrderOfCombiningWhereAsked) {
  base::Settings settings = with("allreduce", "0-:btb");
  settings.deterministic = true;
  const Choice choice(settings);
  const TeamFacts facts{.members = 4, .driven = true, .deterministic = true};
  Shape shape{.collective = Collective::allreduce, .bytes = 4096, .element = kernel::Element::f32};
  EXPECT_NE(choice.choose(shape, facts)->name, "btb");
  shape.element = kernel::Element::i32;
  EXPECT_EQ(choice.choose(shape, facts)->name, "btb");
}

TEST(Choice, CanLeaveSizesToMpi) {
  const Choice choice(with("allreduce", "0-4k:mpi"));
  Shape shape{.collective = Collective::allreduce, .bytes = 4095};
  EXPECT_TRUE(choice.left_to_mpi(shape, 4));
  shape.bytes = 4096;
  EXPECT_FALSE(choice.left_to_mpi(shape, 4));
  shape = {.collective = Collective::reduce, .bytes = 10};
  EXPECT_FALSE(choice.left_to_mpi(shape, 4));
}

// Of these collectives no rank knows the sizes before it goes one way or the other.
TEST(Choice, LeavesPrivateSizesToMpiAllOrNone) {
  for (const Collective collective : {Collective::gatherv, Collective::scatterv, Collective::alltoallv}) {
    ASSERT_TRUE(sizes_are_private(collective));
    const std::string name(name_of(collective));
    const Shape unknown{.collective = collective, .bytes = unknown_bytes};
    const Choice all(with(name, "0-:mpi"));
    EXPECT_TRUE(all.left_to_mpi(unknown, 4));
    EXPECT_TRUE(all.left_to_mpi({.collective = collective, .bytes = 10}, 4));
    const Choice shipped(base::Settings{});
    EXPECT_FALSE(shipped.left_to_mpi(unknown, 4));
    EXPECT_EQ(shipped.choose(unknown, {.members = 4})->name, "pairwise");
    EXPECT_EQ(shipped.choose(unknown, {.members = 4, .spinning = false}), nullptr);
    const Choice forced(with(name, "0-:ll"));
    EXPECT_EQ(forced.choose(unknown, {.members = 4})->name, "pairwise");
    for (const std::string text : {"0-4k:mpi", "4k-:mpi", "0-4k:ll,0-:mpi", "ll,mpi"})
      EXPECT_NE(refusal(collective, text).find("write 0-:mpi"), std::string::npos) << text;
    EXPECT_EQ(refusal(collective, "mpi,0-4k:ll"), "");
  }
  EXPECT_EQ(refusal(Collective::allgatherv, "0-4k:mpi"), "");
}

// They are larger than any: what a preference without an end is for.
TEST(Choice, TakesUnknownSizesForTheLargest) {
  for (const Collective collective : {Collective::gatherv, Collective::scatterv, Collective::alltoallv}) {
    const std::string name(name_of(collective));
    const Shape unknown{.collective = collective, .bytes = unknown_bytes};
    const TeamFacts facts{.members = 4}, exposed{.members = 4, .exposed = true};
    EXPECT_EQ(Choice(with(name, "1m-:zero_copy")).choose(unknown, exposed)->name, "zero_copy");
    EXPECT_EQ(Choice(with(name, "0-1m:zero_copy,pairwise")).choose(unknown, exposed)->name, "pairwise");
    for (const char* const text : {"0-:pairwise", "1m-:pairwise", "0-4k:ll,ll128,pairwise"}) {
      const Choice choice(with(name, text));
      std::vector<Step> steps;
      EXPECT_EQ(choice.explain(unknown, facts, steps)->name, "pairwise");
      EXPECT_EQ(steps.back().fate, Fate::taken) << name << ' ' << text;
      EXPECT_EQ(steps.back().preference->origin.substr(0, 10), "CROSSLANE_") << name << ' ' << text;
    }
    // Nothing that needs to know a size is taken of what is shipped, and it is a preference that decides.
    const Choice shipped(base::Settings{});
    std::vector<Step> steps;
    EXPECT_EQ(shipped.explain(unknown, facts, steps)->name, "pairwise");
    EXPECT_EQ(steps.back().fate, Fate::taken);
    EXPECT_EQ(steps.back().preference->algorithm, "pairwise");
  }
}

TEST(Choice, TakesUnevenReductionsThroughWindows) {
  const Choice choice(base::Settings{});
  Shape shape{.collective = Collective::reduce_scatter, .bytes = 4096, .element = kernel::Element::f32};
  EXPECT_EQ(choice.choose(shape, {.members = 4})->name, "ll");
  shape.even = false;
  EXPECT_EQ(choice.choose(shape, {.members = 4})->name, "window");
  shape.bytes = std::size_t{1} << 20;
  EXPECT_EQ(choice.choose(shape, {.members = 4, .exposed = true})->name, "zero_copy");
}

TEST(Choice, ExplainsWhatBecameOfEachPreference) {
  const Choice choice(with("allreduce", "8k-:ll,0-:two_shot,0-:mpi,0-:one_shot"));
  const Shape shape{.collective = Collective::allreduce, .bytes = 4096, .element = kernel::Element::f32};
  std::vector<Step> steps;
  EXPECT_EQ(choice.explain(shape, {.members = 2}, steps)->name, "one_shot");
  ASSERT_EQ(steps.size(), 4U);
  const std::array fates{Fate::other_size, Fate::unsupported, Fate::too_late, Fate::taken};
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].fate, fates[i]) << i;
  EXPECT_EQ(steps[3].preference->text, "0-:one_shot");
  EXPECT_EQ(steps[3].preference->origin, "CROSSLANE_ALLREDUCE");
  steps.clear();
  const Choice mpi(with("allreduce", "0-4k:one_shot,0-:mpi"));
  EXPECT_EQ(mpi.explain(shape, {.members = 2}, steps), nullptr);
  EXPECT_EQ(steps.back().fate, Fate::taken);
}

TEST(Support, SaysWhatTheCatalogueDoes) {
  for (const Algorithm& row : catalogue()) {
    const auto support = support_of(row);
    if (!support) continue;
    Shape shape{.collective = row.collective, .bytes = support->most_bytes, .element = kernel::Element::f32};
    const TeamFacts facts{.members = support->least_members, .exposed = true, .driven = true};
    if (support->most_bytes != 0) {
      EXPECT_TRUE(row.supports(shape, facts)) << row.name;
      ++shape.bytes;
      EXPECT_FALSE(row.supports(shape, facts)) << row.name;
    }
    EXPECT_EQ(support->limits.empty(), support->most_bytes == 0) << row.name;
    for (const auto& limit : support->limits) {
      const TeamFacts others{.members = limit.members, .exposed = true, .driven = true};
      shape.bytes = limit.most_bytes;
      EXPECT_TRUE(row.supports(shape, others)) << row.name << " " << limit.members;
      ++shape.bytes;
      EXPECT_FALSE(row.supports(shape, others)) << row.name << " " << limit.members;
    }
    EXPECT_GE(support->least_members, 2);
    EXPECT_LE(support->least_members, support->most_members);
  }
  for (std::size_t op = 0; op < kernel::op_count; ++op)
    EXPECT_EQ(op_named(name_of(static_cast<kernel::Op>(op))), static_cast<kernel::Op>(op));
  // The kernels' own names agree.
  for (const auto& row : kernel::combinations()) EXPECT_EQ(name_of(row.op) + "_" + name_of(row.element), row.name);
}

}  // namespace
