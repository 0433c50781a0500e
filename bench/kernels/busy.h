// A share of a GPU's multiprocessors kept busy by the program's own kernels, as TYPES 5.4 has it while messages go.
// It must not know what is measured.
#pragma once

#include "kernels/images.h"

#include <atomic>
#include <memory>
#include <thread>

namespace crosslane::bench {

/// From construction to destruction, kernels of so many blocks run one behind the other on a stream of their own, each 50 us long
/// and a multiprocessor a block. Each ends by itself, so that even a GPU that is busy as a whole gets to other work.
class Busy {
 public:
  /// `percent` of the multiprocessors of the device, whose context is current; 0 keeps none busy. Returns when kernels run.
  Busy(const Device& device, int percent);
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void keep(CUcontext context, CUfunction kernel, unsigned blocks);

  std::unique_ptr<Module> module_;
  std::atomic<bool> runs_{false}, ends_{false};
  std::thread thread_;
};

}  // namespace crosslane::bench
