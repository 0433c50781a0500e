// Host and, with --memory device, GPU messages under settings that are given to it in the environment. What must not
// come through MPI_Init is recognised by the line "after MPI_Init". It must not know Crosslane.
#include "support/program.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <vector>

namespace crosslane::tests {
namespace {

// Several messages at once to the right neighbour, so that all of them need memory for staging.
void exchange(Program& program, std::size_t bytes) {
  constexpr int messages = 6;
  const int left = (program.rank + program.size - 1) % program.size, right = (program.rank + 1) % program.size;
  std::vector<Memory> out, in;
  std::vector<MPI_Request> requests(2 * messages, MPI_REQUEST_NULL);
  for (int i = 0; i < messages; ++i) {
    out.emplace_back(program.kind(), bytes);
    in.emplace_back(program.kind(), bytes);
    out.back().write(pattern(mix(program.seed, program.rank, i), bytes));
  }
  CROSSLANE_STEP("{} messages of {} bytes", messages, bytes);
  for (std::size_t i = 0; i < messages; ++i) {
    const auto count = static_cast<int>(bytes), tag = static_cast<int>(i);
    CROSSLANE_MPI(MPI_Irecv(in[i].data(), count, MPI_BYTE, left, tag, MPI_COMM_WORLD, &requests[i]));
    CROSSLANE_MPI(MPI_Isend(out[i].data(), count, MPI_BYTE, right, tag, MPI_COMM_WORLD, &requests[messages + i]));
  }
  polite_waitall(requests);
  for (std::size_t i = 0; i < messages; ++i)
    CROSSLANE_CHECK(in[i].read() == pattern(mix(program.seed, left, i), bytes), "message {}", i);
}

void reduce(Program& program, std::size_t count) {
  CROSSLANE_STEP("reduction of {}", count);
  Memory out(program.kind(), count * sizeof(int)), in(program.kind(), count * sizeof(int));
  std::vector<int> mine(count), expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    mine[i] = static_cast<int>(i) * (program.rank + 1);
    expected[i] = static_cast<int>(i) * program.size * (program.size + 1) / 2;
  }
  out.fill(mine);
  CROSSLANE_MPI(MPI_Allreduce(out.data(), in.data(), static_cast<int>(count), MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CROSSLANE_CHECK(in.values<int>() == expected, "sums over {} ranks", program.size);
}

// Switched off, no buffer is looked at, not even where a large-count form (which this MPI may lack) is provided.
void untouched() {
  CROSSLANE_STEP("memory that nobody can read, sent to nobody");
  using Send = int (*)(const void*, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
  void* const symbol = dlsym(RTLD_DEFAULT, "MPI_Send_c");
  if (symbol == nullptr) return;
  constexpr std::size_t bytes = 1 << 16;
  void* const nothing = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CROSSLANE_MPI(reinterpret_cast<Send>(symbol)(nothing, 8, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
  munmap(nothing, bytes);
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  // --threaded 1, before other options: by MPI_Init_thread instead of MPI_Init.
  const bool threaded = argc > 1 && std::string_view(argv[1]) == "--threaded";
  Program program(argc, argv, "bad_input_settings", threaded ? MPI_THREAD_FUNNELED : MPI_THREAD_SINGLE);
  if (program.rank == 0) fmt::print(stderr, "after MPI_Init\n");
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{1} << 20})
    exchange(program, bytes);
  reduce(program, 1000);
  reduce(program, 300000);
  // --support 0: Crosslane must not be there, and these MPIs are not CUDA-capable.
  if (const auto expected = program.option("support", -1); expected >= 0) {
    int (*query)() = nullptr;
    if (void* const symbol = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"))
      query = reinterpret_cast<int (*)()>(symbol);
    if (expected == 0) untouched();
    CROSSLANE_CHECK_EQUAL(query == nullptr ? 0 : query(), static_cast<int>(expected));
  }
  return program.finish();
}
