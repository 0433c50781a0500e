// See host_memory.h.
#include "gpu/host_memory.h"

#include "gpu/driver.h"

#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

namespace crosslane::gpu {
namespace {

std::uintptr_t number(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

// The lowest and highest address of the program's writable segments. The program is the first object.
int main_program(dl_phdr_info* info, std::size_t, void* data) {
  auto& range = *static_cast<std::array<std::uintptr_t, 2>*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    range[0] = std::min(range[0], begin);
    range[1] = std::max(range[1], begin + segment.p_memsz);
  }
  return 1;
}

// The end of this thread's stack; the stack grows down from there. Asked once a thread.
std::uintptr_t stack_end() noexcept {
  static thread_local std::uintptr_t end = 0;
  if (end == 0) {
    pthread_attr_t attributes;
    void* base = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &base, &size);
      pthread_attr_destroy(&attributes);
    }
    end = number(base) + size;
  }
  return end;
}

}  // namespace

HostMemory::HostMemory() {
  std::array<std::uintptr_t, 2> range{UINTPTR_MAX, 0};
  dl_iterate_phdr(main_program, &range);
  data_begin_ = range[0];
  data_end_ = range[1];
}

bool HostMemory::knows(const void* address) const noexcept {
  const std::uintptr_t value = number(address);
  const std::uintptr_t frame = number(__builtin_frame_address(0));
  if (value >= frame && value < stack_end()) return true;
  if (value >= data_begin_ && value < data_end_) return true;
  // The heap begins behind the program's data (at a random distance) and ends at the break.
  const std::uintptr_t page = value >> page_bits;
  if (pages_[slot(page)].load(std::memory_order_relaxed) != page) return false;
  return (value >= data_end_ && value < number(sbrk(0))) || Gpu::readable_by_cpu(address);
}

void HostMemory::remember(const void* address) noexcept {
  const std::uintptr_t page = number(address) >> page_bits;
  pages_[slot(page)].store(page, std::memory_order_relaxed);
}

}  // namespace crosslane::gpu
