// See exposure.h.
#include "share/exposure.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"

#include <algorithm>
#include <cstring>

namespace crosslane::share {

Exposed Exposure::show(const gpu::PointerInfo& info, const void* buffer) noexcept {
  const std::lock_guard lock(mutex_);
  if (info.kind != gpu::PointerInfo::Kind::device || info.context != context_) return {};
  auto found = own_.find(info.buffer_id);
  if (found == own_.end()) {
    drop_dead();
    WindowRecord& record = board_.own_window();
    const auto slot = std::ranges::find_if(record.shown, [](const auto& id) { return id.load() == 0; });
    if (slot == record.shown.end()) return {};
    CUipcMemHandle handle;
    {
      const gpu::ContextScope scope(driver_, context_);
      if (driver_.ipc_get_mem_handle(&handle, info.base) != CUDA_SUCCESS) return {};
    }
    Own own{info.base, static_cast<std::size_t>(slot - record.shown.begin()), {}};
    std::memcpy(own.handle.data(), &handle, sizeof handle);
    record.version.fetch_add(1, std::memory_order_acq_rel);
    slot->store(info.buffer_id, std::memory_order_relaxed);
    record.version.fetch_add(1, std::memory_order_release);
    found = own_.emplace(info.buffer_id, own).first;
  }
  return {info.buffer_id, reinterpret_cast<std::uintptr_t>(buffer) - info.base, found->second.handle};
}

// Ids are never used again: an allocation is gone once its address belongs to none or to another.
void Exposure::drop_dead() noexcept {
  WindowRecord& record = board_.own_window();
  for (auto each = own_.begin(); each != own_.end();) {
    std::uint64_t id = 0;
    const bool lives =
        driver_.pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, each->second.base) == CUDA_SUCCESS &&
        id == each->first;
    if (lives) {
      ++each;
      continue;
    }
    record.version.fetch_add(1, std::memory_order_acq_rel);
    record.shown[each->second.slot].store(0, std::memory_order_relaxed);
    record.version.fetch_add(1, std::memory_order_release);
    each = own_.erase(each);
  }
}

template <class Condition>
bool Exposure::close_those(int local_rank, Condition&& condition) noexcept {
  const std::size_t closed = std::erase_if(
      peers_, [&](const auto& each) { return each.first.first == local_rank && condition(each.first, each.second); });
  closings_.fetch_add(closed, std::memory_order_relaxed);
  return closed != 0;
}

bool Exposure::close_unheld(int local_rank) noexcept {
  const std::lock_guard lock(mutex_);
  return close_what_nobody_holds(local_rank);
}

bool Exposure::close_what_nobody_holds(int local_rank) noexcept {
  return close_those(local_rank, [](const Key&, const Peer& peer) { return peer.mapping.use_count() == 1; });
}

void Exposure::close_revoked(int local_rank) noexcept {
  const WindowRecord& record = board_.window(local_rank);
  const std::uint64_t version = record.version.load(std::memory_order_acquire);
  if (version % 2 != 0 || seen_version_[local_rank] == version) return;
  std::array<std::uint64_t, WindowRecord::most_shown> shown;
  for (std::size_t slot = 0; slot < shown.size(); ++slot)
    shown[slot] = record.shown[slot].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.version.load(std::memory_order_relaxed) != version) return;
  seen_version_[local_rank] = version;
  close_those(local_rank,
              [&](const Key& key, const Peer&) { return std::ranges::find(shown, key.second) == shown.end(); });
}

// Of those that nobody holds; false where there is none.
bool Exposure::close_oldest() noexcept {
  auto oldest = peers_.end();
  for (auto each = peers_.begin(); each != peers_.end(); ++each) {
    if (each->second.mapping.use_count() > 1) continue;
    if (oldest == peers_.end() || each->second.used < oldest->second.used) oldest = each;
  }
  if (oldest == peers_.end()) return false;
  peers_.erase(oldest);
  closings_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::shared_ptr<const gpu::Mapping> Exposure::hold(int local_rank, const Exposed& buffer) noexcept {
  const std::lock_guard lock(mutex_);
  return open(local_rank, buffer);
}

std::shared_ptr<const gpu::Mapping> Exposure::map(int local_rank, const CUipcMemHandle& handle) {
  try {
    return std::make_shared<const gpu::Mapping>(driver_, handle);
  } catch (const base::Error&) {
    if (!close_what_nobody_holds(local_rank)) throw;
  }
  return std::make_shared<const gpu::Mapping>(driver_, handle);
}

std::shared_ptr<const gpu::Mapping> Exposure::open(int local_rank, const Exposed& buffer) noexcept {
  const Key key{local_rank, buffer.id};
  auto found = peers_.find(key);
  try {
    if (found == peers_.end()) {
      const gpu::ContextScope scope(driver_, context_);
      close_revoked(local_rank);
      while (peers_.size() >= most_open && close_oldest()) {}
      CUipcMemHandle handle;
      std::memcpy(&handle, buffer.handle.data(), sizeof handle);
      found = peers_.emplace(key, Peer{map(local_rank, handle), 0}).first;
    }
  } catch (const base::Error& error) {
    base::log(base::Topic::debug, "a buffer of local rank {} cannot be mapped: {}", local_rank, error.what());
    return nullptr;
  }
  found->second.used = ++uses_;
  return found->second.mapping;
}

}  // namespace crosslane::share
