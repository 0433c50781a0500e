// See peer_memory.h.
#include "message/peer_memory.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "gpu/marker.h"

#include <algorithm>
#include <chrono>

namespace crosslane::message {

PeerMemory::PeerMemory(team::World& world, engine::Engine& engine, lane::Copier& copier, const base::Settings& settings)
    : world_(world),
      copier_(copier),
      least_export_(settings.export_bytes),
      export_uses_(settings.export_uses),
      offers_(world.directory()),
      tokens_(world.directory(), offers_, world.cookie(), world.rank()),
      parcels_(offers_, settings.message_window, settings.piece_bytes),
      courier_(engine, settings.linger_us),
      writer_(engine, offers_, copier.mover(), settings.put_bytes != 0 && world.directory().ranks() > 1),
      tried_(static_cast<std::size_t>(world.directory().ranks())),
      whole_(static_cast<std::size_t>(world.directory().ranks())),
      unreached_(static_cast<std::size_t>(world.directory().ranks())),
      meet_rests_(static_cast<std::size_t>(world.directory().ranks())),
      asks_(static_cast<std::size_t>(world.directory().ranks())),
      late_(static_cast<std::size_t>(world.directory().ranks())),
      wrote_(static_cast<std::size_t>(world.directory().ranks())),
      untried_(world.directory().ranks() - 1) {
  tried_[static_cast<std::size_t>(world.directory().local_rank())] = true;
}

PeerMemory::~PeerMemory() = default;

void PeerMemory::live_at(team::Home& home) noexcept {
  try {
    const gpu::ContextScope scope(home.driver(), home.context());
    const auto memory = offers_.memory();
    words_.emplace(home.driver(), memory.data(), memory.size());
    if (gpu::writes_words(home.driver())) words_at_.store(words_->device_address(), std::memory_order_release);
  } catch (const std::exception& error) {
    // Host functions write them then.
    base::log(base::Topic::info, "the GPU cannot write the node's flags: {}", error.what());
  }
  parcels_.live_in(home.window());
  courier_.live_at(home);
  writer_.live_at(home);
  home_.store(&home, std::memory_order_release);
}

void PeerMemory::prepare_to_send() noexcept {
  team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr || sends_.load(std::memory_order_acquire)) return;
  if (send_rests_.rests()) return send_rests_.pass();
  const bool shown = home->show_door(), made = writer_.make();
  if (shown && made)
    sends_.store(true, std::memory_order_release);
  else
    send_rests_.rest();
}

void PeerMemory::leave() noexcept {
  courier_.leave();
  writer_.leave();
  parcels_.leave();
  words_at_.store(0, std::memory_order_release);
  team::Home* const home = home_.exchange(nullptr);
  if (home == nullptr || !words_) return;
  if (!home->stands()) return words_.reset();
  try {
    const gpu::ContextScope scope(home->driver(), home->context());
    words_.reset();
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "the context of the node's flags is gone: {}", error.what());
  }
}

CUdeviceptr PeerMemory::address_of(const std::atomic<std::uint64_t>& word) const noexcept {
  const CUdeviceptr words = words_at_.load(std::memory_order_acquire);
  if (words == 0) return 0;
  const auto offset =
      reinterpret_cast<std::uintptr_t>(&word) - reinterpret_cast<std::uintptr_t>(offers_.memory().data());
  return words + offset;
}

void PeerMemory::meet(int world_rank, bool takes_tokens) noexcept {
  team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr || untried_.load(std::memory_order_relaxed) == 0) return;
  if (world_rank >= 0) {
    if (world_.on_my_node(world_rank)) meet_local(*home, world_.nodes().local_rank(world_rank), takes_tokens);
    return;
  }
  for (int local = 0; local < world_.directory().ranks(); ++local) meet_local(*home, local, takes_tokens);
}

void PeerMemory::meet_local(team::Home& home, int local_rank, bool takes_tokens) noexcept {
  std::atomic<bool>& tried = tried_[static_cast<std::size_t>(local_rank)];
  if (tried.load(std::memory_order_acquire)) return;
  const share::WindowRecord& record = world_.board().window(local_rank);
  if (record.door_shown.load(std::memory_order_acquire) == 0) return;  // it has no GPU yet
  auto& rests = meet_rests_[static_cast<std::size_t>(local_rank)];
  if (rests.rests()) return rests.pass();
  const std::lock_guard lock(mutex_);
  if (tried.load(std::memory_order_relaxed)) return;
  const auto opened = home.opens(local_rank);
  if (!opened) return rests.rest();
  auto& directory = world_.directory();
  const Met met = !*opened ? refuses : takes_tokens && tokens_.usable() ? opens_and_takes_tokens : opens;
  directory.lines(directory.local_rank(), local_rank)[0].word.store(met, std::memory_order_release);
  tried.store(true, std::memory_order_release);
  untried_.fetch_sub(1, std::memory_order_relaxed);
}

