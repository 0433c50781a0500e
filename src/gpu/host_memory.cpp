// See host_memory.h. What is asked of the system once: the bounds of the program's data, heap and stacks.
#include "gpu/host_memory.h"

#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace crosslane::gpu {
namespace {

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

// Where the heap begins, which never changes (proc_pid_stat(5), start_brk); behind all memory where the kernel is silent.
std::uintptr_t heap_begin() {
  constexpr int fields_before = 44;  // from the state, behind the program's name, up to start_brk
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));  // the name may hold anything
  std::string field;
  for (int i = 0; i < fields_before; ++i) fields >> field;
  std::uintptr_t begin = 0;
  return fields >> begin && begin != 0 ? begin : std::numeric_limits<std::uintptr_t>::max();
}

}  // namespace

constinit thread_local detail::Stack detail::stack{0, 0};

std::uintptr_t detail::find_stack() noexcept {
  pthread_attr_t attributes;
  void* base = nullptr;
  std::size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &base, &size);
    pthread_attr_destroy(&attributes);
  }
  stack.begin = reinterpret_cast<std::uintptr_t>(base);
  return stack.end = stack.begin + size;
}

HostMemory::HostMemory() : heap_begin_(heap_begin()) {
  std::array<std::uintptr_t, 2> range{UINTPTR_MAX, 0};
  dl_iterate_phdr(main_program, &range);
  data_begin_ = range[0];
  data_end_ = range[1];
}

}  // namespace crosslane::gpu
