// Entries of the emulated CUDA runtime: the program's kernels, which are registered and never run. A launch is refused with a word on standard
// error, since hardly a program asks what became of one.
#include "gpu/emulated/runtime/runtime.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <mutex>

using namespace crosslane::gpu::emulated::runtime;

namespace {

/// dim3.
struct Dimensions {
  unsigned x, y, z;
};

/// What a launch by <<< >>> pushes before, and pops within it.
struct Configuration {
  Dimensions grid{1, 1, 1}, block{1, 1, 1};
  std::size_t shared = 0;
  void* stream = nullptr;
};

Configuration& pushed() noexcept {
  static thread_local Configuration mine;
  return mine;
}

Error refuse() noexcept {
  static std::once_flag said;
  std::call_once(said, [] {
    std::fputs(
        "crosslane: emulated GPUs run no kernels of the program, and have none of its variables: such calls fail with "
        "cudaErrorNotSupported\n",
        stderr);
  });
  return told(CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* /*image*/) {
  static std::array<void*, 1> handle{};
  return handle.data();
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}
char __cudaInitModule(void** /*handle*/) { return 1; }
void __cudaRegisterFunction() {}
void __cudaRegisterVar() {}
void __cudaRegisterManagedVar() {}
void __cudaRegisterHostVar() {}

unsigned __cudaPushCallConfiguration(Dimensions grid, Dimensions block, std::size_t shared, void* stream) {
  pushed() = {grid, block, shared, stream};
  return 0;
}

Error __cudaPopCallConfiguration(Dimensions* grid, Dimensions* block, std::size_t* shared, void* stream) {
  *grid = pushed().grid;
  *block = pushed().block;
  *shared = pushed().shared;
  *static_cast<void**>(stream) = pushed().stream;
  return CUDA_SUCCESS;
}

Error __cudaGetKernel() { return refuse(); }
Error __cudaLaunchKernel() { return refuse(); }
Error __cudaLaunchKernel_ptsz() { return refuse(); }
Error cudaGetKernel() { return refuse(); }
Error cudaLaunchKernel() { return refuse(); }
Error cudaLaunchKernel_ptsz() { return refuse(); }
Error cudaLaunchKernelExC() { return refuse(); }
Error cudaLaunchKernelExC_ptsz() { return refuse(); }
Error cudaLaunchCooperativeKernel() { return refuse(); }
Error cudaLaunchCooperativeKernel_ptsz() { return refuse(); }
Error cudaFuncGetAttributes() { return refuse(); }
Error cudaFuncSetAttribute() { return refuse(); }
Error cudaFuncSetCacheConfig() { return CUDA_SUCCESS; }  // a hint
Error cudaGetSymbolAddress() { return refuse(); }
Error cudaGetSymbolSize() { return refuse(); }
Error cudaMemcpyToSymbol() { return refuse(); }
Error cudaMemcpyFromSymbol() { return refuse(); }
Error cudaMemcpyToSymbol_ptds() { return refuse(); }
Error cudaMemcpyFromSymbol_ptds() { return refuse(); }
Error cudaMemcpyToSymbolAsync_ptsz() { return refuse(); }
Error cudaMemcpyFromSymbolAsync_ptsz() { return refuse(); }
Error cudaMemcpyToSymbolAsync() { return refuse(); }
Error cudaMemcpyFromSymbolAsync() { return refuse(); }

}  // extern "C"
