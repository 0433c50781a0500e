// A program as people write them, with no thought of GPUs: halos around a ring of ranks, sums, a broadcast, a column by a datatype, and uneven
// pieces at one rank. Its heap may be anywhere. It must not know Crosslane or CUDA.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace {

int rank = 0, ranks = 0;
int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "rank %d: %s is wrong\n", rank, what);
  ++failures;
}

// Diffusion on a ring, whose total stays: cells of all ranks in a row, and one of each neighbour beside them.
void halos(int cells) {
  std::vector<double> now(static_cast<std::size_t>(cells) + 2), next(now.size());
  for (int i = 1; i <= cells; ++i) now[static_cast<std::size_t>(i)] = rank * cells + i;
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  for (int step = 0; step < 20; ++step) {
    MPI_Request requests[4];
    MPI_Irecv(now.data(), 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&now.back(), 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&now[static_cast<std::size_t>(cells)], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&now[1], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (std::size_t i = 1; i + 1 < now.size(); ++i) next[i] = now[i] / 2 + (now[i - 1] + now[i + 1]) / 4;
    std::swap(now, next);
    auto* const sums = static_cast<double*>(std::malloc(2 * sizeof(double)));
    sums[0] = std::accumulate(now.begin() + 1, now.end() - 1, 0.0);
    MPI_Allreduce(&sums[0], &sums[1], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    const double all = static_cast<double>(ranks) * cells;
    expect(std::abs(sums[1] - all * (all + 1) / 2) < 1e-6 * all * all, "what diffuses");
    std::free(sums);
  }
}

// A column of rank 0's matrix becomes a row of everybody's.
void column(int n) {
  const auto size = static_cast<std::size_t>(n);
  std::vector<int> matrix(size * size), row(size);
  std::iota(matrix.begin(), matrix.end(), 0);
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(n, 1, n, MPI_INT, &column);
  MPI_Type_commit(&column);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(row.data(), n, MPI_INT, 0, 2, MPI_COMM_WORLD, &request);
  for (int to = 0; rank == 0 && to < ranks; ++to) MPI_Send(&matrix[3], 1, column, to, 2, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < n; ++i) expect(row[static_cast<std::size_t>(i)] == i * n + 3, "the column");
  MPI_Type_free(&column);
}

// Text of each rank's own length, in order at the last one, and back to all.
void pieces() {
  const std::string mine(static_cast<std::size_t>(100 * (rank + 1)), static_cast<char>('a' + rank % 26));
  std::vector<int> counts, displacements;
  int all = 0;
  std::string expected;
  for (int i = 0; i < ranks; ++i) {
    counts.push_back(100 * (i + 1));
    displacements.push_back(all);
    all += counts.back();
    expected.append(static_cast<std::size_t>(counts.back()), static_cast<char>('a' + i % 26));
  }
  std::string text(static_cast<std::size_t>(all), '?');
  MPI_Gatherv(mine.data(), counts[static_cast<std::size_t>(rank)], MPI_CHAR, text.data(), counts.data(),
              displacements.data(), MPI_CHAR, ranks - 1, MPI_COMM_WORLD);
  MPI_Bcast(text.data(), all, MPI_CHAR, ranks - 1, MPI_COMM_WORLD);
  expect(text == expected, "the text");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const int size : {1, 1000, 100000}) halos(size);
  for (const int size : {5, 300}) column(size);
  pieces();
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
