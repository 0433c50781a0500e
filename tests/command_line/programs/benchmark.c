/* Stands for crosslane_bench_<family>: two sizes, two columns. The operation "reduce" has a wrong result,
   "gather" waits for a signal. */
#include <mpi.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char** words) {
  int rank, size;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  while (strcmp(words[1], "gather") == 0) pause();
  if (rank == 0) {
    const char* wrong = strcmp(words[1], "reduce") == 0 ? "false" : "true";
    printf(
        "{\"operation\": \"%s\", \"ranks\": %d, \"steps\": 4, \"mpi\": \"a stand-in\", \"left_out\": {\"nccl\": \"not "
        "here\"},"
        " \"sizes\": \"%s\"}\n",
        words[1], size, words[3]);
    for (int bytes = 8; bytes <= 1024; bytes *= 128) {
      printf(
          "{\"bytes\": %d, \"column\": \"crosslane\", \"iterations\": 5, \"median_us\": 2.0, \"min_us\": 1.0,"
          " \"p99_us\": 3.0, \"gb_per_s\": 0.5, \"verified\": %s}\n",
          bytes, wrong);
      printf(
          "{\"bytes\": %d, \"column\": \"by_hand\", \"iterations\": 5, \"median_us\": 5.0, \"min_us\": 4.0,"
          " \"p99_us\": 6.0, \"gb_per_s\": 0.2, \"verified\": true}\n",
          bytes);
    }
  }
  MPI_Finalize();
  return 0;
}
