// See epochs.h.
#include "one_sided/epochs.h"
#include "one_sided/plain.h"

#include <sched.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace crosslane::tests {
namespace {

std::vector<int> first_numbers(int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

Epochs::Epochs(Side& side, Random all, Random mine, std::string text)
    : side_(side),
      all_(std::move(all)),
      mine_(std::move(mine)),
      text_(std::move(text)),
      agreed_(all_),
      only_read_(static_cast<std::size_t>(side.ranks())) {}

void Epochs::run(EpochKind kind) {
  switch (kind) {
    case EpochKind::fences:
      fences();
      break;
    case EpochKind::post_start:
      post_start();
      break;
    case EpochKind::locks:
      locks();
      break;
    case EpochKind::lock_all:
      lock_all();
      break;
    case EpochKind::tickets:
      tickets();
      break;
  }
  if (!side_.behind) side_.load_all(text_ + ", at the end");
}

std::vector<bool> Epochs::some_ranks(unsigned percent) {
  std::vector<bool> result;
  for (int rank = 0; rank < side_.ranks(); ++rank) result.push_back(all_.chance(percent));
  return result;
}

void Epochs::barrier(const std::string& text) {
  side_.step(fmt::format("{}: barrier {}", text_, text));
  polite_barrier(side_.communicator());
}

// ---- The window's own memory, outside of epochs.

// No other rank reaches this window between a step's end and what this rank does first in the next step.
void Epochs::local_accesses() {
  if (side_.behind && mine_.chance(60)) view_by_lock();
  if (side_.behind) return;
  side_.load_all(text_ + ", at the start");
  for (auto stores = mine_.below(3); stores > 0; --stores) side_.store(mine_);
  if (mine_.chance(20)) side_.load_all(text_ + ", after stores");
}

void Epochs::view_by_lock() {
  const bool exclusive = mine_.chance(50);
  side_.step(text_ + ": MPI_Win_lock of the rank's own window");
  CROSSLANE_MPI(MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, side_.rank(), 0, side_.window()));
  side_.load_all(text_ + ", under its own lock");
  if (exclusive && mine_.chance(50)) side_.store(mine_);
  side_.step(text_ + ": MPI_Win_unlock of the rank's own window");
  CROSSLANE_MPI(MPI_Win_unlock(side_.rank(), side_.window()));
  side_.caught_up();
  side_.unshown = false;
}

void Epochs::show_by_lock() {
  if (!side_.unshown) return;
  side_.step(text_ + ": MPI_Win_lock that shows stores");
  CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, side_.rank(), 0, side_.window()));
  CROSSLANE_MPI(MPI_Win_unlock(side_.rank(), side_.window()));
  side_.unshown = false;
}

// ---- Fences.

void Epochs::fence(int assertion, const std::string& text) {
  // Without, ranks that are ahead must wait for those that have not shown their stores yet; but MPICH spins in it.
  if (all_.chance(60)) barrier("before " + text);
  std::string said;
  for (const auto& [bit, name] : {std::pair{MPI_MODE_NOSTORE, " NOSTORE"},
                                  {MPI_MODE_NOPUT, " NOPUT"},
                                  {MPI_MODE_NOPRECEDE, " NOPRECEDE"},
                                  {MPI_MODE_NOSUCCEED, " NOSUCCEED"}})
    if ((assertion & bit) != 0) said += name;
  side_.step(fmt::format("{}: {}, asserted:{}", text_, text, said));
  CROSSLANE_MPI(MPI_Win_fence(assertion, side_.window()));
  side_.caught_up();
  side_.unshown = false;
}

// A fence ends what came since the last one and starts what comes until the next: operations, or loads and stores.
void Epochs::fences() {
  local_accesses();
  std::optional<Access> access;
  const auto rounds = all_.between(1, 4);
  for (int round = 0; round <= rounds; ++round) {
    const auto where = fmt::format("{}, round {}", text_, round);
    const bool last = round == rounds, local = last || all_.chance(30);
    only_read_ = local ? std::vector<bool>(only_read_.size(), true) : some_ranks(25);
    // NOPRECEDE and NOSUCCEED are said by all ranks or none.
    int assertion = !access && all_.chance(50) ? MPI_MODE_NOPRECEDE : 0;
    if (local && all_.chance(50)) assertion |= MPI_MODE_NOSUCCEED;
    if (!side_.unshown && mine_.chance(50)) assertion |= MPI_MODE_NOSTORE;
    // Behind the last fence come epochs of other kinds.
    if (!last && only_read(side_.rank()) && mine_.chance(50)) assertion |= MPI_MODE_NOPUT;
    fence(assertion, fmt::format("MPI_Win_fence {}", round));
    if (access) access->end(mine_);
    access.reset();
    if (local) {
      local_accesses();
      continue;
    }
    access.emplace(side_, agreed_, false, where);
    for (auto operations = mine_.below(7); operations > 0; --operations) {
      const int to = static_cast<int>(mine_.below(static_cast<std::uint64_t>(side_.ranks())));
      access->issue(mine_, to, only_read(to));
    }
    if (only_read(side_.rank()) && mine_.chance(30)) side_.load_all(where + ", while others read");
  }
}

