// See window_epochs.h.
#include "interpose/window_epochs.h"

#include "base/clock.h"
#include "base/error.h"
#include "interpose/receive.h"
#include "mpi/calls.h"
#include "team/messenger.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

namespace crosslane::interpose {

namespace {

[[noreturn]] void out_of_order(const char* call, const char* why) {
  throw base::Error(base::ErrorClass::rma_sync, "{}: {}", call, why);
}

}  // namespace

WindowEpochs::WindowEpochs(Process& process)
    : process_(process),
      window_(process.library().handles().win_null),
      group_(process.library().handles().group_null) {}

bool WindowEpochs::open(MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm) {
  const auto& below = process_.library().below();
  const auto& handles = process_.library().handles();
  int me = 0, ranks = 0;
  below.Comm_rank(comm, &me);
  below.Comm_size(comm, &ranks);
  void* own = nullptr;
  const auto bytes = static_cast<MPI_Aint>(share::EpochWords::bytes_for(ranks));
  const int code = mpi::calls::Win_allocate_shared(below, bytes, disp_unit, info, comm, &own, &window_);
  const bool made = code == mpi::success && window_ != handles.win_null;
  const bool found = made && below.Comm_group(comm, &group_) == mpi::success && find_words(me, ranks);
  const std::array<int, 2> mine{made ? 1 : 0, found ? 1 : 0};
  std::array<int, 2> all{};
  team::check(below, below.Allreduce(mine.data(), all.data(), 2, handles.int_, handles.min, comm), "MPI_Allreduce");
  if (all[1] != 0) return true;
  // What some ranks alone have cannot be freed.
  if (all[0] != 0) below.Win_free(&window_);
  return false;
}

bool WindowEpochs::find_words(int me, int ranks) {
  const auto& below = process_.library().below();
  MPI_Errhandler applications{};
  below.Win_get_errhandler(window_, &applications);
  below.Win_set_errhandler(window_, process_.library().handles().errors_return);
  std::vector<std::byte*> found;
  for (int rank = 0; rank < ranks; ++rank) {
    MPI_Aint bytes = 0, unit = 0;
    void* base = nullptr;
    if (mpi::calls::Win_shared_query(below, window_, rank, &bytes, &unit, &base) != mpi::success || base == nullptr)
      break;
    found.push_back(static_cast<std::byte*>(base));
  }
  below.Win_set_errhandler(window_, applications);
  below.Errhandler_free(&applications);
  if (static_cast<int>(found.size()) != ranks) return false;
  words_ = share::EpochWords(found, me);
  locked_.resize(found.size(), Locked::no);
  posts_seen_.resize(found.size());
  ends_seen_.resize(found.size());
  return true;
}

WindowEpochs::~WindowEpochs() {
  if (group_ != process_.library().handles().group_null) process_.library().below().Group_free(&group_);
}

std::vector<int> WindowEpochs::members(const char* call, MPI_Group group) const {
  const auto& below = process_.library().below();
  const auto& handles = process_.library().handles();
  if (group == handles.group_null)
    throw base::Error(base::ErrorClass::group, "{}: group: it is MPI_GROUP_NULL; MPI_GROUP_EMPTY is for nobody", call);
  int count = 0;
  below.Group_size(group, &count);
  std::vector<int> theirs(static_cast<std::size_t>(count)), ours(theirs.size());
  std::iota(theirs.begin(), theirs.end(), 0);
  if (count != 0) below.Group_translate_ranks(group, count, theirs.data(), group_, ours.data());
  if (std::ranges::any_of(ours, [&](int rank) { return rank < 0 || rank >= words_.ranks(); }))
    throw base::Error(base::ErrorClass::rank, "{}: group: some of its members are not in the group of the window",
                      call);
  return ours;
}

// Others may wait for messages of this rank before they come: MPI has its turns meanwhile.
void WindowEpochs::await(const char* call, int rank, base::FunctionRef<bool()> done) const {
  if (done()) return;
  constexpr unsigned seldom = 8;
  unsigned looks = 0;
  const auto look = [&] {
    if (done()) return true;
    if (looks++ % seldom == 0) process_.engine().make_mpi_progress();
    return false;
  };
  wait_until(process_, look, {.call = call, .communicator = "the group of a window", .peer = rank});
}

void WindowEpochs::check_access(const char* call, int target) const {
  const std::lock_guard lock(mutex_);
  const bool open = fenced_ || all_locked_ || locked_[static_cast<std::size_t>(target)] != Locked::no ||
                    (started_ && std::ranges::find(*started_, target) != started_->end());
  if (!open)
    throw base::Error(base::ErrorClass::rma_sync,
                      "{}: target_rank: no epoch is open in which the memory of rank {} may be accessed; open one by "
                      "MPI_Win_fence, MPI_Win_start, "
                      "MPI_Win_lock or MPI_Win_lock_all",
                      call, target);
}

void WindowEpochs::check_rank(const char* call, int rank) const {
  if (rank < 0 || rank >= words_.ranks())
    throw base::Error(base::ErrorClass::rank, "{}: rank: {} is no rank of the window, which has {}", call, rank,
                      words_.ranks());
}

void WindowEpochs::check_locked(const char* call, std::optional<int> target) const {
  const std::lock_guard lock(mutex_);
  if (target && *target != mpi::proc_null) check_rank(call, *target);
  const auto holds = [](Locked one) { return one != Locked::no; };
  const bool open = all_locked_ || (!target ? nobody_locked_ != 0 || std::ranges::any_of(locked_, holds)
                                    : *target == mpi::proc_null ? nobody_locked_ != 0
                                                                : holds(locked_[static_cast<std::size_t>(*target)]));
  if (!open) out_of_order(call, "no lock is held; lock the window by MPI_Win_lock or MPI_Win_lock_all before");
}

void WindowEpochs::fence(const char* call, bool succeeds) {
  const std::uint64_t number = words_.come_to_fence();
  for (int rank = 0; rank < words_.ranks(); ++rank) await(call, rank, [&] { return words_.is_at_fence(rank, number); });
  const std::lock_guard lock(mutex_);
  fenced_ = succeeds;
}

void WindowEpochs::post(const char* call, MPI_Group origins) {
  auto group = members(call, origins);
  const std::lock_guard lock(mutex_);
  if (posted_) out_of_order(call, "the window is posted already; wait for that by MPI_Win_wait first");
  for (const int origin : group) words_.post(origin);
  posted_ = std::move(group);
}

void WindowEpochs::start(const char* call, MPI_Group targets) {
  auto group = members(call, targets);
  {
    const std::lock_guard lock(mutex_);
    if (started_) out_of_order(call, "such an epoch has started already; end it by MPI_Win_complete first");
  }
  for (const int target : group) {
    const std::uint64_t number = ++posts_seen_[static_cast<std::size_t>(target)];
    await(call, target, [&] { return words_.is_posted(target, number); });
  }
  const std::lock_guard lock(mutex_);
  started_ = std::move(group);
}

void WindowEpochs::complete(const char* call) {
  const std::lock_guard lock(mutex_);
  if (!started_) out_of_order(call, "no such epoch has started; start one by MPI_Win_start before");
  for (const int target : *started_) words_.complete(target);
  started_.reset();
}

void WindowEpochs::end_post(const char* call) {
  std::vector<int> group;
  {
    const std::lock_guard lock(mutex_);
    if (!posted_) out_of_order(call, "the window is not posted; post it by MPI_Win_post before");
    group = *posted_;
  }
  for (const int origin : group) {
    const std::uint64_t number = ++ends_seen_[static_cast<std::size_t>(origin)];
    await(call, origin, [&] { return words_.is_complete(origin, number); });
  }
  const std::lock_guard lock(mutex_);
  posted_.reset();
}

bool WindowEpochs::try_end_post(const char* call) {
  {
    const std::lock_guard lock(mutex_);
    if (!posted_) out_of_order(call, "the window is not posted; post it by MPI_Win_post before");
    const bool over = std::ranges::all_of(*posted_, [&](int origin) {
      return words_.is_complete(origin, ends_seen_[static_cast<std::size_t>(origin)] + 1);
    });
    if (over) {
      for (const int origin : *posted_) ++ends_seen_[static_cast<std::size_t>(origin)];
      posted_.reset();
      return true;
    }
  }
  process_.engine().progress();
  process_.engine().make_mpi_progress();
  return false;
}

// All of them, or none meanwhile: who has one of them may want another. They let pass who waits to have one alone, but not for long, since a program may
// have those meet that share it; and now and then, since who has it may have it for long.
void WindowEpochs::share(const char* call, std::span<const int> targets) {
  constexpr std::int64_t most = 1'000'000, rest = 16 * most;
  const auto now = [] { return std::chrono::duration_cast<base::Duration>(base::now().time_since_epoch()).count(); };
  std::int64_t begun = 0;
  const auto lets_pass = [&] {
    if (!std::ranges::any_of(targets, [&](int target) { return words_.waited_for(target); })) return false;
    const std::int64_t time = now();
    if (begun == 0) begun = time;
    if (time < polite_from_.load(std::memory_order_relaxed)) return false;
    if (time - begun < most) return true;
    polite_from_.store(time + rest, std::memory_order_relaxed);
    return false;
  };
  await(call, targets.size() == 1 ? targets.front() : -1, [&] {
    if (lets_pass()) return false;
    for (std::size_t held = 0; held < targets.size(); ++held) {
      if (words_.try_share(targets[held])) continue;
      while (held-- > 0) words_.stop_sharing(targets[held]);
      return false;
    }
    return true;
  });
}

void WindowEpochs::exclude(const char* call, int target) {
  const auto have = [&] { return words_.try_exclude(target); };
  if (have()) return;
  words_.begin_waiting(target);
  try {
    await(call, target, have);
  } catch (...) {
    words_.end_waiting(target);
    throw;
  }
  words_.end_waiting(target);
}

void WindowEpochs::release(int target, Locked locked) const noexcept {
  if (locked == Locked::exclusive)
    words_.stop_excluding(target);
  else
    words_.stop_sharing(target);
}

void WindowEpochs::lock(const char* call, int target, int lock_type) {
  const bool exclusive = lock_type == mpi::lock_exclusive;
  if (!exclusive && lock_type != mpi::lock_shared)
    throw base::Error(base::ErrorClass::lock_type,
                      "{}: lock_type: {} is neither MPI_LOCK_EXCLUSIVE nor MPI_LOCK_SHARED", call, lock_type);
  {
    const std::lock_guard lock(mutex_);
    if (target == mpi::proc_null) {
      ++nobody_locked_;
      return;
    }
    check_rank(call, target);
    if (all_locked_ || locked_[static_cast<std::size_t>(target)] != Locked::no)
      out_of_order(call, "this rank holds that lock already; unlock it first");
  }
  if (exclusive)
    exclude(call, target);
  else
    share(call, {&target, 1});
  const std::lock_guard lock(mutex_);
  locked_[static_cast<std::size_t>(target)] = exclusive ? Locked::exclusive : Locked::shared;
}

void WindowEpochs::unlock(const char* call, int target) {
  constexpr const char* missing = "rank: no lock of that rank is held; lock it by MPI_Win_lock before";
  const std::lock_guard lock(mutex_);
  if (target == mpi::proc_null) {
    if (nobody_locked_ == 0) out_of_order(call, missing);
    --nobody_locked_;
    return;
  }
  check_rank(call, target);
  if (locked_[static_cast<std::size_t>(target)] == Locked::no) out_of_order(call, missing);
  release(target, std::exchange(locked_[static_cast<std::size_t>(target)], Locked::no));
}

void WindowEpochs::lock_all(const char* call) {
  {
    const std::lock_guard lock(mutex_);
    if (all_locked_ || std::ranges::any_of(locked_, [](Locked one) { return one != Locked::no; }))
      out_of_order(call, "this rank holds locks of the window already; unlock them first");
  }
  std::vector<int> all(locked_.size());
  std::iota(all.begin(), all.end(), 0);
  share(call, all);
  const std::lock_guard lock(mutex_);
  all_locked_ = true;
}

void WindowEpochs::unlock_all(const char* call) {
  const std::lock_guard lock(mutex_);
  if (!all_locked_) out_of_order(call, "the window is not locked; lock it by MPI_Win_lock_all before");
  for (int rank = 0; rank < words_.ranks(); ++rank) words_.stop_sharing(rank);
  all_locked_ = false;
}

WindowEpochs::Guard::Guard(WindowEpochs& epochs, const char* call, int target)
    : words_(epochs.words_), target_(target) {
  epochs.await(call, target, [&] { return words_.try_guard(target); });
}

}  // namespace crosslane::interpose
