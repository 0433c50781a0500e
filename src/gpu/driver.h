// The CUDA driver as a typed table of functions, taken at run time from the libcuda.so.1 that the process has loaded:
// the machine's own, or the emulated one. Nothing of ours is linked against either.
// This file must not know what the functions are used for: owners and views are beside it, a file each.
#pragma once

#include "base/error.h"
#include "base/light_mutex.h"
#include "base/settings.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

// Every driver function that Crosslane calls: its name in the table, and its name in cuda.h. The header's macros turn
// the latter into the versioned entry (cuMemAlloc_v2), here for the type and in driver.cpp for the symbol.
#define CROSSLANE_DRIVER_FUNCTIONS(X)                                         \
  X(initialize, cuInit)                                                       \
  X(driver_get_version, cuDriverGetVersion)                                   \
  X(get_error_name, cuGetErrorName)                                           \
  X(get_error_string, cuGetErrorString)                                       \
  X(device_get, cuDeviceGet)                                                  \
  X(device_get_count, cuDeviceGetCount)                                       \
  X(device_get_name, cuDeviceGetName)                                         \
  X(device_get_uuid, cuDeviceGetUuid)                                         \
  X(device_get_attribute, cuDeviceGetAttribute)                               \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId)                               \
  X(device_total_mem, cuDeviceTotalMem)                                       \
  X(device_can_access_peer, cuDeviceCanAccessPeer)                            \
  X(device_get_p2p_attribute, cuDeviceGetP2PAttribute)                        \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain)                      \
  X(device_primary_ctx_release, cuDevicePrimaryCtxRelease)                    \
  X(device_primary_ctx_get_state, cuDevicePrimaryCtxGetState)                 \
  X(ctx_get_current, cuCtxGetCurrent)                                         \
  X(ctx_push_current, cuCtxPushCurrent)                                       \
  X(ctx_pop_current, cuCtxPopCurrent)                                         \
  X(ctx_get_device, cuCtxGetDevice)                                           \
  X(ctx_get_id, cuCtxGetId)                                                   \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess)                            \
  X(mem_get_info, cuMemGetInfo)                                               \
  X(mem_alloc, cuMemAlloc)                                                    \
  X(mem_free, cuMemFree)                                                      \
  X(mem_host_alloc, cuMemHostAlloc)                                           \
  X(mem_free_host, cuMemFreeHost)                                             \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer)                   \
  X(mem_host_register, cuMemHostRegister)                                     \
  X(mem_host_unregister, cuMemHostUnregister)                                 \
  X(mem_alloc_managed, cuMemAllocManaged)                                     \
  X(mem_alloc_async, cuMemAllocAsync)                                         \
  X(mem_free_async, cuMemFreeAsync)                                           \
  X(mem_get_address_range, cuMemGetAddressRange)                              \
  X(pointer_get_attribute, cuPointerGetAttribute)                             \
  X(pointer_get_attributes, cuPointerGetAttributes)                           \
  X(pointer_set_attribute, cuPointerSetAttribute)                             \
  X(mem_address_reserve, cuMemAddressReserve)                                 \
  X(mem_address_free, cuMemAddressFree)                                       \
  X(mem_create, cuMemCreate)                                                  \
  X(mem_release, cuMemRelease)                                                \
  X(mem_map, cuMemMap)                                                        \
  X(mem_unmap, cuMemUnmap)                                                    \
  X(mem_set_access, cuMemSetAccess)                                           \
  X(mem_get_allocation_granularity, cuMemGetAllocationGranularity)            \
  X(mem_export_to_shareable_handle, cuMemExportToShareableHandle)             \
  X(mem_import_from_shareable_handle, cuMemImportFromShareableHandle)         \
  X(mem_retain_allocation_handle, cuMemRetainAllocationHandle)                \
  X(ipc_get_mem_handle, cuIpcGetMemHandle)                                    \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle)                                  \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle)                                \
  X(ipc_get_event_handle, cuIpcGetEventHandle)                                \
  X(ipc_open_event_handle, cuIpcOpenEventHandle)                              \
  X(memcpy_async, cuMemcpyAsync)                                              \
  X(memcpy_2d_async, cuMemcpy2DAsync)                                         \
  X(memset_d8_async, cuMemsetD8Async)                                         \
  X(memset_d32_async, cuMemsetD32Async)                                       \
  X(stream_create_with_priority, cuStreamCreateWithPriority)                  \
  X(stream_destroy, cuStreamDestroy)                                          \
  X(stream_query, cuStreamQuery)                                              \
  X(stream_wait_event, cuStreamWaitEvent)                                     \
  X(stream_get_ctx, cuStreamGetCtx)                                           \
  X(stream_is_capturing, cuStreamIsCapturing)                                 \
  X(stream_begin_capture, cuStreamBeginCapture)                               \
  X(stream_end_capture, cuStreamEndCapture)                                   \
  X(stream_write_value_32, cuStreamWriteValue32)                              \
  X(stream_write_value_64, cuStreamWriteValue64)                              \
  X(stream_wait_value_32, cuStreamWaitValue32)                                \
  X(stream_wait_value_64, cuStreamWaitValue64)                                \
  X(stream_batch_mem_op, cuStreamBatchMemOp)                                  \
  X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode)   \
  X(launch_host_func, cuLaunchHostFunc)                                       \
  X(event_create, cuEventCreate)                                              \
  X(event_destroy, cuEventDestroy)                                            \
  X(event_record, cuEventRecord)                                              \
  X(event_query, cuEventQuery)                                                \
  X(graph_instantiate, cuGraphInstantiate)                                    \
  X(graph_upload, cuGraphUpload)                                              \
  X(graph_launch, cuGraphLaunch)                                              \
  X(graph_destroy, cuGraphDestroy)                                            \
  X(graph_exec_destroy, cuGraphExecDestroy)                                   \
  X(module_load_data, cuModuleLoadData)                                       \
  X(module_unload, cuModuleUnload)                                            \
  X(module_get_function, cuModuleGetFunction)                                 \
  X(func_get_attribute, cuFuncGetAttribute)                                   \
  X(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(launch_kernel, cuLaunchKernel)

namespace crosslane::gpu {

/// What cuMemcpyBatchAsync takes for copies: CUDA 12.8's CUmemcpyAttributes, which older headers lack.
struct CopyAttributes {
  enum class Order : int { of_the_stream = 1 };  ///< In which the sources are read.
  Order order = Order::of_the_stream;
  CUmemLocation source{}, destination{};  ///< Hints, of managed memory alone.
  unsigned flags = 0;
};

/// The table. Filled once by Driver::from_library; every entry is then non-null, unless it says otherwise. The entries are CUDA's own
/// functions: they return a CUresult, which check() turns into an Error.
struct Driver {
#define CROSSLANE_DECLARE(member, function) decltype(&::function) member = nullptr;
  CROSSLANE_DRIVER_FUNCTIONS(CROSSLANE_DECLARE)
#undef CROSSLANE_DECLARE

  /// Milliseconds between two recorded events; in cuda.h 13 the name stands for a newer entry than CUDA 12 drivers have.
  CUresult (*event_elapsed_time)(float* milliseconds, CUevent start, CUevent end) = nullptr;
  /// All that a context has under way, of any stream; ends captures there. Null where the driver is older than CUDA 12.5.
  CUresult (*ctx_record_event)(CUcontext context, CUevent event) = nullptr;
  /// As CUDA 12.8 has it; in cuda.h 13 the name stands for a newer entry. Null where the driver is older.
  CUresult (*memcpy_batch_async)(CUdeviceptr* destinations, CUdeviceptr* sources, std::size_t* bytes, std::size_t count,
                                 CopyAttributes* attributes, std::size_t* first_of_attributes,
                                 std::size_t attribute_count, std::size_t* failed, CUstream stream) = nullptr;

  /// True from the moment that the process exits: owners then leave their handles to the driver's own end.
  [[nodiscard]] bool unloading() const noexcept { return unloading_->load(std::memory_order_relaxed); }

  /// The emulated driver was loaded, not a machine's own.
  bool emulated = false;
  /// Why the emulated driver cannot be used, in its own words; null where it can. Null itself in other drivers.
  const char* (*emulated_refusal)() = nullptr;

  /// Fills a table from an open library. Throws Error (unsupported) naming what an old driver lacks.
  static Driver from_library(void* library);

 private:
  // Shared with an exit handler, and never freed: the handler may run after every owner of a Driver is gone.
  std::atomic<bool>* unloading_ = nullptr;
};

/// Throws Error when a driver call failed, with the error's CUDA name, `call` (which names what was being done, e.g.
/// "cuMemAlloc of 64 bytes") and what to do about it. Out of memory gives ErrorClass::no_memory.
void check(const Driver& driver, CUresult result, std::string_view call);

/// What the driver says about an address.
struct PointerInfo {
  enum class Kind { host, pinned, device, managed };
  Kind kind = Kind::host;
  std::uintptr_t base = 0;      ///< Where the allocation (or mapping) starts; 0 for host memory.
  std::size_t size = 0;         ///< Its bytes.
  std::uint64_t buffer_id = 0;  ///< Unique a process for each allocation, never reused.
  CUcontext context = nullptr;  ///< Null for memory of no context (stream-ordered pools, virtual memory management).
  int device = -1;              ///< Ordinal of the GPU that owns it; -1 for host memory.

  /// Memory that the CPU path must not touch unasked: device and managed.
  [[nodiscard]] bool on_gpu() const noexcept { return kind == Kind::device || kind == Kind::managed; }
  /// So many bytes from a byte of the allocation on end within it.
  [[nodiscard]] bool holds(const void* first, std::size_t bytes) const noexcept {
    return reinterpret_cast<std::uintptr_t>(first) + bytes <= base + size;
  }
};

/// The GPUs as this process sees them; one an owner of the library's state. Thread-safe. Creates no CUDA context.
class Gpu {
 public:
  /// Where CROSSLANE_GPU is emulated:<n> and no libcuda.so.1 is loaded, loads the emulated driver that lies beside this
  /// library (its folder, or emulated/ in it). Throws Error (argument) when that is missing or the setting is malformed.
  explicit Gpu(const base::Settings& settings);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// Can a device pointer exist in this process, i.e. is a driver library loaded (and CROSSLANE_GPU not none)? About
  /// 10 ns while none is, 1 ns after.
  [[nodiscard]] bool present() noexcept {
    return library_.load(std::memory_order_acquire) != nullptr || (enabled_ && look_for_library());
  }

  /// False where CROSSLANE_GPU is none, or the driver library was found to be too old: GPU memory is not looked for.
  [[nodiscard]] bool enabled() const noexcept { return enabled_.load(std::memory_order_relaxed); }

  /// Can a device pointer ever exist in this process: is present() true, or has the machine an NVIDIA GPU whose driver
  /// the program may still load? False where CROSSLANE_GPU is none. A few system calls.
  [[nodiscard]] bool may_appear() noexcept;

  /// The table, loaded on first use. Throws Error (unsupported) without a driver library, or when it is too old.
  [[nodiscard]] const Driver& driver() {
    const Driver* ready = ready_.load(std::memory_order_acquire);
    return ready != nullptr ? *ready : load_driver();
  }

  /// What `address` is. Host memory costs one cheap driver call, none without a driver library; so does GPU memory of an
  /// allocation that was asked about lately. Addresses that the
  /// driver does not know (freed ones too) and any failure count as host.
  [[nodiscard]] PointerInfo inspect(const void* address) noexcept;

  /// True if `address` is device or managed memory; inspect() at its cheapest.
  [[nodiscard]] bool on_gpu(const void* address) noexcept;

  /// How many bytes from `address` on, at most `wanted`, are device memory that one copy may take: walks neighbouring
  /// mappings, since one buffer may be made of several (expandable segments), but over no other allocation's end.
  [[nodiscard]] std::size_t contiguous_from(const void* address, std::size_t wanted) noexcept;

  /// Can the CPU read this address? Asks the kernel (one system call, no signal): tells a freed or foreign device
  /// pointer from host memory in error messages.
  [[nodiscard]] static bool readable_by_cpu(const void* address) noexcept;

  /// Copies from memory that may be gone, or go meanwhile. False where it is.
  [[nodiscard]] static bool read_by_cpu(void* to, const void* from, std::size_t bytes) noexcept;

 private:
  bool look_for_library() noexcept;
  const Driver& load_driver();
  [[nodiscard]] bool recall(const Driver& table, CUdeviceptr address, PointerInfo& info) noexcept;
  void remember(const PointerInfo& info) noexcept;
  /// That allocation is a mapping of cuMemMap's.
  [[nodiscard]] bool is_mapped(const PointerInfo& info) noexcept;

  std::atomic<bool> enabled_;                   // may a driver library be used at all
  std::atomic<void*> library_{nullptr};         // dlopen's handle, never closed: device pointers may live until exit
  std::atomic<std::uint64_t> seen_objects_{0};  // dlpi_adds + dlpi_subs at the last search; 0 before the first
  std::atomic<const Driver*> ready_{nullptr};
  std::mutex mutex_;  // guards loaded_
  std::unique_ptr<Driver> loaded_;

  // The last allocations that were asked about. An entry is believed while the driver gives the address the same id, which is
  // the cheapest question that tells a living allocation from what came after it. Enough for two buffers of 32 mappings each.
  struct Known {
    PointerInfo info{};
    std::optional<bool> mapped{};
  };
  static constexpr std::size_t remembered = 64;
  [[nodiscard]] std::span<Known> known() noexcept { return {known_.data(), std::min(next_known_, remembered)}; }
  base::LightMutex known_mutex_;  // guards the next two
  std::array<Known, remembered> known_{};
  std::size_t next_known_ = 0;
};

}  // namespace crosslane::gpu
