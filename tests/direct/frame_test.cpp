// How reductions are shared among members and cut into chunks: whole elements, every byte once, and between lines where there are many.
#include "collective/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

namespace {

using namespace crosslane;
using namespace crosslane::collective;

TEST(Shares, AreWholeElementsAndCoverAll) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  using kernel::Element;
  for (int round = 0; round < 5000; ++round) {
    const auto element = std::array{Element::u8, Element::i16, Element::f32, Element::f64,
                                    Element::c64}[std::uniform_int_distribution<std::size_t>(0, 4)(random)];
    const std::size_t size = kernel::bytes_of(element);
    const unsigned bits = std::uniform_int_distribution<unsigned>(0, 30)(random);
    const std::size_t count = std::uniform_int_distribution<std::size_t>(0, std::size_t{1} << bits)(random);
    const int members = std::uniform_int_distribution<int>(2, 32)(random);
    Shape shape{};
    shape.bytes = count * size;
    shape.element = element;
    shape.root = std::uniform_int_distribution<int>(0, members - 1)(random);
    shape.collective = round % 2 == 0 ? Collective::allreduce : Collective::reduce;
    std::size_t end = 0;
    for (int member = 0; member < members; ++member) {
      const auto [begin, bytes] = share_of(shape, members, member);
      EXPECT_EQ(bytes % size, 0U);
      if (bytes == 0) continue;
      ASSERT_EQ(begin, end) << "member " << member << " of " << members << ", " << shape.bytes << " bytes";
      if (shape.bytes / static_cast<std::size_t>(members) >= 64 * kernel::line_bytes) {
        EXPECT_EQ(begin % kernel::line_bytes, 0U);
      }
      end = begin + bytes;
    }
    ASSERT_EQ(end, shape.bytes);
  }
}

TEST(Chunks, AreAlikeWholeLinesAndFew) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](unsigned most_bits) {
    const unsigned bits = std::uniform_int_distribution<unsigned>(0, most_bits)(random);
    return std::uniform_int_distribution<std::size_t>(0, std::size_t{1} << bits)(random);
  };
  for (int number = 0; number < 5000; ++number) {
    const std::size_t share = below(30), most = kernel::line_bytes + below(18), round = 1 + below(2);
    const std::size_t chunk = chunk_of(share, 1, most, round), line = kernel::line_bytes;
    EXPECT_EQ(chunk % line, 0U);
    EXPECT_GE(chunk, line);
    EXPECT_LE(chunk, most);
    // As many as are needed of the longest, in full rounds; and together hardly more than the share, cut between lines.
    const std::size_t longest = most / line * line, lines = (share + line - 1) / line * line;
    const std::size_t rounds = (lines + round * longest - 1) / (round * longest);
    const std::size_t chunks = std::max<std::size_t>(rounds, 1) * round;
    EXPECT_GE(chunk * chunks, lines) << share << " bytes, at most " << most << ", " << round;
    EXPECT_LT(chunk * chunks, std::max(lines, line) + chunks * line)
        << share << " bytes, at most " << most << ", " << round;
  }
}

}  // namespace
