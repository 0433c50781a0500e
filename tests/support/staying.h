// What tests of kernels that stay for the next call share: a thread that waits for the GPU all the time, and their order.
#pragma once

#include "support/counted.h"
#include "support/program.h"

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace crosslane::tests {

/// call(0), call(1), ..., until a thread of each rank that waits for its GPU all the time has got on a few times meanwhile: where it does not,
/// this is what the watchdog names. Collective.
template <class Call>
void beside_a_waiter(const Device& device, Call call) {
  CROSSLANE_STEP("beside a thread that waits for the GPU");
  constexpr std::int64_t enough = 3;
  std::atomic<bool> over{false};
  std::atomic<std::int64_t> waits{0};
  std::thread waiter([&] {
    device.make_current();
    while (!over) {
      CROSSLANE_CUDA(cuCtxSynchronize());
      ++waits;
    }
  });
  for (int round = 0; over_all(waits, MPI_MIN) < enough; ++round) call(round);
  over = true;
  waiter.join();
}

/// Such a test's main: `Staying` begins with the same again and again, goes on beside a waiter, and then through `cases` sequences.
template <class Staying>
int run_staying(int argc, char** argv, const char* name, std::int64_t cases) {
  Program program(argc, argv, name);
  {
    Staying staying(program);
    staying.again();
    staying.beside_a_waiter();
    cases = program.option("cases", cases);
    for (std::int64_t i = 0; i < cases; ++i) staying.sequence(i);
  }
  return program.finish();
}

}  // namespace crosslane::tests
