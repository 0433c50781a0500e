// How the C functions of this folder give JSON to their caller.
#pragma once

#include <nlohmann/json.hpp>

#include <cstring>

#define CROSSLANE_EXPORTED __attribute__((visibility("default")))

namespace crosslane::api {

/// One line, from malloc. Names of files and devices may be anything: what is not UTF-8 is replaced, not thrown about.
[[nodiscard]] inline const char* line(const nlohmann::json& json) {
  return strdup(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace crosslane::api
