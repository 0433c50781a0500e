// See window_maker.h.
#include "interpose/window_maker.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "interpose/memories.h"
#include "interpose/teams.h"
#include "mpi/raised.h"
#include "mpi/returns_errors.h"
#include "team/messenger.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace crosslane::interpose {
namespace {

// Unshown is GPU memory that others cannot open.
enum class State : std::int64_t { elsewhere, unshown, empty, takes_part, failed };

/// What a rank tells the others of its part.
struct Card {
  State state = State::elsewhere;
  MPI_Aint size = 0, unit = 1;
  share::Exposed exposed{};
};

// True if it lies in the home's context: then what the application has enqueued there before is over, and others may open it.
bool show(Process& process, const char* call, void* base, MPI_Aint size, team::Home*& home, share::Exposed& exposed) {
  const auto byte = process.layouts().of(process.library().handles().byte);
  const Located located = locate(process.copier(), call, "base", base, *byte, size, Apart::never);
  const lane::Place place = located.place.value_or(lane::Place{});
  process.see_device(place.device);
  home = process.teams()->home_at(place);
  if (home == nullptr || place.context != home->context()) return false;
  process.copier().settle(place, {.call = call});
  exposed = home->exposure().show(located.seen, base);
  return true;
}

// Of a rank that has nothing in a window of others, and has passed no GPU memory yet: where it works, if it works anywhere.
team::Home* home_here(Process& process) {
  if (!process.gpu().present()) return nullptr;
  const auto& driver = process.gpu().driver();
  CUcontext context = nullptr;
  if (driver.ctx_get_current(&context) != CUDA_SUCCESS || context == nullptr) return nullptr;
  const int device = gpu::current_device(driver);
  process.see_device(device);
  return process.teams()->home_at({context, device});
}

// Who finds that a window of GPU memory cannot be mapped says so.
void say_unmapped(Teams& teams, const char* call, std::string_view why) {
  base::log(teams.first_unmapped_window() ? base::Topic::warning : base::Topic::info,
            "{}: the window is accessed on host copies, which takes many times as long: {}", call, why);
}

// All ranks' parts as this one reaches them; nothing where it cannot reach one.
std::vector<MappedWindow::Part> mapped_parts(Process& process, team::Home& home, void* base,
                                             const std::vector<Card>& cards, const std::vector<int>& world_ranks,
                                             int me) {
  const auto& nodes = process.world()->nodes();
  std::vector<MappedWindow::Part> parts;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    auto& part = parts.emplace_back(MappedWindow::Part{.size = card.size, .unit = card.unit, .mapping = nullptr});
    if (card.size == 0) continue;
    if (static_cast<int>(rank) == me) {
      part.data = static_cast<std::byte*>(base);
      continue;
    }
    part.mapping =
        home.exposure().hold(nodes.local_rank(world_ranks[rank]), card.exposed, share::Exposure::Closing::at_once);
    if (part.mapping == nullptr) return {};
    part.data = part.mapping->data() + card.exposed.offset;
  }
  return parts;
}

[[noreturn]] void cannot_take_part(const char* call, std::ptrdiff_t rank) {
  throw base::Error(base::ErrorClass::buffer,
                    "{}: rank {} of the communicator cannot take part in the window, and has been told why", call,
                    rank);
}

}  // namespace

bool tell_each_other(Process& process, MPI_Comm comm) {
  const team::World* const world = process.world();
  if (world == nullptr || !world->agreed() || process.of_session(comm)) return false;
  const team::CommunicatorFacts& facts = process.communicators()->of(comm);
  return !facts.inter && std::ranges::all_of(facts.world_ranks, [&](int rank) { return world->takes_part(rank); }) &&
         std::ranges::any_of(facts.world_ranks, [&](int rank) { return world->may_have_gpus(rank); });
}

void agree(Process& process, const char* call, MPI_Comm comm, const std::exception_ptr& failure) {
  if (!process.is_null(comm) && tell_each_other(process, comm)) {
    constexpr int nobody = std::numeric_limits<int>::max();
    const auto& below = process.library().below();
    const auto& handles = process.library().handles();
    int mine = nobody, first = nobody;
    if (failure) below.Comm_rank(comm, &mine);
    const int code = below.Allreduce(&mine, &first, 1, handles.int_, handles.min, comm);
    if (code != mpi::success && !failure) throw mpi::Raised(code, base::ErrorClass::other, "MPI_Allreduce");
    if (!failure && first != nobody) cannot_take_part(call, first);
  }
  if (failure) std::rethrow_exception(failure);
}

