/* Collectives on a CUDA stream: data-parallel descent on the sum of all ranks' losses, a step captured as a graph and launched a
   hundred times without a word between the hosts. Uses Crosslane's own API, crosslane.h, besides MPI. Every rank compares its
   weights with those that the host finds. */
#include <crosslane/crosslane.h>
#include <cuda.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WEIGHTS = 1000, STEPS = 100 };

static void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  fprintf(stderr, "stream_collectives: %s: %s\n", call, name);
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

/* What a rank wants of a weight at first. */
static uint32_t wish(int rank, int weight) { return (uint32_t)(weight * 31 + rank * 17 + 1); }

/* All ranks' gradients are summed, the sum is everybody's new weights, and what each rank wants next is the sum of what it and
   the ranks before it wanted. Your kernels would stand between the calls, on the same stream. */
static void enqueue_step(void* gradients, void* weights, CUstream stream) {
  crosslane_allreduce_enqueue(gradients, weights, WEIGHTS, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD, stream);
  crosslane_scan_enqueue(MPI_IN_PLACE, gradients, WEIGHTS, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD, stream);
}

/* The same on the host, for one weight: all ranks' gradients, and the weight of the last step. */
static uint32_t expected(int ranks, int weight) {
  uint32_t* gradients = calloc((size_t)ranks, sizeof *gradients);
  uint32_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) gradients[rank] = wish(rank, weight);
  for (int step = 0; step < STEPS; ++step) {
    sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += gradients[rank];
      gradients[rank] = sum;
    }
  }
  free(gradients);
  return sum;
}

/* Kernels wait for other ranks' kernels here, so all of them must run at once. MPI_Allreduce works all the same. */
static int refused(int code, int rank) {
  char why[MPI_MAX_ERROR_STRING] = "";
  int length = 0, class = MPI_SUCCESS;
  MPI_Error_string(code, why, &length);
  MPI_Error_class(code, &class);
  if (rank == 0)
    fprintf(stderr,
            "stream_collectives: skipped, collectives on streams need ranks of one node, each with a GPU of its own or "
            "MPS: %s\n",
            why);
  MPI_Finalize();
  return class == MPI_ERR_UNSUPPORTED_OPERATION ? 77 : 1; /* 77: cannot be shown on this machine */
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  choose_gpu(rank);

  uint32_t host[WEIGHTS];
  CUdeviceptr gradients = 0, weights = 0;
  CUstream stream = NULL;
  check(cuMemAlloc(&gradients, sizeof host), "cuMemAlloc");
  check(cuMemAlloc(&weights, sizeof host), "cuMemAlloc");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (int i = 0; i < WEIGHTS; ++i) host[i] = wish(rank, i);
  check(cuMemcpyHtoD(gradients, host, sizeof host), "cuMemcpyHtoD");

  /* Once for a communicator: may wait and allocate, so that what follows need not. All ranks get the same answer. */
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int prepared = crosslane_prepare(MPI_COMM_WORLD, sizeof host, 0, NULL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (prepared != MPI_SUCCESS) return refused(prepared, rank);

  CUgraph graph = NULL;
  CUgraphExec launchable = NULL;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  enqueue_step((void*)(uintptr_t)gradients, (void*)(uintptr_t)weights, stream);
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  check(cuGraphInstantiate(&launchable, graph, 0), "cuGraphInstantiate");
  for (int step = 0; step < STEPS; ++step) check(cuGraphLaunch(launchable, stream), "cuGraphLaunch");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize"); /* the only wait */

  int missing = -1; /* the rank that did not come, if there was one */
  crosslane_status(MPI_COMM_WORLD, &missing);
  check(cuMemcpyDtoH(host, weights, sizeof host), "cuMemcpyDtoH");
  int wrong = missing >= 0;
  for (int i = 0; i < WEIGHTS; ++i) wrong += host[i] != expected(size, i);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && wrong == 0)
    printf("stream_collectives: verified %d steps of %d weights on %d ranks\n", STEPS, WEIGHTS, size);
  else if (rank == 0)
    printf("stream_collectives: WRONG: %d weights differ from the host's\n", wrong);
  check(cuGraphExecDestroy(launchable), "cuGraphExecDestroy");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  check(cuMemFree(gradients), "cuMemFree");
  check(cuMemFree(weights), "cuMemFree");
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
