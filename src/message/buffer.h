// Buffer: what a message is sent from, or received into. It must not know which.
#pragma once

#include "lane/copier.h"
#include "layout/layout.h"
#include "mpi/library.h"

#include <cstddef>
#include <memory>

namespace crosslane::message {

/// Elements of a layout, in GPU memory or on the host.
struct Buffer {
  bool on_gpu = false;
  lane::Place place;        ///< Of GPU memory.
  gpu::PointerInfo seen{};  ///< What was found at its lowest byte in this very call, if anything.
  std::byte* address = nullptr;
  std::shared_ptr<const layout::Layout> layout;
  MPI_Count count = 0;
  std::size_t bytes = 0;        ///< Packed.
  std::shared_ptr<void> owner;  ///< Of a packed host copy, which is kept as long as MPI reads it.

  /// Its lowest byte.
  [[nodiscard]] std::byte* first() const {
    return lane::byte_at(address, static_cast<std::ptrdiff_t>(layout->span(count).begin));
  }
};

}  // namespace crosslane::message
