// A hash of bytes that is the same in every process (FNV-1a), unlike std::hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace crosslane::base {

[[nodiscard]] constexpr std::uint64_t hash_of(std::string_view bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  return hash;
}

}  // namespace crosslane::base
