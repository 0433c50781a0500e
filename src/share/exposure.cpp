// See exposure.h.
#include "share/exposure.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

namespace crosslane::share {

Exposure::Exposure(const gpu::Driver& driver, CUcontext context, Board& board, base::Unmap unmap)
    : driver_(driver), context_(context), board_(board), unmap_(unmap) {
  if (unmap_ == base::Unmap::at_rest && driver_.ctx_record_event == nullptr)
    base::log(base::Topic::warning,
              "CROSSLANE_UNMAP=at_rest: this driver, older than CUDA 12.5, does not tell whether a GPU rests: memory "
              "that other ranks free is not given back before MPI_Finalize");
}

bool Exposure::shows(const gpu::PointerInfo& info) const noexcept {
  return info.kind == gpu::PointerInfo::Kind::device && info.context == context_;
}

Exposed Exposure::show(const gpu::PointerInfo& info, const void* buffer) noexcept {
  const std::lock_guard lock(mutex_);
  return shows(info) ? show_locked(info, buffer) : Exposed{};
}

Exposed Exposure::show_if_used(const gpu::PointerInfo& info, const void* buffer, unsigned uses) noexcept {
  const std::lock_guard lock(mutex_);
  if (!shows(info) || (!own_.contains(info.buffer_id) && !count_use(info.buffer_id, uses))) return {};
  return show_locked(info, buffer);
}

// Counts anew once it has said yes: of what is shown, is withdrawn and comes again, as of what has found no slot.
bool Exposure::count_use(std::uint64_t id, unsigned uses) noexcept {
  Candidate& candidate = candidates_[id % candidates_.size()];
  if (candidate.id != id) candidate = {id, 0};
  if (++candidate.uses < uses) return false;
  candidate = {};
  drop_dead();
  return own_.size() < board_.own_window().shown.size();
}

Exposed Exposure::show_locked(const gpu::PointerInfo& info, const void* buffer) noexcept {
  auto found = own_.find(info.buffer_id);
  if (found == own_.end()) {
    try {
      CUipcMemHandle handle;
      {
        const gpu::ContextScope scope(driver_, context_);
        const gpu::OutsideCaptures outside(driver_);
        if (driver_.ipc_get_mem_handle(&handle, info.base) != CUDA_SUCCESS) return {};
      }
      drop_dead();
      Own own{info.base, free_slot(), {}, 0};
      std::memcpy(own.handle.data(), &handle, sizeof handle);
      found = own_.emplace(info.buffer_id, own).first;
    } catch (const std::exception& error) {
      base::log(base::Topic::debug, "a buffer is not shown to others: {}", error.what());
      return {};
    }
    change_record([&](WindowRecord& record) {
      record.shown[found->second.slot].store(info.buffer_id, std::memory_order_relaxed);
    });
  }
  found->second.used = ++uses_;
  return {info.buffer_id, reinterpret_cast<std::uintptr_t>(buffer) - info.base, found->second.handle};
}

// Ids are never used again: an allocation is gone once its address belongs to none or to another. They are checked in turns.
void Exposure::drop_dead() noexcept {
  for (std::size_t left = std::min(own_.size(), checked_at_once); left != 0; --left) {
    auto own = own_.upper_bound(last_checked_);
    if (own == own_.end()) own = own_.begin();
    last_checked_ = own->first;
    std::uint64_t id = 0;
    const bool lives =
        driver_.pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, own->second.base) == CUDA_SUCCESS &&
        id == own->first;
    if (!lives) withdraw(own, Gone::dead);
  }
}

std::size_t Exposure::free_slot() noexcept {
  const WindowRecord& record = board_.own_window();
  if (own_.size() == record.shown.size())
    withdraw(std::ranges::min_element(own_, {}, [](const auto& each) { return each.second.used; }), Gone::alive);
  const auto slot =
      std::ranges::find_if(record.shown, [](const auto& id) { return id.load(std::memory_order_relaxed) == 0; });
  return static_cast<std::size_t>(slot - record.shown.begin());
}

// Who sees any of it, or finds the version odd, reads nothing.
template <class Change>
void Exposure::change_record(Change&& change) noexcept {
  WindowRecord& record = board_.own_window();
  record.version.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  change(record);
  record.version.fetch_add(1, std::memory_order_release);
}

void Exposure::withdraw(OwnById::iterator own, Gone gone) noexcept {
  change_record([&](WindowRecord& record) {
    if (gone == Gone::alive) record.evicted.fetch_add(1, std::memory_order_relaxed);
    record.shown[own->second.slot].store(0, std::memory_order_relaxed);
  });
  own_.erase(own);
}

template <class Condition>
std::size_t Exposure::close_those(int local_rank, Condition&& condition) noexcept {
  return std::erase_if(
      peers_, [&](const auto& each) { return each.first.first == local_rank && condition(each.first, each.second); });
}

