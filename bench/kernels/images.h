// The benchmarks' own kernels, for GPUs alone: there is no code of them for emulated ones. It must not know MPI.
#pragma once

#include "common/device.h"

#include <cstddef>
#include <span>
#include <string>

namespace crosslane::bench {

/// Fat binaries as cuModuleLoadData takes them; empty where the build has no GPU compiler.
[[nodiscard]] std::span<const std::byte> busy_image() noexcept;
[[nodiscard]] std::span<const std::byte> halo_image() noexcept;
[[nodiscard]] std::span<const std::byte> work_image() noexcept;

/// Why this process cannot run them: "" if it can.
[[nodiscard]] std::string no_kernels();

/// An image in the current context.
class Module {
 public:
  explicit Module(std::span<const std::byte> image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  [[nodiscard]] CUfunction function(const char* name) const;

 private:
  CUmodule module_ = nullptr;
};

}  // namespace crosslane::bench
