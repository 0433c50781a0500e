/* See cuda_runtime_api.h. The driver is looked up by name: it is the emulated one where that was preloaded, else the machine's.
 * A failure ends the program: the suite ignores what these functions return, and would go on with an address that is none. */
#include "cuda_runtime_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Address; /* CUdeviceptr */

static void* driver_function(const char* name) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  void* found = library != NULL ? dlsym(library, name) : NULL;
  if (found == NULL) {
    fprintf(stderr, "cudart stand-in: no %s in libcuda.so.1\n", name);
    abort();
  }
  return found;
}

static void require(const char* name, int result) {
  if (result == 0) return;
  fprintf(stderr, "cudart stand-in: %s failed with %d\n", name, result);
  abort();
}

/* Calls a function of the driver, whose arguments have the types that `signature` says. */
#define DRIVER(name, signature, ...) require(#name, ((int(*) signature)driver_function(#name))(__VA_ARGS__))

cudaError_t cudaGetDeviceCount(int* count) {
  DRIVER(cuInit, (unsigned), 0);
  DRIVER(cuDeviceGetCount, (int*), count);
  return 0;
}

cudaError_t cudaSetDevice(int ordinal) {
  int device = 0;
  void* context = NULL;
  DRIVER(cuInit, (unsigned), 0);
  DRIVER(cuDeviceGet, (int*, int), &device, ordinal);
  DRIVER(cuDevicePrimaryCtxRetain, (void**, int), &context, device);
  DRIVER(cuCtxSetCurrent, (void*), context);
  return 0;
}

/* The runtime takes device 0 where a thread has chosen none. Here it is the rank's, so that ranks spread over the GPUs. */
static void enter(void) {
  void* context = NULL;
  DRIVER(cuInit, (unsigned), 0);
  DRIVER(cuCtxGetCurrent, (void**), &context);
  if (context != NULL) return;
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == NULL) rank = getenv("PMI_RANK");
  int count = 0;
  cudaGetDeviceCount(&count);
  cudaSetDevice(rank != NULL ? atoi(rank) % count : 0);
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  enter();
  DRIVER(cuMemAlloc_v2, (Address*, size_t), (Address*)pointer, bytes > 0 ? bytes : 1);
  return 0;
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  enter();
  DRIVER(cuMemAllocHost_v2, (void**, size_t), pointer, bytes > 0 ? bytes : 1);
  return 0;
}

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  enter();
  DRIVER(cuMemAllocManaged, (Address*, size_t, unsigned), (Address*)pointer, bytes > 0 ? bytes : 1, flags);
  return 0;
}

cudaError_t cudaFree(void* pointer) {
  enter();
  if (pointer != NULL) DRIVER(cuMemFree_v2, (Address), (Address)pointer);
  return 0;
}

cudaError_t cudaFreeHost(void* pointer) {
  enter();
  if (pointer != NULL) DRIVER(cuMemFreeHost, (void*), pointer);
  return 0;
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  enter();
  if (bytes == 0) return 0;
  DRIVER(cuMemcpy, (Address, Address, size_t), (Address)target, (Address)source, bytes);
  return cudaStreamSynchronize(NULL); /* between device memories the copy returns before it is done */
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  enter();
  DRIVER(cuStreamSynchronize, (void*), stream);
  return 0;
}
