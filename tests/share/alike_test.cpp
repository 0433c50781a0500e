// What is told where ranks' settings differ: names, values and ranks, and nothing of those that are alike.
#include "team/alike.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using crosslane::team::differences;

TEST(Alike, SaysNothingWhereAllAre) {
  EXPECT_EQ(differences(std::vector<std::string>(4, "A=1\nB=\n")), "");
  EXPECT_EQ(differences(std::vector<std::string>{"A=1\n"}), "");
}

TEST(Alike, NamesValuesAndRanks) {
  const std::vector<std::string> lines{"A=1\nB=\nC=x\n", "A=1\nB=\nC=y\n", "A=1\nB=0-:ll\nC=x\n", "A=1\nB=\nC=x\n",
                                       "A=1\nB=\nC=x\n"};
  EXPECT_EQ(differences(lines),
            "B is not set on ranks 0-1, 3-4, \"0-:ll\" on rank 2; C is \"x\" on ranks 0, 2-4, \"y\" on rank 1");
}

// Of another version, which does not have the setting.
TEST(Alike, TakesWhatIsMissingForNotSet) {
  EXPECT_EQ(differences(std::vector<std::string>{"A=1\n", "A=1\nB=2\n"}), "B is not set on rank 0, \"2\" on rank 1");
}

}  // namespace
