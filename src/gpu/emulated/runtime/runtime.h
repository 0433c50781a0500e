// What the entries of the emulated CUDA runtime share: its state of a thread, and how an entry runs. NVIDIA's runtime takes the undocumented side
// of NVIDIA's driver alone; programs that link it shared (nvcc -cudart shared) have this one on emulated GPUs, as it is preloaded. It calls
// the driver's public entries and nothing else of the house. Its binary interface is that of CUDA 12 and 13 (CUDA Runtime API Reference);
// no header of the runtime is included, since those of one release differ from the other's.
#pragma once

#include <cuda.h>

namespace crosslane::gpu::emulated::runtime {

/// cudaError_t: the runtime's numbers are the driver's.
using Error = CUresult;
/// cudaErrorInvalidMemcpyDirection, of which the driver has none.
inline constexpr auto invalid_direction = static_cast<Error>(21);

/// Where the thread works: the device of its current context, or the one that it has chosen, or 0.
[[nodiscard]] int device() noexcept;
/// Makes the device's primary context the thread's current one. Unknown device: CUDA_ERROR_INVALID_DEVICE.
[[nodiscard]] Error choose(int device) noexcept;
/// After cudaDeviceReset: the thread's next entry takes the primary context again.
void forget_context() noexcept;

/// Keeps a failure as the thread's last error, and passes it on.
Error told(Error error) noexcept;
/// The last error; it is forgotten if `forget`.
[[nodiscard]] Error last_error(bool forget) noexcept;

/// Initialises the driver.
[[nodiscard]] Error initialise() noexcept;
/// Initialises the driver, and gives a thread without a context the primary one of its device.
[[nodiscard]] Error enter() noexcept;

/// An entry that needs the driver, but no context.
template <class Do>
Error run_without_context(Do&& what) noexcept {
  const Error error = initialise();
  return told(error == CUDA_SUCCESS ? what() : error);
}

/// An entry: what it does needs a context.
template <class Do>
Error run(Do&& what) noexcept {
  const Error error = enter();
  return told(error == CUDA_SUCCESS ? what() : error);
}

inline CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace crosslane::gpu::emulated::runtime
