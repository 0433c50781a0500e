/* Halo exchange on GPU memory: a 2D Jacobi iteration, one tile a rank. MPI gets pointers into device memory, and sends the
   columns of a tile by a derived datatype, so there is nothing to pack. Each tile is compared with the same iteration
   on the whole grid. An ordinary MPI program over the CUDA driver API: it does not know Crosslane. */
#include <cuda.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 60, COLUMNS = 100, STEPS = 30 }; /* cells of a tile, which has a halo of one cell all around */

static void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  fprintf(stderr, "halo_exchange: %s: %s\n", call, name);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Ranks share the GPUs of their node in turn. */
static void choose_gpu(int rank) {
  int gpus = 0;
  CUdevice gpu = 0;
  CUcontext context = NULL;
  check(cuInit(0), "cuInit");
  check(cuDeviceGetCount(&gpus), "cuDeviceGetCount");
  check(cuDeviceGet(&gpu, rank % gpus), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/* One step on a grid with `rows` x `columns` inner cells: each becomes the mean of its four neighbours. */
static void step(int rows, int columns, const double* from, double* to) {
  const int pitch = columns + 2;
  for (int i = 1; i <= rows; ++i)
    for (int j = 1; j <= columns; ++j) {
      const double* cell = from + i * pitch + j;
      to[i * pitch + j] = 0.25 * (cell[-pitch] + cell[pitch] + cell[-1] + cell[1]);
    }
}

/* The value of a cell of the whole grid before the first step; the grid's border stays 0. */
static double initial(int row, int column) { return (row * 7919 + column * 104729) % 1000003; }

/* The outermost cells of the tile go to the neighbours, theirs come into the halo. `tile` is device memory. */
static void exchange(double* tile, MPI_Datatype column, MPI_Comm grid) {
  const int pitch = COLUMNS + 2;
  int up = 0, down = 0, left = 0, right = 0; /* MPI_PROC_NULL at the border of the grid */
  MPI_Cart_shift(grid, 0, 1, &up, &down);
  MPI_Cart_shift(grid, 1, 1, &left, &right);
  double* const first = tile + pitch + 1; /* the first inner cell */
  double* const last_row = tile + ROWS * pitch + 1;
  double* const last_column = tile + pitch + COLUMNS;
  MPI_Status* const ignore = MPI_STATUS_IGNORE;
  MPI_Sendrecv(first, COLUMNS, MPI_DOUBLE, up, 0, last_row + pitch, COLUMNS, MPI_DOUBLE, down, 0, grid, ignore);
  MPI_Sendrecv(last_row, COLUMNS, MPI_DOUBLE, down, 0, first - pitch, COLUMNS, MPI_DOUBLE, up, 0, grid, ignore);
  MPI_Sendrecv(first, 1, column, left, 0, last_column + 1, 1, column, right, 0, grid, ignore);
  MPI_Sendrecv(last_column, 1, column, right, 0, first - 1, 1, column, left, 0, grid, ignore);
}

/* The iteration on the whole grid, in host memory; compares the tile at (`row`, `column`) and counts the differences. */
static int differences(const int dims[2], int row, int column, const double* tile) {
  const int rows = dims[0] * ROWS, columns = dims[1] * COLUMNS, pitch = columns + 2;
  double* from = calloc((size_t)(rows + 2) * pitch, sizeof *from);
  double* to = calloc((size_t)(rows + 2) * pitch, sizeof *to);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) from[(i + 1) * pitch + j + 1] = initial(i, j);
  for (int s = 0; s < STEPS; ++s) {
    step(rows, columns, from, to);
    double* old = from;
    from = to;
    to = old;
  }
  int wrong = 0;
  for (int i = 1; i <= ROWS; ++i)
    for (int j = 1; j <= COLUMNS; ++j)
      wrong += tile[i * (COLUMNS + 2) + j] != from[(row * ROWS + i) * pitch + column * COLUMNS + j];
  free(from);
  free(to);
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0, rank = 0, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2];
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, at);
  choose_gpu(rank);

  const size_t cells = (ROWS + 2) * (COLUMNS + 2);
  double* host = calloc(cells, sizeof *host);
  double* next = calloc(cells, sizeof *next);
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j)
      host[(i + 1) * (COLUMNS + 2) + j + 1] = initial(at[0] * ROWS + i, at[1] * COLUMNS + j);
  CUdeviceptr tile = 0;
  check(cuMemAlloc(&tile, cells * sizeof *host), "cuMemAlloc");
  check(cuMemcpyHtoD(tile, host, cells * sizeof *host), "cuMemcpyHtoD");

  MPI_Datatype column;
  MPI_Type_vector(ROWS, 1, COLUMNS + 2, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  for (int s = 0; s < STEPS; ++s) {
    check(cuCtxSynchronize(), "cuCtxSynchronize"); /* MPI may read the tile only when the GPU has finished writing it */
    exchange((double*)(uintptr_t)tile, column, grid);
    /* Your kernel stands here. This example has none, so that it needs no CUDA compiler: the host takes the step. */
    check(cuMemcpyDtoH(host, tile, cells * sizeof *host), "cuMemcpyDtoH");
    step(ROWS, COLUMNS, host, next);
    check(cuMemcpyHtoD(tile, next, cells * sizeof *host), "cuMemcpyHtoD");
  }

  check(cuMemcpyDtoH(host, tile, cells * sizeof *host), "cuMemcpyDtoH");
  int wrong = differences(dims, at[0], at[1], host);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, grid);
  if (rank == 0 && wrong == 0)
    printf("halo_exchange: verified %d steps of %d x %d cells on %d x %d ranks\n", STEPS, dims[0] * ROWS,
           dims[1] * COLUMNS, dims[0], dims[1]);
  else if (rank == 0)
    printf("halo_exchange: WRONG: %d cells differ from the host's\n", wrong);
  check(cuMemFree(tile), "cuMemFree");
  free(host);
  free(next);
  MPI_Type_free(&column);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