// With the context current, before each: other threads may launch what they like meanwhile. Where the driver does not tell whether the GPU works it is
// taken to do so.
bool Exposure::may_close(Closing closing) noexcept {
  if (closing == Closing::at_once || unmap_ == base::Unmap::soon) return true;
  try {
    if (!under_way_) under_way_.emplace(driver_);
    return under_way_->record_context() && under_way_->done();
  } catch (const base::Error& error) {
    base::log(base::Topic::debug, "no mapping is closed: {}", error.what());
    return false;
  }
}

void Exposure::close_revoked(int local_rank, Closing closing) noexcept {
  const WindowRecord& record = board_.window(local_rank);
  const std::uint64_t version = record.version.load(std::memory_order_acquire);
  std::uint64_t& seen = seen_[local_rank];
  if (version % 2 != 0 || seen == version) return;
  std::array<std::uint64_t, WindowRecord::most_shown> shown;
  for (std::size_t slot = 0; slot < shown.size(); ++slot)
    shown[slot] = record.shown[slot].load(std::memory_order_relaxed);
  const bool some_live = record.evicted.load(std::memory_order_relaxed) != 0;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.version.load(std::memory_order_relaxed) != version) return;
  std::ranges::sort(shown);
  bool left = false;
  const std::size_t closed = close_those(local_rank, [&](const Key& key, const Peer& peer) {
    if (std::ranges::binary_search(shown, key.second)) return false;
    if (peer.mapping.use_count() == 1 && may_close(closing)) return true;
    left = true;
    return false;
  });
  // What is dead is never reached again. Who has withdrawn what lives may have done so before this rank opened it.
  if (some_live) closings_.fetch_add(closed, std::memory_order_relaxed);
  if (!left) seen = version;
}

void Exposure::tend() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // somebody does as much
  drop_dead();
  try {
    const gpu::ContextScope scope(driver_, context_);
    for (const auto& [local_rank, seen] : seen_) close_revoked(local_rank, Closing::as_set);
    while (!tried_.empty() && may_close(Closing::as_set)) tried_.pop_back();
  } catch (const base::Error& error) {
    base::log(base::Topic::debug, "mappings of freed memory are not closed: {}", error.what());
  }
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

std::shared_ptr<const gpu::Mapping> Exposure::hold(int local_rank, const Exposed& buffer, Closing closing) noexcept {
  const std::lock_guard lock(mutex_);
  return open(local_rank, buffer, closing);
}

bool Exposure::has_open(int local_rank) noexcept {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(peers_, [&](const auto& each) { return each.first.first == local_rank; });
}

gpu::Mapping Exposure::map(int local_rank, const MemoryHandle& exported, Closing closing) {
  const std::lock_guard lock(mutex_);
  return map_locked(local_rank, exported, closing);
}

void Exposure::try_opening(int local_rank, const MemoryHandle& exported) {
  const std::lock_guard lock(mutex_);
  gpu::Mapping tried = map_locked(local_rank, exported, Closing::as_set);
  if (!may_close(Closing::as_set)) tried_.push_back(std::move(tried));
}

gpu::Mapping Exposure::map_locked(int local_rank, const MemoryHandle& exported, Closing closing) {
  CUipcMemHandle handle;
  static_assert(sizeof handle == sizeof exported);
  std::memcpy(&handle, exported.data(), sizeof handle);
  try {
    return {driver_, handle};
  } catch (const base::Error&) {
    const auto unheld = [&](const Key&, const Peer& peer) {
      return peer.mapping.use_count() == 1 && may_close(closing);
    };
    const std::size_t closed = close_those(local_rank, unheld);
    if (closed == 0) throw;
    closings_.fetch_add(closed, std::memory_order_relaxed);
  }
  return {driver_, handle};
}

std::shared_ptr<const gpu::Mapping> Exposure::open(int local_rank, const Exposed& buffer, Closing closing) noexcept {
  const Key key{local_rank, buffer.id};
  auto found = peers_.find(key);
  try {
    if (found == peers_.end()) {
      const gpu::ContextScope scope(driver_, context_);
      close_revoked(local_rank, closing);
      while (peers_.size() >= most_open && may_close(closing) && close_oldest()) {}
      if (peers_.size() >= most_open && !may_close(closing)) return nullptr;
      auto mapping = std::make_shared<const gpu::Mapping>(map_locked(local_rank, buffer.handle, closing));
      found = peers_.emplace(key, Peer{std::move(mapping), 0}).first;
    }
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a buffer of local rank {} cannot be mapped: {}", local_rank, error.what());
    return nullptr;
  }
  found->second.used = ++uses_;
  return found->second.mapping;
}

}  // namespace crosslane::share
