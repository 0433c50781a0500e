// Copies and fills on a stream. Addresses may be device, managed, pinned or ordinary host memory on either side: the
// driver tells them apart. This file must not know datatypes: strides are all that it understands.
#pragma once

#include "gpu/stream.h"

#include <cstddef>

namespace crosslane::gpu {

/// Enqueues a copy of `bytes`. With ordinary (not pinned) host memory CUDA may do the copy before it returns.
/// From host memory to host memory, pinned or not, it waits for what the stream has to do before.
void copy_async(void* destination, const void* source, std::size_t bytes, StreamView stream);

/// Rows of a strided copy. A pitch is the bytes from one row's start to the next one's, at least `row_bytes`.
struct Rows {
  std::size_t row_bytes = 0;
  std::size_t count = 0;
  std::size_t destination_pitch = 0;
  std::size_t source_pitch = 0;
};

/// Enqueues a copy of rows, as one copy where both sides are dense and as several where a pitch is beyond the GPU's
/// limit for one (CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2 GiB).
void copy_2d_async(void* destination, const void* source, const Rows& rows, StreamView stream);

/// Enqueues a fill with one byte value.
void fill_async(void* destination, unsigned char value, std::size_t bytes, StreamView stream);

}  // namespace crosslane::gpu
