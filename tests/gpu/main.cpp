// The tests' main: sets what emulated GPUs read, a watchdog against hangs, and the children's way in.
#include "machine.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

int main(int count, char** words) {
  setenv("CROSSLANE_GPU", "emulated:3", 0);
  setenv("CROSSLANE_EMULATED_MEMORY", "2g", 0);
  signal(SIGALRM, [](int) {
    constexpr char text[] = "the watchdog: no end after 280 s\n";
    [[maybe_unused]] const auto written = write(2, text, sizeof text - 1);
    abort();
  });
  alarm(280);
  if (count > 2 && std::string(words[1]) == "--child") {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    try {
      return crosslane::test::child({words + 2, words + count});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      return 100;
    }
  }
  ::testing::InitGoogleTest(&count, words);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  return RUN_ALL_TESTS();
}
