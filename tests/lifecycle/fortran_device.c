/* GPU memory for the Fortran programs, by address. The program ends with the driver's error where a call fails.
   It must not know MPI or Crosslane. */
#include <cuda.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void device_select(int rank);
void* device_allocate(size_t bytes);
void device_free(void* memory);
void device_write(void* device, const void* host, size_t bytes);
void device_read(void* host, const void* device, size_t bytes);

static void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = NULL;
  cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", call, name != NULL ? name : "an unknown error");
  exit(2);
}
#define CROSSLANE_CUDA(call) check((call), #call)

void device_select(int rank) {
  int gpus = 0;
  CUdevice device = 0;
  CUcontext context = NULL;
  CROSSLANE_CUDA(cuInit(0));
  CROSSLANE_CUDA(cuDeviceGetCount(&gpus));
  if (gpus == 0) {
    fprintf(stderr, "skipped: this machine has no GPU\n");
    exit(77);
  }
  CROSSLANE_CUDA(cuDeviceGet(&device, rank % gpus));
  CROSSLANE_CUDA(cuDevicePrimaryCtxRetain(&context, device));
  CROSSLANE_CUDA(cuCtxSetCurrent(context));
}

void* device_allocate(size_t bytes) {
  CUdeviceptr memory = 0;
  CROSSLANE_CUDA(cuMemAlloc(&memory, bytes));
  return (void*)(uintptr_t)memory;
}

void device_free(void* memory) { CROSSLANE_CUDA(cuMemFree((CUdeviceptr)(uintptr_t)memory)); }

void device_write(void* device, const void* host, size_t bytes) {
  CROSSLANE_CUDA(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)device, host, bytes));
  CROSSLANE_CUDA(cuStreamSynchronize(CU_STREAM_LEGACY));
}

void device_read(void* host, const void* device, size_t bytes) {
  CROSSLANE_CUDA(cuMemcpyDtoH(host, (CUdeviceptr)(uintptr_t)device, bytes));
}
