// The smallest test kit for programs that run under an MPI launcher: CHECK counts, and the exit status tells.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace check {

inline int failures = 0;

inline bool that(bool condition, const char* text, const char* file, int line) {
  if (!condition) {
    std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
    ++failures;
  }
  return condition;
}

/// The program's exit status; also fails if fewer checks ran than the test means to make.
inline int status() { return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE; }

}  // namespace check

#define CHECK(condition) check::that((condition), #condition, __FILE__, __LINE__)
#define CHECK_THROWS(error_type, ...)                                             \
  do {                                                                            \
    bool thrown = false;                                                          \
    try {                                                                         \
      static_cast<void>(__VA_ARGS__);                                             \
    } catch (const error_type&) {                                                 \
      thrown = true;                                                              \
    }                                                                             \
    check::that(thrown, #__VA_ARGS__ " throws " #error_type, __FILE__, __LINE__); \
  } while (false)