// ---- Post, start, complete, wait.

MPI_Group Epochs::group_of(const std::vector<int>& ranks) const {
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  CROSSLANE_MPI(MPI_Win_get_group(side_.window(), &all));
  CROSSLANE_MPI(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some));
  CROSSLANE_MPI(MPI_Group_free(&all));
  return some;
}

void Epochs::wait() {
  if (mine_.chance(40)) {
    side_.step(text_ + ": MPI_Win_wait");
    CROSSLANE_MPI(MPI_Win_wait(side_.window()));
  } else {
    side_.step(text_ + ": MPI_Win_test");
    for (int done = 0; done == 0; sched_yield()) CROSSLANE_MPI(MPI_Win_test(side_.window(), &done));
  }
  side_.caught_up();
}

void Epochs::post_start() {
  local_accesses();
  only_read_ = some_ranks(25);
  std::vector<std::vector<bool>> reaches;  // by origin and target
  for (int origin = 0; origin < side_.ranks(); ++origin) reaches.push_back(some_ranks(55));
  const bool unchecked = all_.chance(25), together = all_.chance(20);
  std::vector<int> origins, targets;
  for (int rank = 0; rank < side_.ranks(); ++rank) {
    const auto other = static_cast<std::size_t>(rank), self = static_cast<std::size_t>(side_.rank());
    if (reaches[other][self]) origins.push_back(rank);
    if (reaches[self][other]) targets.push_back(rank);
  }
  mine_.shuffle(origins);
  mine_.shuffle(targets);
  if (all_.chance(50) || left_out().early_posts) barrier("before MPI_Win_post");
  MPI_Group from = group_of(origins), to = group_of(targets);
  // Groups of nobody are groups too.
  const bool posts = !origins.empty() || mine_.chance(30), starts = !targets.empty() || mine_.chance(30);
  if (posts) {
    int assertion = unchecked ? MPI_MODE_NOCHECK : 0;
    if (!side_.unshown && mine_.chance(50)) assertion |= MPI_MODE_NOSTORE;
    if (only_read(side_.rank()) && mine_.chance(50)) assertion |= MPI_MODE_NOPUT;
    side_.step(fmt::format("{}: MPI_Win_post to {} ranks", text_, origins.size()));
    CROSSLANE_MPI(MPI_Win_post(from, assertion, side_.window()));
    side_.unshown = false;
  }
  if (unchecked || together) barrier("after MPI_Win_post");
  if (starts) {
    Access access(side_, agreed_, false, text_);
    side_.step(fmt::format("{}: MPI_Win_start for {} ranks", text_, targets.size()));
    CROSSLANE_MPI(MPI_Win_start(to, unchecked ? MPI_MODE_NOCHECK : 0, side_.window()));
    for (auto operations = targets.empty() ? 0 : mine_.below(7); operations > 0; --operations) {
      const int target = mine_.pick(targets);
      access.issue(mine_, target, only_read(target));
    }
    side_.step(text_ + ": MPI_Win_complete");
    CROSSLANE_MPI(MPI_Win_complete(side_.window()));
    access.end(mine_);
  }
  if (posts) wait();
  CROSSLANE_MPI(MPI_Group_free(&from));
  CROSSLANE_MPI(MPI_Group_free(&to));
}

// ---- Locks.

void Epochs::flush(Access& access, const std::vector<int>& targets) {
  const MPI_Win window = side_.window();
  const auto way = mine_.below(6);
  const bool no_local = !access.may_flush_locally();
  if (way == 0 || (way == 2 && no_local)) {
    side_.step(text_ + ": MPI_Win_flush");
    for (const int to : targets) {
      CROSSLANE_MPI(MPI_Win_flush(to, window));
      access.completed(to);
    }
  } else if (way == 1 || (way == 3 && no_local)) {
    side_.step(text_ + ": MPI_Win_flush_all");
    CROSSLANE_MPI(MPI_Win_flush_all(window));
    access.completed(Access::any_target);
  } else if (way == 2) {
    side_.step(text_ + ": MPI_Win_flush_local");
    for (const int to : targets) {
      CROSSLANE_MPI(MPI_Win_flush_local(to, window));
      access.completed_locally(to);
    }
  } else if (way == 3) {
    side_.step(text_ + ": MPI_Win_flush_local_all");
    CROSSLANE_MPI(MPI_Win_flush_local_all(window));
    access.completed_locally(Access::any_target);
  }
}

