// See attachments.h.
#include "interpose/attachments.h"

#include "base/error.h"
#include "base/log.h"
#include "interpose/window_maker.h"
#include "mpi/returns_errors.h"
#include "team/communicators.h"
#include "team/messenger.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <new>
#include <tuple>

namespace crosslane::interpose {

Attachments::Attachments(Process& process, MPI_Comm comm, int ranks)
    : process_(process), win_(process.library().handles().win_null), known_(static_cast<std::size_t>(ranks)) {
  process.library().below().Comm_rank(comm, &me_);
}

std::unique_ptr<Attachments> Attachments::make(Process& process, MPI_Comm comm) {
  if (!tell_each_other(process, comm)) return nullptr;
  const auto& ranks = process.communicators()->of(comm).world_ranks;
  const auto& below = process.library().below();
  std::unique_ptr<Attachments> made(new Attachments(process, comm, static_cast<int>(ranks.size())));
  const mpi::ReturnsErrors returns(below, comm);
  // Whether it is open, on all; and the number that the first one has for it. Signed: of MPI_UINT64_T MPICH 4.0.2 takes the largest for -1.
  std::array<std::int64_t, 2> mine{made->open(comm) ? 1 : 0, std::numeric_limits<std::int64_t>::max()}, all{};
  if (made->me_ == 0) mine[1] = process.count_dynamic_window();
  const auto& handles = process.library().handles();
  team::check(below, below.Allreduce(mine.data(), all.data(), 2, handles.int64, handles.min, comm), "MPI_Allreduce");
  made->order_ = {ranks.front(), all[1]};
  if (all[0] != 0) return made;
  base::log(base::Topic::warning,
            "GPU memory cannot be attached to a window: the MPI makes no window for what others must know of it");
  return nullptr;
}

// What is looked up is never written by others but for the versions, so one epoch lasts for as long as the window lives.
bool Attachments::open(MPI_Comm comm) {
  const auto& below = process_.library().below();
  const auto& handles = process_.library().handles();
  const std::size_t bytes = sizeof(Table) + known_.size() * sizeof(std::uint64_t);
  memory_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
  own_ = ::new (memory_.data()) Table{};
  for (int rank = 0; rank < static_cast<int>(known_.size()); ++rank)
    ::new (&heard_of(rank)) std::atomic<std::uint64_t>(0);
  if (known_.size() == 1) return true;  // nobody else looks
  if (below.Win_create(own_, static_cast<MPI_Aint>(bytes), 1, handles.info_null, comm, &win_) != mpi::success)
    return false;
  below.Win_set_errhandler(win_, handles.errors_return);
  return below.Win_lock_all(0, win_) == mpi::success && below.Win_sync(win_) == mpi::success;
}

void Attachments::free() noexcept {
  const auto& below = process_.library().below();
  if (!looked_at()) return;
  below.Win_unlock_all(win_);
  below.Win_free(&win_);
}

bool Attachments::looked_at() const noexcept { return win_ != process_.library().handles().win_null; }

std::atomic<std::uint64_t>& Attachments::heard_of(int rank) const noexcept {
  return *std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(own_ + 1) + rank);
}

// Of the own table, under the mutex. It is changed whatever the MPI says, whose code this returns: others read no halves.
template <class Change>
int Attachments::write(const Change& change) noexcept {
  if (!looked_at()) {
    change();
    return mpi::success;
  }
  const auto& below = process_.library().below();
  const std::uint64_t version = own_->version.load(std::memory_order_relaxed) + 2;
  own_->version.store(version - 1, std::memory_order_release);
  const int begun = below.Win_sync(win_);
  change();
  own_->version.store(version, std::memory_order_release);
  const int ended = below.Win_sync(win_);
  return begun != mpi::success ? begun : ended;
}

// Under the mutex, too: others have heard of the table's version when this returns.
void Attachments::tell(int written) {
  const auto& below = process_.library().below();
  team::check(below, written, "MPI_Win_sync");
  if (!looked_at()) return;
  const auto byte = process_.library().handles().byte;
  told_ = own_->version.load(std::memory_order_relaxed);
  constexpr int bytes = sizeof told_;
  const auto place = static_cast<MPI_Aint>(sizeof(Table) + static_cast<std::size_t>(me_) * sizeof told_);
  for (int rank = 0; rank < static_cast<int>(known_.size()); ++rank)
    if (rank != me_) team::check(below, below.Put(&told_, bytes, byte, rank, place, bytes, byte, win_), "MPI_Put");
  for (int rank = 0; rank < static_cast<int>(known_.size()); ++rank)
    if (rank != me_) team::check(below, below.Win_flush(rank, win_), "MPI_Win_flush");
}