std::unique_ptr<MappedWindow> map_window(Process& process, const char* call, void* base, MPI_Aint size, bool on_gpu,
                                         MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm) {
  // The same on all ranks.
  team::World* const world = process.world();
  Teams* const teams = process.teams();
  if (!process.settings().mapped_windows || !tell_each_other(process, comm) || !world->node_looks() || teams == nullptr)
    return nullptr;
  const auto facts = process.communicators()->share(comm);
  const auto& ranks = facts->world_ranks;
  if (!std::ranges::all_of(ranks, [&](int rank) { return world->on_my_node(rank); })) return nullptr;

  const auto& below = process.library().below();
  const auto& handles = process.library().handles();
  int me = 0;
  below.Comm_rank(comm, &me);
  Card mine{.size = size, .unit = disp_unit};
  team::Home* home = teams->standing_home();
  std::exception_ptr failure;
  try {
    if (size < 0) throw base::Error(base::ErrorClass::size, "{}: size: {} is negative", call, size);
    if (disp_unit <= 0)
      throw base::Error(base::ErrorClass::displacement, "{}: disp_unit: {} is not positive", call, disp_unit);
    if (on_gpu)
      mine.state = show(process, call, base, size, home, mine.exposed) && (mine.exposed.id != 0 || ranks.size() == 1)
                       ? State::takes_part
                       : State::unshown;
    else if (size == 0)
      mine.state = State::empty;
  } catch (...) {
    failure = std::current_exception();
    mine.state = State::failed;
  }
  std::vector<Card> cards(ranks.size());
  static_assert(std::is_trivially_copyable_v<Card>);
  // Not a communicator of our own: MPICH 4.0 names windows by theirs, and would give two one name once that is freed.
  const mpi::ReturnsErrors returns(below, comm);
  team::check(below, below.Allgather(&mine, sizeof mine, handles.byte, cards.data(), sizeof mine, handles.byte, comm),
              "MPI_Allgather");
  if (failure) std::rethrow_exception(failure);
  const auto failed = std::ranges::find(cards, State::failed, &Card::state);
  if (failed != cards.end()) cannot_take_part(call, failed - cards.begin());
  const auto some = [&](State state) { return std::ranges::find(cards, state, &Card::state) != cards.end(); };
  if (some(State::elsewhere) || !(some(State::takes_part) || some(State::unshown))) return nullptr;
  if (mine.state == State::unshown)
    say_unmapped(
        *teams, call,
        "this rank's part cannot be opened by others (it is of a pool or of cuMemCreate without a handle, managed, or "
        "not of the GPU that the rank takes part with)");
  if (some(State::unshown)) return nullptr;

  std::unique_ptr<MappedWindow> made;
  try {
    if (home == nullptr) home = home_here(process);
    auto parts =
        home == nullptr ? std::vector<MappedWindow::Part>{} : mapped_parts(process, *home, base, cards, ranks, me);
    if (!parts.empty()) made = std::make_unique<MappedWindow>(process, *home, base, size, std::move(parts));
    if (made == nullptr)
      say_unmapped(
          *teams, call,
          home == nullptr
              ? "this rank has no part in it, has passed no GPU memory to MPI yet, and no CUDA context is current"
              : "this rank cannot map all parts (CROSSLANE_LOG=debug says why)");
  } catch (const std::exception& error) {
    say_unmapped(*teams, call, error.what());
  }
  const int ready = made != nullptr ? 1 : 0;
  int all_ready = 0;
  team::check(below, below.Allreduce(&ready, &all_ready, 1, handles.int_, handles.min, comm), "MPI_Allreduce");
  if (all_ready != 0 && made->epochs().open(disp_unit, info, comm)) return made;
  if (all_ready != 0)
    say_unmapped(*teams, call, "the MPI gives no shared memory for its epochs (MPI_Win_allocate_shared)");
  return nullptr;
}

}  // namespace crosslane::interpose
