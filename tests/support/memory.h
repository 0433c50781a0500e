// Test buffers in every kind of memory an application may pass to MPI, with guard bytes on both sides.
// It uses public cu* calls as an application would; it must not know MPI or Crosslane.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace crosslane::tests {

enum class MemoryKind { host, device, managed, pinned };
[[nodiscard]] std::string_view name(MemoryKind kind);

/// Ends the program with the error's name and `call` if a driver call failed: a test cannot continue without its GPU.
void check_cuda(CUresult result, const char* call);
#define CROSSLANE_CUDA(call) ::crosslane::tests::check_cuda((call), #call)

/// The GPU of one rank: its primary context, retained for the life of the object and current in the calling thread.
class Device {
 public:
  /// `local_rank` modulo the number of GPUs chooses. Ends the program if there is no GPU.
  explicit Device(int local_rank);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void make_current() const;  ///< For a thread that allocates or copies.
  [[nodiscard]] bool has_managed_memory() const { return managed_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int ordinal_ = 0;
  bool managed_ = false;
};

/// `bytes` bytes of one kind of memory between two guards, at `offset` bytes past 256-byte alignment. All contents go
/// through host vectors. The destructor reports overwritten guards as a failed check.
class Memory {
 public:
  Memory(MemoryKind kind, std::size_t bytes, std::size_t offset = 0);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  [[nodiscard]] void* data() const { return static_cast<char*>(base_) + guard + offset_; }
  template <class Value>
  [[nodiscard]] Value* as() const {
    return static_cast<Value*>(data());
  }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] MemoryKind kind() const { return kind_; }

  /// Contents are in place when write returns, also for work on other streams.
  void write(std::span<const std::byte> bytes, std::size_t at = 0);
  [[nodiscard]] std::vector<std::byte> read() const { return read(0, bytes_); }
  [[nodiscard]] std::vector<std::byte> read(std::size_t at, std::size_t bytes) const;

  template <class Value>
  void fill(const std::vector<Value>& values) {
    write(std::as_bytes(std::span(values)));
  }
  template <class Value>
  [[nodiscard]] std::vector<Value> values() const {
    const auto bytes = read(0, bytes_ / sizeof(Value) * sizeof(Value));
    std::vector<Value> result(bytes_ / sizeof(Value));
    if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

  [[nodiscard]] bool guards_intact() const;

 private:
  static constexpr std::size_t guard = 256;
  void copy_in(std::size_t at, std::span<const std::byte> bytes) const;  // at: from base_
  void copy_out(std::size_t at, std::span<std::byte> bytes) const;
  void release();

  MemoryKind kind_ = MemoryKind::host;
  void* base_ = nullptr;
  std::size_t bytes_ = 0, offset_ = 0;
};

}  // namespace crosslane::tests