PeerMemory::Met PeerMemory::met(int world_rank) const noexcept {
  if (home_.load(std::memory_order_acquire) == nullptr || !world_.on_my_node(world_rank)) return unknown;
  if (world_rank == world_.rank()) return opens;
  auto& directory = world_.directory();
  const int local = world_.nodes().local_rank(world_rank);
  return static_cast<Met>(directory.lines(local, directory.local_rank())[0].word.load(std::memory_order_acquire));
}

bool PeerMemory::is_met(int world_rank) const noexcept {
  const Met found = met(world_rank);
  return found == opens || found == opens_and_takes_tokens;
}

bool PeerMemory::sends_headers(int world_rank) const noexcept {
  if (home_.load(std::memory_order_acquire) == nullptr || world_rank < 0 || !world_.on_my_node(world_rank))
    return false;
  const int local = world_.nodes().local_rank(world_rank);
  if (whole_[static_cast<std::size_t>(local)].load(std::memory_order_relaxed)) return false;
  auto& directory = world_.directory();
  if (local == directory.local_rank()) return true;
  const auto told = directory.lines(directory.local_rank(), local)[0].word.load(std::memory_order_relaxed);
  return told == opens || told == opens_and_takes_tokens;
}

void PeerMemory::came_whole(int world_rank, bool whole) noexcept {
  if (world_rank < 0 || !world_.on_my_node(world_rank)) return;
  auto& last = whole_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  if (last.load(std::memory_order_relaxed) != whole) last.store(whole, std::memory_order_relaxed);
}

bool PeerMemory::takes_tokens(int world_rank) const noexcept { return met(world_rank) == opens_and_takes_tokens; }

bool PeerMemory::shares_gpu_with(int world_rank) const noexcept {
  const team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr || !world_.on_my_node(world_rank)) return false;
  if (world_rank == world_.rank()) return true;
  return shares_gpu_with_local(world_.nodes().local_rank(world_rank));
}

bool PeerMemory::shares_gpu_with_local(int local_rank) const noexcept {
  const team::Home* const home = home_.load(std::memory_order_acquire);
  const auto& record = world_.directory().record(local_rank);
  return home != nullptr && record.device_seen.load(std::memory_order_acquire) != 0 && record.gpu_uuid == home->gpu();
}

bool PeerMemory::has_gpu_to_itself() const noexcept {
  const int own = world_.directory().local_rank();
  for (int local = 0; local < world_.directory().ranks(); ++local)
    if (local != own && shares_gpu_with_local(local)) return false;
  return true;
}

bool PeerMemory::runs_kernels_at_once() const noexcept {
  const team::Home* const home = home_.load(std::memory_order_acquire);
  return home != nullptr && (home->runs_side_by_side() || has_gpu_to_itself());
}

bool PeerMemory::takes_turns_with(int world_rank) const noexcept {
  const team::Home* const home = home_.load(std::memory_order_acquire);
  return home != nullptr && world_rank != world_.rank() && !home->runs_side_by_side() && shares_gpu_with(world_rank);
}

std::optional<PeerMemory::Shown> PeerMemory::show(const std::byte* first, std::size_t bytes,
                                                  const gpu::PointerInfo& seen, unsigned uses) noexcept {
  team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr) return std::nullopt;
  const gpu::PointerInfo info = seen.on_gpu() ? seen : copier_.gpu().inspect(first);
  const bool is_small = info.size < least_export_;
  if (is_small && export_uses_ == 0) return std::nullopt;
  if (!info.holds(first, bytes)) return std::nullopt;
  auto& exposure = home->exposure();
  const unsigned least = std::max(uses, is_small ? export_uses_ : 1);
  const share::Exposed exposed = least > 1 ? exposure.show_if_used(info, first, least) : exposure.show(info, first);
  if (exposed.id == 0) return std::nullopt;
  return Shown{exposed, reinterpret_cast<std::uintptr_t>(first)};
}

void PeerMemory::tend() noexcept {
  constexpr base::Duration seldom = std::chrono::milliseconds{10};
  team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr) return;
  const base::Time now = base::now();
  if (now < tended_.load(std::memory_order_relaxed) + seldom) return;
  tended_.store(now, std::memory_order_relaxed);
  if (home->stands()) home->exposure().tend();
}

bool PeerMemory::may_be_asked(int world_rank) noexcept {
  if (met(world_rank) == refuses || shares_gpu_with(world_rank)) return false;
  auto& asks = asks_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  if (!asks.rests()) return true;
  asks.pass();
  return false;
}

bool PeerMemory::waits(int world_rank) const noexcept {
  return world_.directory().waits(world_.nodes().local_rank(world_rank));
}

