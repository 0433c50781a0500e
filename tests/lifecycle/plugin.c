/* A plug-in that links MPI itself, as Python's extension modules do; its host opens it with RTLD_LOCAL.
 * It must not know Crosslane. */
#include <cuda.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int run_plugin(void);

int run_plugin(void) {
  enum { elements = 4096 };
  int rank = 0, size = 0, count = 0, wrong = 0;
  MPI_Init(NULL, NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CUdevice device;
  CUcontext context;
  CUdeviceptr buffer;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS ||
      cuDeviceGet(&device, rank % count) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS ||
      cuMemAlloc(&buffer, elements * sizeof(int)) != CUDA_SUCCESS) {
    fprintf(stderr, "plugin: no GPU memory\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int* host = malloc(elements * sizeof(int));
  for (int i = 0; i < elements; ++i) host[i] = rank + i;
  cuMemcpyHtoD(buffer, host, elements * sizeof(int));
  MPI_Allreduce(MPI_IN_PLACE, (void*)(size_t)buffer, elements, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  cuMemcpyDtoH(host, buffer, elements * sizeof(int));
  for (int i = 0; i < elements; ++i) wrong += host[i] != size * i + size * (size - 1) / 2;
  if (wrong != 0) fprintf(stderr, "plugin: FAILED, %d of %d sums are wrong\n", wrong, (int)elements);
  free(host);
  cuMemFree(buffer);
  MPI_Finalize();
  return wrong != 0;
}
