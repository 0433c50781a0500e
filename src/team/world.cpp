// How a world forms: one duplicate of MPI_COMM_WORLD, one exchange of cards, the nodes' directories, one exchange of
// whether these worked. All nonblocking, driven by the engine: a few milliseconds even on ranks that share cores.
#include "team/world.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "share/ferry.h"
#include "share/offers.h"
#include "team/alike.h"
#include "team/share_node.h"
#include "topology/host.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace crosslane::team {
namespace {

// Counts the changes of what ranks exchange or share; ranks with different numbers must not meet.
constexpr std::uint64_t protocol = 6;

Cookie random_cookie() {
  Cookie cookie{};
  std::size_t filled = 0;
  while (filled < sizeof cookie) {
    const auto into = bytes_of(cookie).subspan(filled);
    const ssize_t got = getrandom(into.data(), into.size(), 0);
    if (got < 0 && errno != EINTR)
      throw base::Error(base::ErrorClass::other, "no random numbers from the system: {}", std::strerror(errno));
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return cookie;
}

std::string processor_name(const mpi::Functions& mpi) {
  std::string name(1024, '\0');  // above every family's MPI_MAX_PROCESSOR_NAME
  int length = 0;
  check(mpi, mpi.Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
  name.resize(static_cast<std::size_t>(length));
  return name;
}

}  // namespace

/// What every rank says first. Of the cookies, rank 0's counts.
struct World::Card {
  topology::HostIdentity host;
  Cookie cookie;
  std::uint64_t protocol;
  std::uint64_t looks;  // 1: a GPU may appear in the rank; 2: it looks at what it receives
  std::uint64_t alike;  // hash of what must be the same on all ranks
};

World::World(const mpi::Functions& mpi, const mpi::Handles& handles, engine::Engine& engine,
             const base::Settings& settings, bool looks, std::span<const share::Method> methods,
             const std::string& alike)
    : mpi_(mpi), handles_(handles), engine_(engine), communicator_(handles.comm_null) {
  check(mpi_, mpi_.Comm_rank(handles_.comm_world, &rank_), "MPI_Comm_rank");
  check(mpi_, mpi_.Comm_size(handles_.comm_world, &size_), "MPI_Comm_size");
  base::set_log_rank(rank_);
  if (settings.world == base::World::partial) {
    std::vector<topology::HostIdentity> apart;
    apart.reserve(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) apart.push_back({static_cast<std::uint64_t>(rank), 0});
    nodes_ = topology::NodeMap{apart, 0};
    cookie_ = random_cookie();
    share::Directory own{share::Segment::unshared(share::Directory::bytes_for({})), {}, 0};
    own.join(rank_);
    directory_.emplace(std::move(own));
    return;
  }
  engine::Watch watch{
      .call = "MPI_Init", .communicator = "MPI_COMM_WORLD", .details = [](const void*) {
        return std::string{
            "waiting for all ranks to form Crosslane's world; where some do not load Crosslane, or have "
            "CROSSLANE_DISABLE=1, "
            "CROSSLANE_MODE=passthrough or CROSSLANE_WORLD=partial, set CROSSLANE_WORLD=partial on all that load it"};
      }};
  watch.within = 10;  // MPI's own initialisation has brought them together
  try {
    engine_.run(form(settings, looks, methods, settings.alike() + alike), watch);
  } catch (...) {
    messenger_.reset();
    if (communicator_ != handles_.comm_null) mpi_.Comm_free(&communicator_);
    throw;
  }
  engine_.keep_mpi_progressing(communicator_);
}

engine::Task<> World::form(const base::Settings& settings, bool looks, std::span<const share::Method> methods,
                           std::string alike) {
  MPI_Request request{};
  MPI_Comm duplicate{};  // only valid once the request is done
  check(mpi_, mpi_.Comm_idup(handles_.comm_world, &duplicate, &request), "MPI_Comm_idup");
  const int code = co_await engine::Completion::of(&request);
  check(mpi_, code, "MPI_Comm_idup");
  communicator_ = duplicate;
  check(mpi_, mpi_.Comm_set_errhandler(communicator_, handles_.errors_return), "MPI_Comm_set_errhandler");
  const Messenger messenger{mpi_, handles_, communicator_};

  const Card mine{topology::host_identity(processor_name(mpi_)), random_cookie(), protocol,
                  (looks ? 1U : 0U) | (looks && (settings.pipeline_bytes != 0 || settings.direct_bytes != 0) ? 2U : 0U),
                  base::hash_of(alike)};
  std::vector<Card> cards(static_cast<std::size_t>(size_));
  co_await messenger.all_gather(bytes_of(mine), std::as_writable_bytes(std::span{cards}));
  cookie_ = cards.front().cookie;
  std::vector<topology::HostIdentity> hosts;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].protocol != protocol)
      throw base::Error(base::ErrorClass::other, "rank {} runs another version of Crosslane than rank {}", rank, rank_);
    hosts.push_back(cards[rank].host);
    looks_.push_back((cards[rank].looks & 2U) != 0);
    may_have_gpus_.push_back((cards[rank].looks & 1U) != 0);
  }
  // The same cards everywhere: all ranks see that some differ, or none does.
  if (std::ranges::any_of(cards, [&](const Card& card) { return card.alike != cards.front().alike; }))
    co_await refuse_differences(messenger, size_, alike);
  nodes_ = topology::NodeMap{hosts, settings.node_size};
  if (std::ranges::count(hosts, mine.host) > topology::processors()) engine_.share_processors();

  std::string reason;
  const auto members = nodes_.members(nodes_.node_of(rank_));
  node_looks_ = std::ranges::any_of(
      members, [&](int member) { return (cards[static_cast<std::size_t>(member)].looks & 1U) != 0; });
  share::Shape shape;
  if (node_looks_) {
    shape.board_bytes = share::Board::bytes_for(static_cast<int>(members.size()));
    shape.lines_per_rank = share::Offers::most;
    shape.ferry_bytes = share::Ferry::bytes();
  }
  const NodeRequest node{messenger, nodes_, rank_, cookie_, shape, methods};
  std::optional<share::Directory> directory = co_await share_node(node, reason);

  // Nodes are facts that all ranks must see alike, hence all are told where sharing failed.
  const std::uint8_t shared = directory ? 1 : 0;
  std::vector<std::uint8_t> all_shared(static_cast<std::size_t>(size_));
  std::vector<bool> dissolved(static_cast<std::size_t>(nodes_.nodes()));
  confirmations_.resize(static_cast<std::size_t>(size_));
  co_await messenger.all_gather(bytes_of(shared), std::as_writable_bytes(std::span{all_shared}));
  for (std::size_t rank = 0; rank < all_shared.size(); ++rank)
    if (all_shared[rank] == 0) dissolved[static_cast<std::size_t>(nodes_.node_of(static_cast<int>(rank)))] = true;
  if (!directory) {
    if (nodes_.local_rank(rank_) == 0) {
      base::log(base::Topic::warning,
                "the {} ranks of this node cannot share memory, and will exchange GPU buffers through MPI only ({})",
                nodes_.node_size(nodes_.node_of(rank_)), reason);
    }
    directory.emplace(private_directory(node));
  } else if (!reason.empty()) {
    base::log(base::Topic::info, "sharing memory by {} ({})", share::name_of(directory->segment().token().method),
              reason);
  }
  nodes_ = nodes_.dissolve(dissolved);
  directory_.emplace(*std::move(directory));
  if (node_looks_) board_.emplace(*directory_, directory_->local_rank());
  messenger_.emplace(messenger);
}

