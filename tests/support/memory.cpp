// Allocation, guards and copies of test buffers, and the rank's GPU. It must not know MPI or Crosslane.
#include "support/memory.h"

#include "support/capturing.h"
#include "support/check.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

namespace crosslane::tests {
namespace {

constexpr std::byte guard_byte{0xa5};
constexpr std::align_val_t alignment{256};

// While one lives, the driver's calls for a buffer of that kind are the test's own.
class Own {
 public:
  explicit Own(MemoryKind kind) {
    if (kind != MemoryKind::host) outside_.emplace();
  }

 private:
  std::optional<OutsideCapture> outside_;
};

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

std::string_view name(MemoryKind kind) {
  constexpr std::array<std::string_view, 4> names{"host", "device", "managed", "pinned"};
  return names.at(static_cast<std::size_t>(kind));
}

void check_cuda(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  if (cuGetErrorName(result, &text) != CUDA_SUCCESS || text == nullptr) text = "an unknown error";
  std::fprintf(stderr, "%s: %s\n", call, text);
  std::fflush(stderr);
  std::_Exit(1);
}

Device::Device(int local_rank) {
  CROSSLANE_CUDA(cuInit(0));
  int count = 0;
  CROSSLANE_CUDA(cuDeviceGetCount(&count));
  if (count == 0) check_cuda(CUDA_ERROR_NO_DEVICE, "a GPU for this rank");
  ordinal_ = local_rank % count;
  CROSSLANE_CUDA(cuDeviceGet(&device_, ordinal_));
  int managed = 0;
  CROSSLANE_CUDA(cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device_));
  managed_ = managed != 0;
  CROSSLANE_CUDA(cuDevicePrimaryCtxRetain(&context_, device_));
  make_current();
}

Device::~Device() { cuDevicePrimaryCtxRelease(device_); }

void Device::make_current() const { CROSSLANE_CUDA(cuCtxSetCurrent(context_)); }

Memory::Memory(MemoryKind kind, std::size_t bytes, std::size_t offset) : kind_(kind), bytes_(bytes), offset_(offset) {
  const std::size_t whole = bytes + offset + 2 * guard;
  CUdeviceptr pointer = 0;
  const Own own(kind);
  switch (kind) {
    case MemoryKind::host:
      base_ = ::operator new(whole, alignment);
      break;
    case MemoryKind::pinned:
      CROSSLANE_CUDA(cuMemHostAlloc(&base_, whole, CU_MEMHOSTALLOC_PORTABLE));
      break;
    case MemoryKind::device:
      CROSSLANE_CUDA(cuMemAlloc(&pointer, whole));
      break;
    case MemoryKind::managed:
      CROSSLANE_CUDA(cuMemAllocManaged(&pointer, whole, CU_MEM_ATTACH_GLOBAL));
      break;
  }
  if (pointer != 0) base_ = reinterpret_cast<void*>(pointer);
  const std::vector<std::byte> before(guard + offset, guard_byte), after(guard, guard_byte);
  copy_in(0, before);
  copy_in(guard + offset + bytes, after);
}

Memory::~Memory() { release(); }

Memory::Memory(Memory&& other) noexcept
    : kind_(other.kind_), base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), offset_(other.offset_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this == &other) return *this;
  release();
  kind_ = other.kind_;
  base_ = std::exchange(other.base_, nullptr);
  bytes_ = other.bytes_;
  offset_ = other.offset_;
  return *this;
}

void Memory::release() {
  if (base_ == nullptr) return;
  CROSSLANE_CHECK(guards_intact(), "the guards of {} bytes of {} memory were overwritten", bytes_, name(kind_));
  const Own own(kind_);
  switch (kind_) {
    case MemoryKind::host:
      ::operator delete(base_, alignment);
      break;
    case MemoryKind::pinned:
      CROSSLANE_CUDA(cuMemFreeHost(base_));
      break;
    case MemoryKind::device:
    case MemoryKind::managed:
      CROSSLANE_CUDA(cuMemFree(address(base_)));
      break;
  }
  base_ = nullptr;
}

void Memory::write(std::span<const std::byte> bytes, std::size_t at) {
  CROSSLANE_CHECK(at + bytes.size() <= bytes_, "the test writes {} bytes at {} of {}", bytes.size(), at, bytes_);
  copy_in(guard + offset_ + at, bytes);
}

std::vector<std::byte> Memory::read(std::size_t at, std::size_t bytes) const {
  std::vector<std::byte> result(bytes);
  copy_out(guard + offset_ + at, result);
  return result;
}

bool Memory::guards_intact() const {
  std::vector<std::byte> before(guard + offset_), after(guard);
  copy_out(0, before);
  copy_out(guard + offset_ + bytes_, after);
  const auto whole = [](const std::vector<std::byte>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == guard_byte; });
  };
  return whole(before) && whole(after);
}

void Memory::copy_in(std::size_t at, std::span<const std::byte> bytes) const {
  if (bytes.empty()) return;
  char* to = static_cast<char*>(base_) + at;
  const Own own(kind_);
  if (kind_ == MemoryKind::device) {
    CROSSLANE_CUDA(cuMemcpyHtoD(address(to), bytes.data(), bytes.size()));
    // From pageable memory the copy returns once the source was read; MPI assumes that the buffer is ready.
    CROSSLANE_CUDA(cuStreamSynchronize(CU_STREAM_LEGACY));
  } else {
    std::memcpy(to, bytes.data(), bytes.size());
  }
}

void Memory::copy_out(std::size_t at, std::span<std::byte> bytes) const {
  if (bytes.empty()) return;
  const char* from = static_cast<const char*>(base_) + at;
  const Own own(kind_);
  if (kind_ == MemoryKind::device)
    CROSSLANE_CUDA(cuMemcpyDtoH(bytes.data(), address(from), bytes.size()));
  else
    std::memcpy(bytes.data(), from, bytes.size());
}

}  // namespace crosslane::tests
