// Whether a context still stands: an application may reset its GPU or destroy a context before MPI_Finalize, and a real driver crashes on
// handles of what went with it. It must not know the handles.
#pragma once

#include "gpu/driver.h"

namespace crosslane::gpu {

/// The life of the context that is current at construction; of none, it is over. For owners of handles: what they own ends with it.
class Life {
 public:
  Life() noexcept = default;
  explicit Life(const Driver& driver) noexcept;
  /// The same of a context that need not be current.
  static Life of(const Driver& driver, CUcontext context);

  [[nodiscard]] CUcontext context() const noexcept { return context_; }

  /// The context was destroyed or reset, or the process exits: its handles must not be touched.
  [[nodiscard]] bool over() const noexcept;

 private:
  const Driver* driver_ = nullptr;
  CUcontext context_ = nullptr;
  CUdevice device_ = -1;
  bool primary_ = false;
  unsigned long long id_ = 0;
};

}  // namespace crosslane::gpu
