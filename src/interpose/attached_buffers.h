// A buffer for buffered sends that the application attached in GPU memory (MPI 5.0, section 3.6): MPI fills host memory in its place,
// which nobody else ever looks at, and the application gets back what it gave.
#pragma once

#include <cstddef>
#include <memory>

namespace crosslane::interpose {

struct AttachedBuffer {
  void* given;
  std::unique_ptr<std::byte[]> host;
};

}  // namespace crosslane::interpose
