// Entries: modules and kernels. A module is a table of host functions (image.h).
#include "gpu/emulated/event.h"
#include "gpu/emulated/image.h"
#include "gpu/emulated/memory.h"
#include "gpu/emulated/per_thread.h"
#include "gpu/emulated/stream.h"

#include <cstdlib>
#include <cstring>
#include <thread>

using crosslane::gpu::EmulatedImage;
using crosslane::gpu::EmulatedKernel;
using crosslane::gpu::EmulatedLaunch;
using namespace crosslane::gpu::emulated;

struct CUfunc_st {
  const EmulatedKernel* kernel = nullptr;
  CUmodule module = nullptr;
  int shared_limit = 48 << 10;
};

struct CUmod_st {
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace {

struct Modules {
  std::mutex mutex;
  std::set<CUmodule> modules;
  std::set<CUfunction> functions;
};

Modules& modules() {
  static auto& instance = *new Modules();
  return instance;
}

CUfunc_st& checked(CUfunction function) {
  const std::lock_guard lock(modules().mutex);
  require(modules().functions.contains(function), CUDA_ERROR_INVALID_HANDLE);
  return *function;
}

// The launch that this thread runs a block of.
thread_local const std::atomic<bool>* aborted_here = nullptr;

void* translate(std::uint64_t address) { return memory().cpu(address); }
bool aborted() { return aborted_here != nullptr && aborted_here->load(std::memory_order_relaxed); }

// The arguments' values, copied at the launch; `pointers` is what the kernel gets.
struct Arguments {
  std::vector<std::max_align_t> storage;
  std::vector<void*> pointers;

  Arguments(const EmulatedKernel& kernel, void** parameters) {
    constexpr std::size_t unit = sizeof(std::max_align_t);
    std::vector<std::size_t> at;
    std::size_t units = 0;
    for (std::uint32_t index = 0; index < kernel.parameter_count; ++index) {
      at.push_back(units);
      units += (kernel.parameter_sizes[index] + unit - 1) / unit;
    }
    storage.resize(units);
    for (std::uint32_t index = 0; index < kernel.parameter_count; ++index) {
      require(parameters != nullptr && parameters[index] != nullptr, CUDA_ERROR_INVALID_VALUE);
      pointers.push_back(storage.data() + at[index]);
      std::memcpy(pointers.back(), parameters[index], kernel.parameter_sizes[index]);
    }
    pointers.push_back(nullptr);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
};

void run_block(const EmulatedKernel& kernel, EmulatedLaunch launch, std::uint64_t block, const Arguments& arguments,
               const std::atomic<bool>& stop) {
  launch.block_index[0] = static_cast<unsigned>(block % launch.grid[0]);
  launch.block_index[1] = static_cast<unsigned>(block / launch.grid[0] % launch.grid[1]);
  launch.block_index[2] = static_cast<unsigned>(block / launch.grid[0] / launch.grid[1]);
  std::vector<std::max_align_t> shared((launch.shared_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  launch.shared = shared.empty() ? nullptr : shared.data();
  std::vector<void*> pointers = arguments.pointers;  // a block of its own may change them
  aborted_here = &stop;
  kernel.run(launch, pointers.data());
  aborted_here = nullptr;
}

void run(const EmulatedKernel& kernel, const EmulatedLaunch& launch, const Arguments& arguments,
         const std::atomic<bool>& stop) {
  const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  if (!kernel.concurrent || blocks == 1) {
    for (std::uint64_t block = 0; block < blocks && !stop.load(std::memory_order_relaxed); ++block) {
      run_block(kernel, launch, block, arguments, stop);
    }
    return;
  }
  std::vector<std::thread> threads;
  threads.reserve(blocks - 1);
  for (std::uint64_t block = 1; block < blocks; ++block) {
    threads.emplace_back([&, block] { run_block(kernel, launch, block, arguments, stop); });
  }
  run_block(kernel, launch, 0, arguments, stop);
  for (std::thread& thread : threads) thread.join();
}

// A concurrent kernel needs all its blocks at once: as on a GPU there is a most, here of threads.
constexpr std::uint64_t most_concurrent_blocks = 4 * 32;

void launch_kernel(CUfunction handle, const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared_bytes,
                   CUstream stream, void** parameters, void** extra) {
  const CUfunc_st& function = checked(handle);
  require(extra == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  const std::uint64_t blocks = std::uint64_t{grid[0]} * grid[1] * grid[2];
  require(threads != 0 && blocks != 0 && threads <= 1024 && grid[1] <= 65535 && grid[2] <= 65535,
          CUDA_ERROR_INVALID_VALUE);
  require(shared_bytes <= static_cast<unsigned>(function.shared_limit), CUDA_ERROR_INVALID_VALUE);
  require(!function.kernel->concurrent || blocks <= most_concurrent_blocks, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EmulatedLaunch launch{};
  std::memcpy(launch.grid, grid, sizeof grid);
  std::memcpy(launch.block, block, sizeof block);
  launch.shared_bytes = shared_bytes;
  launch.translate = translate;
  launch.aborted = aborted;
  const auto arguments = std::make_shared<const Arguments>(*function.kernel, parameters);
  submit(resolve(stream), CU_GRAPH_NODE_TYPE_KERNEL,
         [kernel = function.kernel, launch, arguments](const Running& running) {
           run(*kernel, launch, *arguments, running.aborted);
         });
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return enter("cuModuleLoadData", allocates | unsafe_in_capture, [&] {
    require(module != nullptr && image != nullptr, CUDA_ERROR_INVALID_VALUE);
    current();
    const auto* const emulated = static_cast<const EmulatedImage*>(image);
    if (std::strncmp(emulated->magic, EmulatedImage().magic, sizeof emulated->magic) != 0) {
      static auto& once = *new std::atomic<bool>(false);
      say_once(once, "a program loads GPU code, which emulated GPUs cannot run: its kernels are missing here");
      throw Failure{CUDA_ERROR_NO_BINARY_FOR_GPU};
    }
    auto made = std::make_unique<CUmod_st>();
    for (std::uint32_t at = 0; at < emulated->count; ++at) {
      const EmulatedKernel& kernel = emulated->kernels[at];
      require(kernel.name != nullptr && kernel.run != nullptr &&
                  (kernel.parameter_count == 0 || kernel.parameter_sizes != nullptr),
              CUDA_ERROR_INVALID_IMAGE);
      made->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{.kernel = &kernel, .module = made.get()}));
    }
    const std::lock_guard lock(modules().mutex);
    for (const auto& function : made->functions) modules().functions.insert(function.get());
    modules().modules.insert(made.get());
    *module = made.release();
  });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) { return cuModuleLoadData(module, image); }

CUresult cuModuleUnload(CUmodule module) {
  return enter("cuModuleUnload", allocates | unsafe_in_capture, [&] {
    const std::lock_guard lock(modules().mutex);
    require(modules().modules.erase(module) == 1, CUDA_ERROR_INVALID_HANDLE);
    for (const auto& function : module->functions) modules().functions.erase(function.get());
    delete module;  // launches under way hold the kernel, which lives in the image
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return enter("cuModuleGetFunction", plain, [&] {
    require(function != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(modules().mutex);
    require(modules().modules.contains(module), CUDA_ERROR_INVALID_HANDLE);
    for (const auto& each : module->functions) {
      if (std::strcmp(each->kernel->name, name) == 0) {
        *function = each.get();
        return;
      }
    }
    throw Failure{CUDA_ERROR_NOT_FOUND};
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return enter("cuModuleGetFunctionCount", plain, [&] {
    const std::lock_guard lock(modules().mutex);
    require(count != nullptr && modules().modules.contains(module), CUDA_ERROR_INVALID_HANDLE);
    *count = static_cast<unsigned>(module->functions.size());
  });
}

// Emulated modules have no global variables.
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) {
  return enter("cuModuleGetGlobal_v2", plain, [] { throw Failure{CUDA_ERROR_NOT_FOUND}; });
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  return enter("cuFuncGetModule", plain, [&] {
    require(module != nullptr, CUDA_ERROR_INVALID_VALUE);
    *module = checked(function).module;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  return enter("cuFuncGetName", plain, [&] {
    require(name != nullptr, CUDA_ERROR_INVALID_VALUE);
    *name = checked(function).kernel->name;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return enter("cuFuncGetAttribute", plain, [&] {
    require(value != nullptr, CUDA_ERROR_INVALID_VALUE);
    const CUfunc_st& function = checked(handle);
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function.shared_limit;
        break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 90;
        break;
      default:
        *value = 0;
    }
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return enter("cuFuncSetAttribute", plain, [&] {
    CUfunc_st& function = checked(handle);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return;
    require(value >= 0 && value <= 227 << 10, CUDA_ERROR_INVALID_VALUE);
    function.shared_limit = value;
  });
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  return enter("cuFuncSetCacheConfig", plain, [&] { checked(function); });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared_bytes) {
  return enter("cuOccupancyMaxActiveBlocksPerMultiprocessor", plain, [&] {
    require(blocks != nullptr && threads > 0, CUDA_ERROR_INVALID_VALUE);
    checked(handle);
    const std::size_t by_threads = 2048 / static_cast<std::size_t>(threads);
    const std::size_t by_shared = shared_bytes == 0 ? 32 : (std::size_t{228} << 10) / (shared_bytes + 1024);
    *blocks = static_cast<int>(threads > 1024 ? 0 : std::min<std::size_t>({by_threads, by_shared, 32}));
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra) {
  return enter("cuLaunchKernel", plain,
               [&] { launch_kernel(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, extra); });
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void** parameters) {
  return enter("cuLaunchCooperativeKernel", plain, [&] {
    // Only kernels that say so have all their blocks at once.
    require(checked(function).kernel->concurrent, CUDA_ERROR_NOT_SUPPORTED);
    launch_kernel(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, nullptr);
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) {
  return enter("cuLaunchKernelEx", plain, [&] {
    require(config != nullptr, CUDA_ERROR_INVALID_VALUE);
    launch_kernel(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                  {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, config->hStream,
                  parameters, extra);
  });
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream s, void** parameters, void** extra) {
  return on_per_thread(cuLaunchKernel, f, gx, gy, gz, bx, by, bz, shared, s, parameters, extra);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                        unsigned bz, unsigned shared, CUstream s, void** parameters) {
  return on_per_thread(cuLaunchCooperativeKernel, f, gx, gy, gz, bx, by, bz, shared, s, parameters);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra) {
  if (config == nullptr || config->hStream != nullptr) return cuLaunchKernelEx(config, f, parameters, extra);
  CUlaunchConfig own = *config;
  own.hStream = CU_STREAM_PER_THREAD;
  return cuLaunchKernelEx(&own, f, parameters, extra);
}

}  // extern "C"