void Epochs::under_lock(Access& access, const std::vector<int>& targets, bool exclusive) {
  for (auto rounds = mine_.between(1, 3); rounds > 0; --rounds) {
    for (auto operations = mine_.below(5); operations > 0; --operations) {
      const int to = mine_.pick(targets);
      if (!only_read(to) && mine_.chance(12))
        access.swap(mine_, to);
      else if (!only_read(to) && exclusive && mine_.chance(25))
        access.change(mine_, to);
      else
        access.issue(mine_, to, only_read(to));
    }
    if (mine_.chance(50)) access.complete_some(mine_);
    flush(access, targets);
    if (mine_.chance(30)) access.complete_some(mine_);
  }
}

// While other ranks take turns with locks of their own: loads and stores of what they do not reach.
void Epochs::own_under_lock() {
  side_.step(text_ + ": MPI_Win_lock of the rank's own window, among others");
  CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, side_.rank(), 0, side_.window()));
  side_.own_changed = false;
  side_.load_own(text_ + ", under its own lock among others");
  for (auto stores = mine_.below(3); stores > 0; --stores) side_.store_own(mine_);
  CROSSLANE_MPI(MPI_Win_unlock(side_.rank(), side_.window()));
  side_.unshown = false;
}

void Epochs::locks() {
  local_accesses();
  show_by_lock();
  only_read_ = some_ranks(25);
  const bool only_shared = all_.chance(40);
  barrier("before locks");
  for (auto visits = mine_.between(1, 4); visits > 0; --visits) {
    std::vector<int> targets{static_cast<int>(mine_.below(static_cast<std::uint64_t>(side_.ranks())))};
    if (!only_shared && targets[0] == side_.rank() && mine_.chance(60)) {
      own_under_lock();
      continue;
    }
    // Several at once, where no rank may wait for another's.
    if (only_shared && mine_.chance(30) && !left_out().several_locks) {
      targets = first_numbers(side_.ranks());
      mine_.shuffle(targets);
      targets.resize(1 + mine_.below(targets.size()));
    }
    const bool exclusive = !only_shared && mine_.chance(50);
    const int assertion = only_shared && mine_.chance(40) && !left_out().nocheck_locks ? MPI_MODE_NOCHECK : 0;
    for (const int to : targets) {
      side_.step(fmt::format("{}: MPI_Win_lock of rank {}, {}{}", text_, to, exclusive ? "exclusive" : "shared",
                             assertion != 0 ? ", NOCHECK" : ""));
      CROSSLANE_MPI(MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, to, assertion, side_.window()));
    }
    Access access(side_, agreed_, true, text_ + ", under a lock");
    under_lock(access, targets, exclusive);
    for (const int to : targets) {
      side_.step(fmt::format("{}: MPI_Win_unlock of rank {}", text_, to));
      CROSSLANE_MPI(MPI_Win_unlock(to, side_.window()));
    }
    access.end(mine_);
  }
  barrier("after locks");
  side_.behind = side_.behind || !only_read(side_.rank());
  if (mine_.chance(50)) view_by_lock();
}

void Epochs::lock_all() {
  local_accesses();
  show_by_lock();
  only_read_ = some_ranks(25);
  barrier("before MPI_Win_lock_all");
  side_.step(text_ + ": MPI_Win_lock_all");
  const MPI_Win window = side_.window();
  CROSSLANE_MPI(MPI_Win_lock_all(mine_.chance(30) && !left_out().nocheck_locks ? MPI_MODE_NOCHECK : 0, window));
  if (all_.chance(60)) {
    side_.caught_up();
    side_.load_all(text_ + ", after MPI_Win_lock_all");
    barrier("after MPI_Win_lock_all");
  }
  const auto targets = first_numbers(side_.ranks());
  Access access(side_, agreed_, true, text_);
  for (auto rounds = all_.between(1, 3); rounds > 0; --rounds) {
    under_lock(access, targets, false);
    side_.behind = side_.behind || !only_read(side_.rank());
    if (all_.chance(50)) continue;
    side_.step(text_ + ": MPI_Win_sync");
    CROSSLANE_MPI(MPI_Win_flush_all(window));
    access.completed(Access::any_target);
    barrier("before MPI_Win_sync");
    CROSSLANE_MPI(MPI_Win_sync(window));
    side_.caught_up();
    side_.load_all(text_ + ", after MPI_Win_sync");
    for (auto stores = mine_.below(3); stores > 0; --stores) side_.store(mine_);
    if (rounds == 1) break;  // MPI_Win_unlock_all is enough to show them
    CROSSLANE_MPI(MPI_Win_sync(window));
    side_.unshown = false;
    barrier("after MPI_Win_sync");
  }
  side_.step(text_ + ": MPI_Win_unlock_all");
  CROSSLANE_MPI(MPI_Win_unlock_all(window));
  side_.unshown = false;
  access.end(mine_);
  barrier("after MPI_Win_unlock_all");
  if (all_.chance(60)) read_others();
  if (mine_.chance(50)) view_by_lock();
}