void World::confirm(bool failed) {
  confirmation_ = failed ? 1 : 0;
  engine_.run(messenger().all_gather(bytes_of(confirmation_), std::as_writable_bytes(std::span{confirmations_})),
              {.call = "MPI_Init", .communicator = "MPI_COMM_WORLD"});
  const auto first = std::ranges::find(confirmations_, 1);
  if (first != confirmations_.end() && !failed)
    throw base::Error(base::ErrorClass::other,
                      "rank {} of MPI_COMM_WORLD could not set Crosslane up, and its own error says why",
                      first - confirmations_.begin());
}

std::optional<std::vector<int>> World::local_ranks(std::span<const int> world_ranks) const {
  std::vector<int> found;
  found.reserve(world_ranks.size());
  for (const int world_rank : world_ranks) {
    if (!on_my_node(world_rank)) return std::nullopt;
    found.push_back(nodes_.local_rank(world_rank));
  }
  return found;
}

void World::leave() noexcept {
  directory_->leave();
  if (agreed()) engine_.keep_mpi_progressing(std::nullopt);
}

void World::leave_behind(std::unique_ptr<World> world) noexcept {
  world->leave();
  static_cast<void>(world.release());
}

World::~World() {
  leave();
  if (!agreed()) return;
  mpi_.Comm_free(&communicator_);  // a failure here is nothing that MPI_Finalize could act on
}

}  // namespace crosslane::team
