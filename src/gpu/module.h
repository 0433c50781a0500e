// Kernels: a loaded image and the functions in it. This file must not know any kernel by name.
#pragma once

#include "gpu/driver.h"
#include "gpu/life.h"
#include "gpu/stream.h"

#include <array>
#include <cstddef>

namespace crosslane::gpu {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

/// A kernel of a Module. Trivially copied; must not outlive it.
class Function {
 public:
  Function(const Driver& driver, CUfunction function) noexcept : driver_(&driver), function_(function) {}

  /// Launches with one argument a parameter of the kernel, each of exactly its type.
  template <class... Arguments>
  void launch(StreamView stream, Grid blocks, Grid threads, std::size_t shared_bytes, Arguments... arguments) const {
    std::array<void*, sizeof...(arguments) + 1> parameters{&arguments..., nullptr};
    launch_with(stream, blocks, threads, shared_bytes, parameters.data());
  }
  /// The same with CUDA's array of pointers to the arguments.
  void launch_with(StreamView stream, Grid blocks, Grid threads, std::size_t shared_bytes, void** parameters) const;

  [[nodiscard]] int attribute(CUfunction_attribute which) const;
  /// How many blocks of so many threads run at once on one multiprocessor.
  [[nodiscard]] int resident_blocks(int threads, std::size_t shared_bytes) const;
  [[nodiscard]] CUfunction handle() const noexcept { return function_; }

 private:
  const Driver* driver_;
  CUfunction function_;
};

/// An image loaded into the context that is current at construction. Move-only. Load ahead of first use: loading may
/// wait for running kernels.
class Module {
 public:
  /// `image` is a cubin, fatbin or PTX text, or under emulation a gpu::EmulatedImage.
  Module(const Driver& driver, const void* image);
  Module(Module&& other) noexcept;
  Module& operator=(Module&& other) noexcept;
  ~Module();

  /// Throws Error naming a kernel that the image does not have.
  [[nodiscard]] Function function(const char* name) const;

 private:
  const Driver* driver_;
  Life life_;
  CUmodule module_ = nullptr;
};

}  // namespace crosslane::gpu
