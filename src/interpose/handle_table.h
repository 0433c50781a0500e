// What is kept beside handles of MPI's that the application holds. Thread-safe; asking costs one load while nothing is kept.
// It must not know what a handle stands for.
#pragma once

#include "base/light_mutex.h"
#include "base/recycler.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace crosslane::interpose {

/// A handle is a pointer or a number, by the family of MPI.
template <class Handle, class Kept>
class HandleTable {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_.load(std::memory_order_acquire) == 0; }

  /// In place of what was kept beside that handle, whose object is gone.
  void put(Handle handle, std::shared_ptr<Kept> kept) {
    std::shared_ptr<Kept> before;  // ends when the table is free again, which it may use
    const std::lock_guard lock(mutex_);
    before = std::exchange(kept_[key(handle)], std::move(kept));
    size_.store(kept_.size(), std::memory_order_release);
  }

  /// Null where nothing is kept.
  [[nodiscard]] std::shared_ptr<Kept> find(Handle handle) const {
    if (empty()) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key(handle));
    return found == kept_.end() ? nullptr : found->second;
  }

  /// The same of each of these handles but `none`: f(index, kept) where there is something. f must not use the table.
  template <class F>
  void find_each(const Handle* handles, int count, Handle none, const F& f) const {
    if (empty()) return;
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
      if (handles[i] == none) continue;
      const auto found = kept_.find(key(handles[i]));
      if (found != kept_.end()) f(i, found->second);
    }
  }

  /// The same, and it is kept no more.
  [[nodiscard]] std::shared_ptr<Kept> take(Handle handle) {
    if (empty()) return nullptr;
    const std::lock_guard lock(mutex_);
    auto node = kept_.extract(key(handle));
    if (!node) return nullptr;
    size_.store(kept_.size(), std::memory_order_release);
    return std::move(node.mapped());
  }

  /// Nothing more of this object, unless something else is kept beside the handle by now.
  void drop(Handle handle, const std::shared_ptr<Kept>& kept) {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key(handle));
    if (found != kept_.end() && found->second == kept) kept_.erase(found);
    size_.store(kept_.size(), std::memory_order_release);
  }

  /// What is kept beside it, made by `make()` if there is nothing.
  template <class Make>
  [[nodiscard]] std::shared_ptr<Kept> find_or_put(Handle handle, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto& kept = kept_[key(handle)];
    if (kept == nullptr) kept = make();
    size_.store(kept_.size(), std::memory_order_release);
    return kept;
  }

  /// Calls f(handle, kept) for each; f must not use the table.
  template <class F>
  void for_each(const F& f) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [bits, kept] : kept_) f(handle_of(bits), kept);
  }

  /// The same of some, the next ones each time: until f has said yes so many times, or it would cost too much to look on. `at` is 0 at first, and this
  /// function's.
  template <class F>
  void for_some(std::size_t& at, std::size_t most, const F& f) const {
    const std::lock_guard lock(mutex_);
    if (kept_.size() <= most) {
      for (const auto& [bits, kept] : kept_) f(handle_of(bits), kept);
      return;
    }
    const std::size_t buckets = kept_.bucket_count();  // which stays as it is when much is taken out
    std::size_t cost = 4096, found = 0;
    for (std::size_t looked = 0; looked < buckets && found < most && cost-- != 0; ++looked) {
      at = at + 1 < buckets ? at + 1 : 0;
      for (auto each = kept_.begin(at); each != kept_.end(at); ++each)
        if (f(handle_of(each->first), each->second)) ++found;
    }
  }

 private:
  static Handle handle_of(std::uint64_t bits) noexcept {
    Handle handle{};
    std::memcpy(&handle, &bits, sizeof handle);
    return handle;
  }
  static std::uint64_t key(Handle handle) noexcept {
    static_assert(sizeof handle <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    std::memcpy(&bits, &handle, sizeof handle);
    return bits;
  }

  std::atomic<std::size_t> size_{0};
  mutable base::LightMutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Kept>, std::hash<std::uint64_t>, std::equal_to<>,
                     base::RecyclingAllocator<std::pair<const std::uint64_t, std::shared_ptr<Kept>>>>
      kept_;
};

}  // namespace crosslane::interpose
