// The tests' main: what emulated GPUs read, and a watchdog against hangs.
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

int main(int count, char** words) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // members that share a GPU run at once
  setenv("CROSSLANE_GPU", "emulated:3", 0);
  signal(SIGALRM, [](int) {
    constexpr char text[] = "the watchdog: no end after 280 s\n";
    [[maybe_unused]] const auto written = write(2, text, sizeof text - 1);
    abort();
  });
  alarm(280);
  ::testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
