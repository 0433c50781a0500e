// Checks that name rank, place, step and seed when they fail, and a watchdog that ends a hanging rank.
// A failed check does not throw: the program goes on, and Program::finish makes every rank exit with 1.
// It must not know CUDA or Crosslane.
#pragma once

#include <mpi.h>

#include <fmt/core.h>

#include <cstdint>
#include <source_location>
#include <string>

namespace crosslane::tests {

/// Records and prints a failed check. The hundredth aborts the job. May be called from any thread.
void report_failure(const std::string& text, std::source_location where = std::source_location::current());

/// How many checks of this process have failed.
[[nodiscard]] int failures();

/// Names what the calling thread does next, for failure reports and the watchdog, which starts over.
void enter_step(std::string text, std::source_location where = std::source_location::current());

/// What every report names. Program sets it.
void describe_process(std::string program, int rank, std::uint64_t seed);

/// From construction to destruction: when no thread has entered a step for `seconds`, prints where each thread of this
/// rank is, with its stack, gives the other ranks the time to do the same, and ends the process with status 124.
class Watchdog {
 public:
  explicit Watchdog(double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  State* state_;
};

/// The failed call's error class and text.
[[nodiscard]] std::string describe_mpi_error(int result);

}  // namespace crosslane::tests

/// CROSSLANE_STEP("case {}: {}", ...)
#define CROSSLANE_STEP(...) ::crosslane::tests::enter_step(::fmt::format(__VA_ARGS__))

/// CROSSLANE_CHECK(condition, format, argument...)
#define CROSSLANE_CHECK(condition, ...)                                                                              \
  do {                                                                                                               \
    if (!(condition)) ::crosslane::tests::report_failure(std::string(#condition ": ") + ::fmt::format(__VA_ARGS__)); \
  } while (false)

/// Prints both values: CROSSLANE_CHECK_EQUAL(got, expected)
#define CROSSLANE_CHECK_EQUAL(got, expected)                                                                \
  do {                                                                                                      \
    const auto crosslane_got = (got);                                                                       \
    const auto crosslane_expected = (expected);                                                             \
    if (!(crosslane_got == crosslane_expected))                                                             \
      ::crosslane::tests::report_failure(                                                                   \
          ::fmt::format("{} is {}, expected {} ({})", #got, crosslane_got, crosslane_expected, #expected)); \
  } while (false)

/// An MPI call that must succeed.
#define CROSSLANE_MPI(call)                                                                         \
  do {                                                                                              \
    const int crosslane_result = (call);                                                            \
    if (crosslane_result != MPI_SUCCESS)                                                            \
      ::crosslane::tests::report_failure(std::string(#call ": ") +                                  \
                                         ::crosslane::tests::describe_mpi_error(crosslane_result)); \
  } while (false)
