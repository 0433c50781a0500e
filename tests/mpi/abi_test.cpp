// Every constant, handle, size and offset of our declarations against the real header's.
#include "abi_rows.h"
#include "check.h"

#include <cstdio>

int main() {
  const Facts real = real_facts();
  const Facts ours = our_facts();
  std::size_t compared = 0;
  for (const auto& [name, value] : real) {
    const auto found = ours.find(name);
    if (!CHECK(found != ours.end())) {
      std::fprintf(stderr, "  %s is not in our facts\n", name.c_str());
      continue;
    }
    ++compared;
    if (found->second != value) {
      std::fprintf(stderr, "  %s: ours %#lx, the header's %#lx\n", name.c_str(), found->second, value);
      CHECK(found->second == value);
    }
  }
  std::printf("%zu facts compared\n", compared);
  CHECK(compared > 250);
  return check::status();
}
