// How many calls went between GPUs so far. It must not know which call it is.
#pragma once

#include <cstdint>
#include <string>

namespace crosslane::tests {

/// Direct calls of this process so far, of a collective by its name, and by one algorithm if that is given (crosslane_direct_calls); -1 if
/// nobody can tell.
[[nodiscard]] std::int64_t direct_calls(const std::string& collective, const char* algorithm = nullptr);

}  // namespace crosslane::tests