void PeerMemory::came(int world_rank, bool soon) noexcept {
  auto& asks = asks_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  if (soon) return asks.wake();
  // Of several that were asked for at once the first tells.
  if (!asks.rests()) asks.rest();
}

// Copies of so much are cheap beside the wait.
constexpr std::size_t most_late = std::size_t{1} << 20;

bool PeerMemory::comes_late(int world_rank, std::size_t bytes) noexcept {
  if (bytes > most_late) return false;
  auto& late = late_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  const bool rests = late.rests();
  late.pass();
  return rests;
}

void PeerMemory::came_for(int world_rank, std::size_t bytes, bool in_time) noexcept {
  if (bytes > most_late) return;
  auto& late = late_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  // Of several that were under way at once the first tells.
  if (!late.rests()) in_time ? late.prove() : late.rest();
}

void PeerMemory::writes(int world_rank) noexcept {
  wrote_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))].fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t PeerMemory::wrote(int world_rank) const noexcept {
  return wrote_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))].load(std::memory_order_relaxed);
}

lane::Place PeerMemory::place() const noexcept {
  const team::Home* const home = home_.load(std::memory_order_acquire);
  return home == nullptr ? lane::Place{} : lane::Place{home->context(), home->device()};
}

PeerMemory::Reached PeerMemory::reach(const Header& header) noexcept {
  if (header.sender == world_.rank()) return {reinterpret_cast<std::byte*>(header.address), nullptr};
  return reach(header.sender, header.exposed);
}

PeerMemory::Reached PeerMemory::reach(int world_rank, const share::Exposed& exposed) noexcept {
  team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr) return {};
  const int local_rank = world_.nodes().local_rank(world_rank);
  auto mapping = home->exposure().hold(local_rank, exposed, share::Exposure::Closing::as_set);
  if (mapping == nullptr) {
    if (!may_open_later(world_rank)) count_unreached(world_rank);
    return {};
  }
  count_reached(world_rank);
  std::byte* const data = mapping->data() + exposed.offset;
  return {data, std::move(mapping)};
}

// What refuses while older memory is open may not do so once that is closed.
bool PeerMemory::may_open_later(int world_rank) const noexcept {
  team::Home* const home = home_.load(std::memory_order_acquire);
  return home != nullptr && home->exposure().has_open(world_.nodes().local_rank(world_rank));
}

// Each payload that is asked for costs some milliseconds: as much as many messages that are read, which make up for it.
constexpr int most_unreached = 8, makes_up = 64;

void PeerMemory::count_reached(int world_rank) noexcept {
  auto& so_far = unreached_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  if (so_far.load(std::memory_order_relaxed) > 0) so_far.fetch_sub(1, std::memory_order_relaxed);
}

void PeerMemory::count_unreached(int world_rank) noexcept {
  auto& so_far = unreached_[static_cast<std::size_t>(world_.nodes().local_rank(world_rank))];
  constexpr int limit = most_unreached * makes_up;
  const int before = so_far.fetch_add(makes_up, std::memory_order_relaxed);
  if (before >= limit || before + makes_up < limit) return;
  base::log(base::Topic::warning,
            "GPU memory of rank {} could not be mapped {} times: its messages come through the host from now on "
            "(CROSSLANE_LOG=debug says why)",
            world_rank, most_unreached);
  refuse(world_rank);
}

void PeerMemory::refuse(int world_rank) noexcept {
  auto& directory = world_.directory();
  const int local = world_.nodes().local_rank(world_rank);
  if (local != directory.local_rank())
    directory.lines(directory.local_rank(), local)[0].word.store(refuses, std::memory_order_release);
}

bool PeerMemory::reads_for(const lane::Place* place) noexcept {
  const team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr) return false;
  // Memory of its own context that is there tells that it stands.
  if ((place != nullptr && place->context == home->context()) || home->stands()) return true;
  leave_for_good();
  return false;
}

void PeerMemory::leave_for_good() noexcept {
  leave();
  auto& directory = world_.directory();
  for (int local = 0; local < directory.ranks(); ++local) {
    if (local == directory.local_rank()) continue;
    tried_[static_cast<std::size_t>(local)].store(true, std::memory_order_release);
    directory.lines(directory.local_rank(), local)[0].word.store(refuses, std::memory_order_release);
  }
}

const std::byte* PeerMemory::reach_window(const Header& header) {
  if (header.sender == world_.rank()) return parcels_.memory();
  team::Home* const home = home_.load(std::memory_order_acquire);
  if (home == nullptr)
    throw base::Error(base::ErrorClass::other,
                      "a message lies in GPU memory of its sender, which this rank cannot read any more: the CUDA "
                      "context that it took "
                      "part with was destroyed or reset; receive such messages before");
  const int local_rank = owner(header);
  return home->peers().reach(world_.board().window(local_rank), local_rank, header.pieces.window,
                             share::Exposure::Closing::as_set);
}

}  // namespace crosslane::message