// Nothing is stored before, which a later call would show as well.
void Epochs::read_others() {
  const MPI_Win window = side_.window();
  side_.step(text_ + ": MPI_Win_lock_all to read");
  CROSSLANE_MPI(MPI_Win_lock_all(0, window));
  Access access(side_, agreed_, true, text_ + ", reading again");
  for (int to = 0; to < side_.ranks(); ++to) access.issue(mine_, to, true);
  CROSSLANE_MPI(MPI_Win_unlock_all(window));
  access.end(mine_);
  side_.caught_up();
  if (mine_.chance(50)) side_.load_all(text_ + ", having read");
  barrier("after MPI_Win_unlock_all");
}

// Who takes which is anybody's guess, but each is taken once.
void Epochs::tickets() {
  local_accesses();
  show_by_lock();
  const int where = static_cast<int>(all_.below(static_cast<std::uint64_t>(side_.ranks())));
  const int each = all_.between(1, 6);
  const auto way = all_.below(3);
  const bool all_locked = all_.chance(50);
  if (!side_.shape(where).has_counter || left_out().atomics_on_oneself) return;
  barrier("before the counter");
  const MPI_Win window = side_.window();
  side_.step(fmt::format("{}: {} tickets each from rank {} by {}", text_, each, where,
                         way == 0   ? "MPI_Fetch_and_op"
                         : way == 1 ? "MPI_Get_accumulate"
                                    : "MPI_Compare_and_swap"));
  if (all_locked)
    CROSSLANE_MPI(MPI_Win_lock_all(0, window));
  else
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, where, 0, window));
  Memory one(side_.kind(mine_), sizeof(long)), got(side_.kind(mine_), sizeof(long)),
      next(side_.kind(mine_), sizeof(long)), compare(side_.kind(mine_), sizeof(long));
  const auto value_of = [](const Memory& memory) { return memory.values<long>()[0]; };
  one.fill(std::vector<long>{1});
  std::vector<long> mine;
  while (static_cast<int>(mine.size()) < each) {
    if (way == 0) {
      CROSSLANE_MPI(MPI_Fetch_and_op(one.data(), got.data(), MPI_LONG, where, 0, MPI_SUM, window));
    } else if (way == 1) {
      CROSSLANE_MPI(
          MPI_Get_accumulate(one.data(), 1, MPI_LONG, got.data(), 1, MPI_LONG, where, 0, 1, MPI_LONG, MPI_SUM, window));
    } else {
      CROSSLANE_MPI(MPI_Fetch_and_op(one.data(), got.data(), MPI_LONG, where, 0, MPI_NO_OP, window));
      CROSSLANE_MPI(MPI_Win_flush(where, window));
      const long seen = value_of(got);
      next.fill(std::vector<long>{seen + 1});
      compare.fill(std::vector<long>{seen});
      CROSSLANE_MPI(MPI_Compare_and_swap(next.data(), compare.data(), got.data(), MPI_LONG, where, 0, window));
      CROSSLANE_MPI(MPI_Win_flush(where, window));
      if (value_of(got) != seen) continue;
    }
    CROSSLANE_MPI(MPI_Win_flush(where, window));
    mine.push_back(value_of(got));
  }
  if (all_locked)
    CROSSLANE_MPI(MPI_Win_unlock_all(window));
  else
    CROSSLANE_MPI(MPI_Win_unlock(where, window));
  std::vector<long> taken(static_cast<std::size_t>(each * side_.ranks()));
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(
      MPI_Iallgather(mine.data(), each, MPI_LONG, taken.data(), each, MPI_LONG, side_.communicator(), &request));
  polite_wait(request);
  std::ranges::sort(taken);
  for (std::size_t i = 0; i < taken.size(); ++i)
    CROSSLANE_CHECK(taken[i] == taken[0] + static_cast<long>(i), "{}: ticket {} is {}, the first is {}", text_, i,
                    taken[i], taken[0]);
  side_.note(text_ + ": the first ticket",
             {std::as_bytes(std::span(taken)).begin(), std::as_bytes(std::span(taken)).end()});
  side_.behind = side_.behind || side_.rank() == where;
}

void Epochs::last() {
  // Once the window is freed its memory has what others did.
  if (side_.behind && mine_.chance(50)) return;
  if (side_.behind) view_by_lock();
  side_.load_all(text_ + ", before MPI_Win_free");
  for (auto stores = mine_.below(3); stores > 0; --stores) side_.store(mine_);
}

}  // namespace crosslane::tests
