// Two threads pack into one buffer, each into a half of its own: neither touches the other's.
#include "support/program.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

void pack_beside(Program& program) {
  CROSSLANE_STEP("two threads pack into one buffer");
  constexpr int elements = 1000, half = elements * int{sizeof(int)}, rounds = 100;
  Memory stream(program.kind(), std::size_t{2} * half);
  std::array<std::thread, 2> threads;
  for (int which = 0; which < 2; ++which) {
    threads.at(static_cast<std::size_t>(which)) = std::thread([&, which] {
      if (program.device() != nullptr) program.device()->make_current();
      Memory in(program.kind(), half);
      for (int round = 0; round < rounds; ++round) {
        std::vector<std::byte> values(half, static_cast<std::byte>(2 * round + which));
        in.write(values);
        MPI_Aint position = MPI_Aint{which} * half;
        CROSSLANE_MPI(MPI_Pack_external("external32", in.data(), elements, MPI_INT, stream.data(), MPI_Aint{2} * half,
                                        &position));
        const auto all = stream.read();
        const auto begin = all.begin() + std::ptrdiff_t{which} * half;
        CROSSLANE_CHECK(std::all_of(begin, begin + half, [&](std::byte b) { return b == values[0]; }),
                        "round {}: the other thread's call has written into this one's half", round);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "local_pack_beside", MPI_THREAD_MULTIPLE);
  for (std::int64_t i = program.option("cases", 3); i > 0; --i) pack_beside(program);
  return program.finish();
}
