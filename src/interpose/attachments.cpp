// See attachments.h.
#include "interpose/attachments.h"

#include "base/error.h"
#include "team/communicators.h"
#include "team/messenger.h"

#include <algorithm>
#include <cstddef>
#include <new>

namespace crosslane::interpose {

bool Attachments::wanted(Process& process, MPI_Comm comm) {
  const team::World* const world = process.world();
  if (world == nullptr || !world->agreed()) return false;
  const auto& ranks = process.communicators()->of(comm).world_ranks;
  return std::ranges::all_of(ranks, [&](int rank) { return world->takes_part(rank); }) &&
         std::ranges::any_of(ranks, [&](int rank) { return world->may_have_gpus(rank); });
}

Attachments::Attachments(Process& process, MPI_Comm comm)
    : process_(process), win_(process.library().handles().win_null) {
  const auto& below = process.library().below();
  const auto& handles = process.library().handles();
  const auto& facts = process.communicators()->of(comm);
  known_.resize(facts.world_ranks.size());
  on_node_ = std::ranges::all_of(facts.world_ranks, [&](int rank) { return process.world()->on_my_node(rank); });
  team::check(below, below.Comm_rank(comm, &me_), "MPI_Comm_rank");
  void* memory = nullptr;
  team::check(below,
              below.Win_allocate(static_cast<MPI_Aint>(sizeof(Table)), 1, handles.info_null, comm,
                                 static_cast<void*>(&memory), &win_),
              "MPI_Win_allocate");
  own_ = ::new (memory) Table{};
  team::check(below, below.Win_set_errhandler(win_, handles.errors_return), "MPI_Win_set_errhandler");
  // For as long as it lives: what is looked up is never written by others.
  team::check(below, below.Win_lock_all(0, win_), "MPI_Win_lock_all");
  publish();
}

void Attachments::free() noexcept {
  const auto& below = process_.library().below();
  below.Win_unlock_all(win_);
  below.Win_free(&win_);
}

void Attachments::publish() noexcept { process_.library().below().Win_sync(win_); }

void Attachments::add(const void* base, std::size_t bytes, const void* copy) {
  const std::lock_guard lock(mutex_);
  const Row row{reinterpret_cast<std::uintptr_t>(base), bytes, reinterpret_cast<std::uintptr_t>(copy)};
  if (attached_.size() == most)
    throw base::Error(base::ErrorClass::no_memory,
                      "{} pieces of GPU memory are attached to the window; detach some first", most);
  for (const Row& other : attached_) {
    if (row.base < other.base + other.bytes && other.base < row.base + row.bytes)
      throw base::Error(base::ErrorClass::argument,
                        "base: {} bytes at {} overlap memory that is attached already; detach that first", bytes, base);
  }
  attached_.push_back(row);
  const std::uint64_t version = own_->version.load(std::memory_order_relaxed);
  own_->version.store(version + 1, std::memory_order_release);
  publish();
  own_->row[own_->rows++] = row;
  own_->version.store(version + 2, std::memory_order_release);
  publish();
}

void Attachments::remove(const void* base) noexcept {
  const std::lock_guard lock(mutex_);
  const auto gone = std::ranges::find(attached_, reinterpret_cast<std::uintptr_t>(base), &Row::base);
  if (gone == attached_.end()) return;
  const auto index = static_cast<std::size_t>(gone - attached_.begin());
  attached_[index] = attached_.back();
  attached_.pop_back();
  const std::uint64_t version = own_->version.load(std::memory_order_relaxed);
  own_->version.store(version + 1, std::memory_order_release);
  publish();
  own_->row[index] = own_->row[--own_->rows];
  own_->version.store(version + 2, std::memory_order_release);
  publish();
}

void Attachments::get(void* into, std::size_t bytes, std::size_t offset, int target) const {
  const auto& below = process_.library().below();
  const auto byte = process_.library().handles().byte;
  const int count = static_cast<int>(bytes);
  team::check(below, below.Get(into, count, byte, target, static_cast<MPI_Aint>(offset), count, byte, win_), "MPI_Get");
  team::check(below, below.Win_flush(target, win_), "MPI_Win_flush");
}

std::uint64_t Attachments::version_of(int target) const {
  std::uint64_t version = 0;
  get(&version, sizeof version, 0, target);
  return version;
}

MPI_Aint Attachments::place_in(const std::vector<Row>& rows, MPI_Aint displacement) noexcept {
  const auto address = static_cast<std::uint64_t>(displacement);
  for (const Row& row : rows)
    if (address >= row.base && address - row.base < row.bytes)
      return static_cast<MPI_Aint>(row.copy + (address - row.base));
  return displacement;
}

MPI_Aint Attachments::place(int target, MPI_Aint displacement) {
  // Who attaches GPU memory has seen a device before.
  if (on_node_ && !process_.world()->directory().device_seen()) return displacement;
  const std::lock_guard lock(mutex_);
  if (target == me_) return place_in(attached_, displacement);
  if (target < 0 || static_cast<std::size_t>(target) >= known_.size())
    return displacement;  // MPI has its own words for it
  Known& known = known_[static_cast<std::size_t>(target)];
  for (std::uint64_t version = version_of(target); version != known.version; version = version_of(target)) {
    if (version % 2 != 0) continue;
    std::uint64_t rows = 0;
    get(&rows, sizeof rows, offsetof(Table, rows), target);
    std::vector<Row> seen(std::min<std::uint64_t>(rows, most));
    if (!seen.empty()) get(seen.data(), seen.size() * sizeof(Row), offsetof(Table, row), target);
    // If it is still the same, all of it was.
    if (version_of(target) == version) known = {version, std::move(seen)};
  }
  return place_in(known.rows, displacement);
}

}  // namespace crosslane::interpose
