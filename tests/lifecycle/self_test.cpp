// MPI_COMM_SELF is the application's: beside a message another thread of it may be in a collective on that communicator, of which there is one at a
// time. So nothing is made of it behind MPI_Init, whatever types and memory come. --library <path> of counted_mpi.cpp. It must not know
// Crosslane.
#include "support/memory.h"
#include "support/preload.h"
#include "support/program.h"

#include <dlfcn.h>
#include <mpi.h>

#include <cstddef>
#include <vector>

namespace crosslane::tests {
namespace {

using Made = int (*)();

// Bytes here and there, a few MiB apart, to the next rank and from the one before.
void exchange_scattered(Program& program, MemoryKind kind) {
  CROSSLANE_STEP("blocks here and there in {} memory", name(kind));
  std::vector<int> places{0, 1 << 20, 5 << 20};
  constexpr int length = 100;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  CROSSLANE_MPI(MPI_Type_create_indexed_block(static_cast<int>(places.size()), length, places.data(), MPI_BYTE, &type));
  CROSSLANE_MPI(MPI_Type_commit(&type));
  const std::size_t bytes = static_cast<std::size_t>(places.back()) + length;
  Memory out(kind, bytes), in(kind, bytes);
  const int next = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  const auto of = [](int rank) { return static_cast<std::byte>(rank + 1); };
  out.write(std::vector<std::byte>(bytes, of(program.rank)));
  in.write(std::vector<std::byte>(bytes));
  CROSSLANE_MPI(
      MPI_Sendrecv(out.data(), 1, type, next, 0, in.data(), 1, type, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  std::vector<std::byte> expected(bytes);
  for (const int place : places)
    for (int byte = 0; byte < length; ++byte) expected[static_cast<std::size_t>(place + byte)] = of(before);
  CROSSLANE_CHECK(in.read() == expected, "not what rank {} sent", before);
  CROSSLANE_MPI(MPI_Type_free(&type));
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  preload_again_with(argv, argument(argc, argv, "--library"));
  Program program(argc, argv, "lifecycle_self");
  const auto made = reinterpret_cast<Made>(dlsym(RTLD_DEFAULT, "crosslane_test_made_of_self"));
  CROSSLANE_CHECK(made != nullptr, "the MPI that counts is not loaded");
  if (made == nullptr) return program.finish();
  const int by_then = made();
  CROSSLANE_CHECK(by_then > 0, "nothing is counted");
  for (const auto kind : {MemoryKind::host, MemoryKind::device}) {
    exchange_scattered(program, kind);
    CROSSLANE_CHECK_EQUAL(made(), by_then);
  }
  return program.finish();
}
