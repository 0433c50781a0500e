// See copy_list.h.
#include "gpu/copy_list.h"

#include "gpu/copy.h"

namespace crosslane::gpu {

void CopyList::add(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return;
  destinations_.push_back(reinterpret_cast<CUdeviceptr>(destination));
  sources_.push_back(reinterpret_cast<CUdeviceptr>(source));
  bytes_.push_back(bytes);
}

void CopyList::clear() noexcept {
  destinations_.clear();
  sources_.clear();
  bytes_.clear();
}

void CopyList::enqueue(StreamView stream) {
  const Driver& driver = stream.driver();
  bool together = bytes_.size() > 1 && driver.memcpy_batch_async != nullptr;
  if (together) {
    CopyAttributes attributes;
    std::size_t first = 0, failed = 0;
    together = driver.memcpy_batch_async(destinations_.data(), sources_.data(), bytes_.data(), bytes_.size(),
                                         &attributes, &first, 1, &failed, stream.handle()) == CUDA_SUCCESS;
  }
  // What it may have begun is done again, which changes nothing; and what cannot be done has its own error.
  if (together) return;
  for (std::size_t i = 0; i < bytes_.size(); ++i)
    copy_async(reinterpret_cast<void*>(destinations_[i]), reinterpret_cast<const void*>(sources_[i]), bytes_[i],
               stream);
}

}  // namespace crosslane::gpu
