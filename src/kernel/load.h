// Loading a family of kernels into a context, for the classes that launch them.
// It must not know what the kernels do.
#pragma once

#include "gpu/module.h"
#include "kernel/catalogue.h"

namespace crosslane::kernel {

/// True if this driver can be given the kernels: always under emulation, and on GPUs where a GPU compiler was there
/// when the library was built. Without them, copies (gpu/copy.h) are all there is.
[[nodiscard]] bool available(const gpu::Driver& driver) noexcept;

/// A family's image, loaded into the current context. Throws Error (unsupported) where available() is false.
[[nodiscard]] gpu::Module load(const gpu::Driver& driver, Family family);

/// A kernel of a family with its code on the GPU.
[[nodiscard]] gpu::Function loaded(const gpu::Module& module, const char* name);

}  // namespace crosslane::kernel
