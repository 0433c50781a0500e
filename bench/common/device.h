// This rank's GPU, and memory on it and beside it, as an application that uses the CUDA driver API has them.
// It must not know MPI, nor anything of Crosslane.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace crosslane::bench {

/// Throws std::runtime_error with the driver's name for the error.
void check(CUresult result, const char* call);

/// True if the driver in this process is the emulated one.
[[nodiscard]] bool emulated();

/// The GPU that the rank `local_rank` of its node uses, with its primary context current, and one stream.
class Device {
 public:
  /// Ranks take the GPUs in turn: all of the node, or the first `most_gpus` of them.
  explicit Device(int local_rank, int most_gpus = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] CUdevice ordinal() const noexcept { return device_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  /// True if kernels of several processes take turns on this GPU: there is no MPS.
  [[nodiscard]] bool takes_turns() const;
  [[nodiscard]] CUstream stream() const noexcept { return stream_; }
  /// Waits for the stream, as an application does that needs its result.
  void wait() const { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  int count_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::string name_;
};

/// Device memory; 0 bytes allocate nothing.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }
  [[nodiscard]] void* pointer() const noexcept { return reinterpret_cast<void*>(address_); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t size_;
};

/// Device memory of another process, as mapped here.
class PeerBuffer {
 public:
  explicit PeerBuffer(const CUipcMemHandle& handle);
  ~PeerBuffer();
  PeerBuffer(const PeerBuffer&) = delete;
  PeerBuffer& operator=(const PeerBuffer&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

/// Pinned host memory: what a careful application copies through.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace crosslane::bench
