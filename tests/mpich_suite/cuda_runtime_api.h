/* The part of the CUDA runtime that MPICH's test suite uses, over the driver API: GPU memory of emulated or real GPUs. The runtime
 * itself needs the driver's undocumented side, which the emulated driver does not have. It must not know MPI or Crosslane. Used by
 * tools/test-mpich alone. */
#ifndef CROSSLANE_TESTS_MPICH_SUITE_CUDA_RUNTIME_API_H
#define CROSSLANE_TESTS_MPICH_SUITE_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int cudaError_t; /* the driver's numbers; 0 is success */
typedef void* cudaStream_t;
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum { cudaMemAttachGlobal = 1 };

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device); /* for the calling thread */
cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaMallocHost(void** pointer, size_t bytes);
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
