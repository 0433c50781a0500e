// What programs ask of the CUDA runtime, one thing after the other. It holds on a machine's GPU by NVIDIA's runtime, and so it must on emulated
// ones by the runtime of the emulated driver, which stands in front of that.
#include "support/check.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace crosslane::tests {
namespace {

#define CROSSLANE_RUNTIME(call) \
  CROSSLANE_CHECK((call) == cudaSuccess, "{}: {}", #call, cudaGetErrorName(cudaPeekAtLastError()))

constexpr std::size_t bytes = 3001;

std::vector<unsigned char> pattern(unsigned char first) {
  std::vector<unsigned char> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(first + 7 * i);
  return made;
}

int attribute(CUdevice_attribute which, int device) {
  int value = -1;
  CROSSLANE_CHECK(cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS, "attribute {}", static_cast<int>(which));
  return value;
}

void devices() {
  CROSSLANE_STEP("devices");
  int count = 0, device = -1, driver = 0, value = 0;
  CROSSLANE_RUNTIME(cudaGetDeviceCount(&count));
  CROSSLANE_RUNTIME(cudaDriverGetVersion(&driver));
  CROSSLANE_RUNTIME(cudaRuntimeGetVersion(&value));
  CROSSLANE_CHECK(value >= 12000 && driver >= value, "{}, {}", value, driver);
  CROSSLANE_RUNTIME(cudaSetDevice(count - 1));
  CROSSLANE_RUNTIME(cudaGetDevice(&device));
  CROSSLANE_CHECK_EQUAL(device, count - 1);
  std::thread([] {
    int other = -1;
    CROSSLANE_RUNTIME(cudaGetDevice(&other));
    CROSSLANE_CHECK_EQUAL(other, 0);
  }).join();
  CROSSLANE_CHECK_EQUAL(static_cast<int>(cudaSetDevice(count)), static_cast<int>(cudaErrorInvalidDevice));
  CROSSLANE_CHECK_EQUAL(static_cast<int>(cudaPeekAtLastError()), static_cast<int>(cudaErrorInvalidDevice));
  CROSSLANE_CHECK_EQUAL(std::string(cudaGetErrorName(cudaGetLastError())), std::string("cudaErrorInvalidDevice"));
  CROSSLANE_CHECK_EQUAL(static_cast<int>(cudaGetLastError()), static_cast<int>(cudaSuccess));
  cudaDeviceProp properties;
  std::memset(&properties, 0xff, sizeof properties);
  CROSSLANE_RUNTIME(cudaGetDeviceProperties(&properties, device));
  std::vector<char> name(256);
  std::size_t memory = 0;
  cuDeviceGetName(name.data(), static_cast<int>(name.size()), device);
  cuDeviceTotalMem(&memory, device);
  CROSSLANE_CHECK_EQUAL(std::string(properties.name), std::string(name.data()));
  CROSSLANE_CHECK_EQUAL(properties.totalGlobalMem, memory);
  CROSSLANE_CHECK_EQUAL(properties.major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  CROSSLANE_CHECK_EQUAL(properties.minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  CROSSLANE_CHECK_EQUAL(properties.multiProcessorCount, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  CROSSLANE_CHECK_EQUAL(properties.warpSize, attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  CROSSLANE_CHECK_EQUAL(properties.maxThreadsPerBlock, attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
  CROSSLANE_CHECK_EQUAL(properties.canMapHostMemory, attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, device));
  CROSSLANE_CHECK_EQUAL(properties.unifiedAddressing, attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
  CROSSLANE_CHECK_EQUAL(properties.pciBusID, attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device));
  CROSSLANE_CHECK_EQUAL(properties.managedMemory, attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device));
  CROSSLANE_CHECK_EQUAL(properties.concurrentManagedAccess,
                        attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device));
  CROSSLANE_CHECK_EQUAL(properties.cooperativeLaunch, attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device));
  CROSSLANE_CHECK_EQUAL(
      properties.sharedMemPerMultiprocessor,
      static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device)));
  CROSSLANE_RUNTIME(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
  CROSSLANE_CHECK_EQUAL(value, properties.multiProcessorCount);
}

void kinds_of_memory() {
  CROSSLANE_STEP("kinds of memory");
  int device = 0;
  CROSSLANE_RUNTIME(cudaGetDevice(&device));
  void *on_device = nullptr, *managed = nullptr, *pinned = nullptr;
  std::vector<unsigned char> pageable(bytes);
  CROSSLANE_RUNTIME(cudaMalloc(&on_device, bytes));
  CROSSLANE_RUNTIME(cudaMallocManaged(&managed, bytes, cudaMemAttachGlobal));
  CROSSLANE_RUNTIME(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
  const auto type = [](const void* pointer) {
    cudaPointerAttributes attributes{};
    CROSSLANE_RUNTIME(cudaPointerGetAttributes(&attributes, pointer));
    return static_cast<int>(attributes.type);
  };
  CROSSLANE_CHECK_EQUAL(type(on_device), static_cast<int>(cudaMemoryTypeDevice));
  CROSSLANE_CHECK_EQUAL(type(managed), static_cast<int>(cudaMemoryTypeManaged));
  CROSSLANE_CHECK_EQUAL(type(pinned), static_cast<int>(cudaMemoryTypeHost));
  CROSSLANE_CHECK_EQUAL(type(pageable.data()), static_cast<int>(cudaMemoryTypeUnregistered));
  cudaPointerAttributes attributes{};
  CROSSLANE_RUNTIME(cudaPointerGetAttributes(&attributes, on_device));
  CROSSLANE_CHECK_EQUAL(attributes.device, device);
  CROSSLANE_CHECK_EQUAL(attributes.devicePointer, on_device);

  const auto first = pattern(1), second = pattern(2);
  CROSSLANE_RUNTIME(cudaMemcpy(on_device, first.data(), bytes, cudaMemcpyHostToDevice));
  CROSSLANE_RUNTIME(cudaMemcpy(managed, on_device, bytes, cudaMemcpyDefault));
  CROSSLANE_RUNTIME(cudaDeviceSynchronize());
  CROSSLANE_CHECK(std::memcmp(managed, first.data(), bytes) == 0, "managed memory has something else");
  CROSSLANE_RUNTIME(cudaMemset(on_device, 0x5a, bytes));
  CROSSLANE_RUNTIME(cudaMemcpy(pageable.data(), on_device, bytes, cudaMemcpyDeviceToHost));
  CROSSLANE_CHECK(std::all_of(pageable.begin(), pageable.end(), [](unsigned char b) { return b == 0x5a; }), "memset");

  // Rows, of which each side has more than is copied.
  constexpr std::size_t width = 37, height = 11, pitch = 53;
  void* rows = nullptr;
  std::size_t row_pitch = 0;
  CROSSLANE_RUNTIME(cudaMallocPitch(&rows, &row_pitch, width, height));
  CROSSLANE_CHECK(row_pitch >= width, "{}", row_pitch);
  std::vector<unsigned char> back(pitch * height, 0xee);
  CROSSLANE_RUNTIME(cudaMemcpy2D(rows, row_pitch, second.data(), pitch, width, height, cudaMemcpyHostToDevice));
  CROSSLANE_RUNTIME(cudaMemcpy2D(back.data(), pitch, rows, row_pitch, width, height, cudaMemcpyDeviceToHost));
  for (std::size_t i = 0; i < back.size(); ++i)
    CROSSLANE_CHECK_EQUAL(back[i], i % pitch < width ? second[i] : static_cast<unsigned char>(0xee));

  CROSSLANE_RUNTIME(cudaHostRegister(pageable.data(), bytes, cudaHostRegisterDefault));
  CROSSLANE_CHECK_EQUAL(type(pageable.data()), static_cast<int>(cudaMemoryTypeHost));
  CROSSLANE_RUNTIME(cudaHostUnregister(pageable.data()));
  std::size_t unused = 0, total = 0;
  CROSSLANE_RUNTIME(cudaMemGetInfo(&unused, &total));
  CROSSLANE_CHECK(unused > 0 && unused <= total, "{} of {}", unused, total);
  void* nothing = &total;
  CROSSLANE_RUNTIME(cudaMalloc(&nothing, 0));
  CROSSLANE_CHECK(nothing == nullptr, "of nothing there is an allocation");
  CROSSLANE_CHECK_EQUAL(static_cast<int>(cudaMemcpy(pinned, pinned, 1, static_cast<cudaMemcpyKind>(9))),
                        static_cast<int>(cudaErrorInvalidMemcpyDirection));
  CROSSLANE_CHECK_EQUAL(std::string(cudaGetErrorName(cudaGetLastError())),
                        std::string("cudaErrorInvalidMemcpyDirection"));
  CROSSLANE_RUNTIME(cudaFree(nullptr));
  CROSSLANE_CHECK_EQUAL(static_cast<int>(cudaMalloc(&nothing, total * 2)), static_cast<int>(cudaErrorMemoryAllocation));
  CROSSLANE_CHECK_EQUAL(static_cast<int>(cudaGetLastError()), static_cast<int>(cudaErrorMemoryAllocation));
  for (void* const pointer : {on_device, managed, rows}) CROSSLANE_RUNTIME(cudaFree(pointer));
  CROSSLANE_RUNTIME(cudaFreeHost(pinned));
}

void streams() {
  CROSSLANE_STEP("streams, events, graphs");
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  CROSSLANE_RUNTIME(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CROSSLANE_RUNTIME(cudaStreamCreate(&other));
  CROSSLANE_RUNTIME(cudaEventCreate(&begin));
  CROSSLANE_RUNTIME(cudaEventCreateWithFlags(&end, cudaEventDefault));
  void *there = nullptr, *further = nullptr, *pooled = nullptr, *pinned = nullptr;
  CROSSLANE_RUNTIME(cudaMalloc(&there, bytes));
  CROSSLANE_RUNTIME(cudaMalloc(&further, bytes));
  CROSSLANE_RUNTIME(cudaMallocHost(&pinned, bytes));
  CROSSLANE_RUNTIME(cudaMallocAsync(&pooled, bytes, stream));
  const auto data = pattern(9);
  CROSSLANE_RUNTIME(cudaEventRecord(begin, stream));
  CROSSLANE_RUNTIME(cudaMemcpyAsync(there, data.data(), bytes, cudaMemcpyHostToDevice, stream));
  CROSSLANE_RUNTIME(cudaMemcpyAsync(pooled, there, bytes, cudaMemcpyDeviceToDevice, stream));
  CROSSLANE_RUNTIME(cudaEventRecord(end, stream));
  CROSSLANE_RUNTIME(cudaStreamWaitEvent(other, end, 0));
  CROSSLANE_RUNTIME(cudaMemcpyAsync(further, pooled, bytes, cudaMemcpyDeviceToDevice, other));
  int called = 0;
  CROSSLANE_RUNTIME(cudaLaunchHostFunc(other, [](void* to) { *static_cast<int*>(to) = 1; }, &called));
  CROSSLANE_RUNTIME(cudaMemcpyAsync(pinned, further, bytes, cudaMemcpyDeviceToHost, other));
  CROSSLANE_RUNTIME(cudaStreamSynchronize(other));
  CROSSLANE_CHECK_EQUAL(called, 1);
  CROSSLANE_CHECK(std::memcmp(pinned, data.data(), bytes) == 0, "something else has come");
  CROSSLANE_RUNTIME(cudaEventSynchronize(end));
  CROSSLANE_RUNTIME(cudaEventQuery(end));
  float milliseconds = -1;
  CROSSLANE_RUNTIME(cudaEventElapsedTime(&milliseconds, begin, end));
  CROSSLANE_CHECK(milliseconds >= 0, "{}", milliseconds);

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  CROSSLANE_RUNTIME(cudaMemset(further, 0, bytes));
  CROSSLANE_RUNTIME(cudaDeviceSynchronize());
  CROSSLANE_RUNTIME(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CROSSLANE_RUNTIME(cudaMemcpyAsync(further, there, bytes, cudaMemcpyDeviceToDevice, stream));
  CROSSLANE_RUNTIME(cudaStreamEndCapture(stream, &graph));
  CROSSLANE_RUNTIME(cudaGraphInstantiate(&replay, graph, 0));
  std::memset(pinned, 0, bytes);
  CROSSLANE_RUNTIME(cudaGraphLaunch(replay, stream));
  CROSSLANE_RUNTIME(cudaMemcpyAsync(pinned, further, bytes, cudaMemcpyDeviceToHost, stream));
  CROSSLANE_RUNTIME(cudaStreamSynchronize(stream));
  CROSSLANE_CHECK(std::memcmp(pinned, data.data(), bytes) == 0, "the graph has copied something else");
  CROSSLANE_RUNTIME(cudaGraphExecDestroy(replay));
  CROSSLANE_RUNTIME(cudaGraphDestroy(graph));
  CROSSLANE_RUNTIME(cudaFreeAsync(pooled, stream));
  CROSSLANE_RUNTIME(cudaStreamSynchronize(stream));
  CROSSLANE_RUNTIME(cudaEventDestroy(begin));
  CROSSLANE_RUNTIME(cudaEventDestroy(end));
  CROSSLANE_RUNTIME(cudaStreamDestroy(stream));
  CROSSLANE_RUNTIME(cudaStreamDestroy(other));
  CROSSLANE_RUNTIME(cudaFree(there));
  CROSSLANE_RUNTIME(cudaFree(further));
  CROSSLANE_RUNTIME(cudaFreeHost(pinned));
}

// Memory of rank 0, which the others open, and give to MPI.
void between_processes(int rank) {
  CROSSLANE_STEP("memory of another process");
  int device = 0;
  CROSSLANE_RUNTIME(cudaGetDevice(&device));
  cudaIpcMemHandle_t handle{};
  void* memory = nullptr;
  constexpr std::size_t large = std::size_t{2} << 20;
  if (rank == 0) {
    CROSSLANE_RUNTIME(cudaMalloc(&memory, large));
    CROSSLANE_RUNTIME(cudaMemset(memory, 0x21, large));
    CROSSLANE_RUNTIME(cudaDeviceSynchronize());
    CROSSLANE_RUNTIME(cudaIpcGetMemHandle(&handle, memory));
  }
  MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) CROSSLANE_RUNTIME(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  unsigned char last = 0;
  CROSSLANE_RUNTIME(cudaMemcpy(&last, static_cast<unsigned char*>(memory) + large - 1, 1, cudaMemcpyDeviceToHost));
  CROSSLANE_CHECK_EQUAL(static_cast<int>(last), 0x21);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) CROSSLANE_RUNTIME(cudaIpcCloseMemHandle(memory));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) CROSSLANE_RUNTIME(cudaFree(memory));
}

int run(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  describe_process("programs_runtime_api", rank, 0);
  devices();
  kinds_of_memory();
  streams();
  between_processes(rank);
  const int mine = failures();
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc, argv); }
