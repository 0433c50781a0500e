// A 128-bit digest of what names a machine.
#include "topology/host.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace crosslane::topology {
namespace {

// FNV-1a, then the finaliser of SplitMix64: the two halves start from different bases.
std::uint64_t digest(std::string_view text, std::uint64_t basis) noexcept {
  std::uint64_t hash = basis;
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3U;
  }
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

}  // namespace

HostIdentity host_identity(std::string_view processor_name) {
  std::string boot;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;  // empty where there is none: then the name alone counts
  const std::string text = boot + "/" + std::string{processor_name};
  return {digest(text, 0xcbf29ce484222325U), digest(text, 0x9ae16a3b2f90404fU)};
}

int processors() noexcept { return static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)); }

}  // namespace crosslane::topology
