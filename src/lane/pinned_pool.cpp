// See pinned_pool.h.
#include "lane/pinned_pool.h"

#include "base/error.h"
#include "base/log.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace crosslane::lane {
namespace {

// Of blocks of ordinary memory, a page or two of each of which are there.
constexpr std::size_t most_untouched = 256;

constexpr auto has_some = [](const auto& blocks) noexcept { return !blocks.second.empty(); };

// Rounds up to the next of four sizes an octave: at most a quarter is wasted, and few classes stay.
std::size_t class_size(std::size_t bytes) {
  constexpr std::size_t smallest = 4096;
  if (bytes <= smallest) return smallest;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

HostBlock::HostBlock(HostBlock&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      pinned_(std::move(other.pinned_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      ended_(other.ended_),
      used_(other.used_) {}

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pinned_, other.pinned_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(ended_, other.ended_);
  std::swap(used_, other.used_);
  return *this;
}

HostBlock::~HostBlock() {
  if (pool_ != nullptr) pool_->take_back(*this);
}

HostBlock PinnedPool::lend(Pinned buffer, std::size_t size) noexcept {
  HostBlock block;
  block.data_ = buffer->data();
  block.pinned_ = std::move(buffer);
  block.size_ = size;
  block.ended_ = ended_;
  block.pool_ = this;
  return block;
}

HostBlock PinnedPool::lend_kept(CUcontext context, std::size_t bytes) {
  const std::size_t size = class_size(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find({context, size});
  if (found == kept_.end() || found->second.empty()) return {};
  Pinned buffer = std::move(found->second.back());
  found->second.pop_back();
  return lend(std::move(buffer), size);
}

HostBlock PinnedPool::lend(std::size_t bytes) {
  CUcontext context = nullptr;
  gpu::check(driver_(), driver_().ctx_get_current(&context), "cuCtxGetCurrent");
  if (HostBlock kept = lend_kept(context, bytes); kept.data() != nullptr) return kept;
  const std::size_t size = class_size(bytes);
  const std::lock_guard lock(mutex_);
  Pinned buffer;
  make_room(size);
  if (pinned_ + size <= limit_) {
    for (int attempt = 0; attempt < 2 && buffer == nullptr; ++attempt) {
      try {
        buffer = std::make_unique<gpu::PinnedBuffer>(driver_(), size);
        pinned_ += size;
      } catch (const base::Error&) {
        trim();  // memory kept in other classes may be what is missing
      }
    }
  }
  if (buffer != nullptr) return lend(std::move(buffer), size);
  if (!std::exchange(fallback_said_, true)) {
    base::log(
        base::Topic::warning,
        "no pinned host memory left for staging ({} bytes in use, {} wanted, limit {}): ordinary memory is used, "
        "which copies more slowly; raise CROSSLANE_PINNED_LIMIT or the machine's locked-memory limit, or have fewer "
        "messages in flight",
        pinned_, size, limit_);
  }
  return ordinary(size);
}

PinnedPool::~PinnedPool() {
  for (const auto& [size, blocks] : untouched_)
    for (std::byte* const block : blocks) std::free(block);
}

HostBlock PinnedPool::lend_ordinary(std::size_t bytes) {
  const std::size_t size = class_size(bytes);
  HostBlock block;
  {
    const std::lock_guard lock(mutex_);
    // A longer one does as well: nobody touches the rest.
    const auto found = std::find_if(untouched_.lower_bound(size), untouched_.end(), has_some);
    if (found != untouched_.end()) {
      block.data_ = found->second.back();
      block.size_ = found->first;
      block.pool_ = this;
      found->second.pop_back();
      --untouched_count_;
    }
  }
  if (block.data_ == nullptr) block = ordinary(size);
  block.used_ = false;
  return block;
}

HostBlock PinnedPool::ordinary(std::size_t size) {
  HostBlock block;
  block.data_ = static_cast<std::byte*>(std::malloc(size));
  if (block.data_ == nullptr)
    throw base::Error(base::ErrorClass::no_memory,
                      "staging needs {} bytes of host memory and the system has none left; "
                      "send in smaller pieces or have fewer messages in flight",
                      size);
  block.size_ = size;
  block.pool_ = this;
  return block;
}

void PinnedPool::take_back(HostBlock& block) noexcept {
  const std::lock_guard lock(mutex_);
  if (block.pinned_ == nullptr) {
    bool kept = !block.used_ && (untouched_count_ < most_untouched || drop_shorter(block.size_));
    try {
      if (kept) untouched_[block.size_].push_back(block.data_);
    } catch (const std::bad_alloc&) {
      kept = false;  // no memory for the list
    }
    if (kept)
      ++untouched_count_;
    else
      std::free(block.data_);
    return;
  }
  if (block.ended_ != ended_ && block.pinned_->gone()) {
    pinned_ -= block.size_;
    return;
  }
  try {
    kept_[{block.pinned_->context(), block.size_}].push_back(std::move(block.pinned_));
  } catch (const std::bad_alloc&) {
    pinned_ -= block.size_;  // no memory for the list: the block is freed instead of kept
  }
}

// One that serves fewer needs than one of so many bytes does. False where there is none.
bool PinnedPool::drop_shorter(std::size_t bytes) noexcept {
  const auto found = std::ranges::find_if(untouched_, has_some);
  if (found == untouched_.end() || found->first >= bytes) return false;
  std::free(found->second.back());
  found->second.pop_back();
  --untouched_count_;
  return true;
}

void PinnedPool::forget(CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  ++ended_;
  for (const auto& [kept, blocks] : kept_)
    if (kept.context == context) pinned_ -= kept.size * blocks.size();
  std::erase_if(kept_, [&](const auto& each) { return each.first.context == context; });
}

void PinnedPool::make_room(std::size_t bytes) noexcept {
  for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
    auto& [kept, blocks] = *at;
    for (; pinned_ + bytes > limit_ && !blocks.empty(); blocks.pop_back()) pinned_ -= kept.size;
  }
}

void PinnedPool::trim() noexcept {
  for (const auto& [kept, blocks] : kept_) pinned_ -= kept.size * blocks.size();
  kept_.clear();
}

}  // namespace crosslane::lane
