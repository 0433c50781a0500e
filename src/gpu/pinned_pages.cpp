// See pinned_pages.h.
#include "gpu/pinned_pages.h"

#include "base/error.h"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

namespace crosslane::gpu {
namespace {

// Shared: of what is private a fork leaves this process another copy than the one that the GPU knows, at its next write.
std::byte* mapped(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw base::Error(base::ErrorClass::no_memory, "the system has no {} bytes left", bytes);
  return static_cast<std::byte*>(memory);
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

void PinnedPages::Unmap::operator()(std::byte* memory) const noexcept { munmap(memory, bytes); }

PinnedPages::PinnedPages(const Driver& driver, std::size_t bytes) : memory_(nullptr, Unmap{whole_pages(bytes)}) {
  memory_.reset(mapped(memory_.get_deleter().bytes));
  pinned_.emplace(driver, memory_.get(), memory_.get_deleter().bytes);
}

PinnedPages& PinnedPages::operator=(PinnedPages&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

}  // namespace crosslane::gpu