void Attachments::check_room(const Row& row) const {
  if (attached_.size() == most)
    throw base::Error(base::ErrorClass::rma_attach,
                      "base: {} pieces of GPU memory are attached to the window; detach some first", most);
  for (const Row& other : attached_) {
    if (row.base < other.base + other.bytes && other.base < row.base + row.bytes)
      throw base::Error(base::ErrorClass::rma_attach,
                        "base: {} bytes at {:#x} overlap memory that is attached already; detach that first", row.bytes,
                        row.base);
  }
}

void Attachments::check(const void* base, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  check_room({reinterpret_cast<std::uintptr_t>(base), bytes, 0});
}

void Attachments::add(const void* base, std::size_t bytes, const void* copy) {
  const std::lock_guard lock(mutex_);
  const Row row{reinterpret_cast<std::uintptr_t>(base), bytes, reinterpret_cast<std::uintptr_t>(copy)};
  check_room(row);
  attached_.reserve(attached_.size() + 1);
  const int written = write([&] {
    own_->row[own_->rows++] = row;
    attached_.push_back(row);
  });
  try {
    tell(written);
  } catch (...) {
    // Its copy will not outlive this.
    std::ignore = write([&] {
      --own_->rows;
      attached_.pop_back();
    });
    throw;
  }
}

void Attachments::remove(const void* base) {
  const std::lock_guard lock(mutex_);
  const auto gone = std::ranges::find(attached_, reinterpret_cast<std::uintptr_t>(base), &Row::base);
  if (gone == attached_.end()) return;
  const auto index = static_cast<std::size_t>(gone - attached_.begin());
  const int written = write([&] {
    own_->row[index] = own_->row[--own_->rows];
    attached_[index] = attached_.back();
    attached_.pop_back();
  });
  tell(written);
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

MPI_Aint Attachments::place_in(std::span<const Row> rows, MPI_Aint displacement, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return displacement;
  const auto first = static_cast<std::uint64_t>(displacement + begin),
             last = static_cast<std::uint64_t>(displacement + end);
  for (const Row& row : rows) {
    if (last <= row.base || first >= row.base + row.bytes) continue;
    if (first < row.base || last > row.base + row.bytes) {
      throw base::Error(base::ErrorClass::argument,
                        "target_disp: of the bytes from {:#x} to {:#x} of the target some lie in the {} of GPU memory "
                        "that it has attached at {:#x}, some "
                        "do not; access one piece at a time",
                        first, last, row.bytes, row.base);
    }
    return displacement + static_cast<MPI_Aint>(row.copy - row.base);
  }
  return displacement;
}

MPI_Aint Attachments::place(int target, MPI_Aint displacement, std::int64_t begin, std::int64_t end) {
  if (target < 0 || static_cast<std::size_t>(target) >= known_.size())
    return displacement;  // MPI has its own words for it
  if (target == me_) {
    const std::lock_guard lock(mutex_);
    return place_in(attached_, displacement, begin, end);
  }
  const auto& below = process_.library().below();
  if (looked_at()) team::check(below, below.Win_sync(win_), "MPI_Win_sync");
  const std::uint64_t heard = heard_of(target).load(std::memory_order_acquire);
  if (heard == 0) return displacement;
  Known& known = known_[static_cast<std::size_t>(target)];
  const std::lock_guard lock(known.mutex);
  while (known.version < heard && looked_at()) {
    const std::uint64_t version = version_of(target);
    if (version % 2 != 0) continue;
    std::uint64_t rows = 0;
    get(&rows, sizeof rows, offsetof(Table, rows), target);
    std::vector<Row> seen(std::min<std::uint64_t>(rows, most));
    if (!seen.empty()) get(seen.data(), seen.size() * sizeof(Row), offsetof(Table, row), target);
    // If it is still the same, all of it was.
    if (version_of(target) != version) continue;
    known.version = version;
    known.rows = std::move(seen);
  }
  return place_in(known.rows, displacement, begin, end);
}

}  // namespace crosslane::interpose
