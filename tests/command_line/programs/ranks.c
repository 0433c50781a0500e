/* A program of a user: prints a JSON line a rank with what reached it. "exit <n>" ends with that status, "wait" waits
   for a signal after all ranks have printed. It must not know Crosslane. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_variable(const char* key, const char* name) {
  const char* value = getenv(name);
  if (value == NULL)
    printf(", \"%s\": null", key);
  else
    printf(", \"%s\": \"%s\"", key, value);
}

int main(int count, char** words) {
  int rank, size;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int turn = 0; turn < size; ++turn) {
    /* Launchers may interleave what ranks print at once. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (turn != rank) continue;
    printf("{\"rank\": %d, \"size\": %d, \"pid\": %d", rank, size, (int)getpid());
    print_variable("preload", "LD_PRELOAD");
    print_variable("gpu", "CROSSLANE_GPU");
    print_variable("log", "CROSSLANE_LOG");
    print_variable("stats", "CROSSLANE_STATS");
    printf(", \"arguments\": [");
    for (int i = 1; i < count; ++i) printf("%s\"%s\"", i > 1 ? ", " : "", words[i]);
    printf("]}\n");
    fflush(stdout);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (count > 1 && strcmp(words[1], "wait") == 0) {
    if (rank == 0) {
      printf("waiting\n");
      fflush(stdout);
    }
    for (;;) pause();
  }
  MPI_Finalize();
  return count > 2 && strcmp(words[1], "exit") == 0 ? atoi(words[2]) : 0;
}
