// A world under a real MPI: equal facts on all ranks, words between ranks of a node, no names left, communicators' ranks.
// Argument: the methods of sharing to allow (anonymous, posix, file, none, all).
#include "mpi/check.h"

#include "base/clock.h"
#include "base/log.h"
#include "team/communicators.h"
#include "team/world.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

using namespace crosslane;

namespace {

std::vector<share::Method> methods_of(const std::string& name) {
  if (name == "anonymous") return {share::Method::anonymous};
  if (name == "posix") return {share::Method::posix};
  if (name == "file") return {share::Method::file};
  if (name == "none") return {};
  return {share::all_methods.begin(), share::all_methods.end()};
}

void barrier(engine::Engine& engine, const team::World& world) {
  std::vector<std::byte> all(static_cast<std::size_t>(world.size()));
  const std::byte mine{};
  engine.wait(engine.spawn(world.messenger().all_gather(team::bytes_of(mine), all)), {.call = "barrier"});
}

template <class T>
std::vector<T> gather(engine::Engine& engine, const team::World& world, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(world.size()));
  engine.wait(engine.spawn(world.messenger().all_gather(team::bytes_of(mine), std::as_writable_bytes(std::span{all}))),
              {.call = "gather"});
  return all;
}

bool looks(int rank) { return rank % 3 != 1; }

int rank_in(const mpi::Functions& mpi, const mpi::Handles& handles) {
  int rank = -1;
  mpi.Comm_rank(handles.comm_world, &rank);
  return rank;
}

void facts(engine::Engine& engine, team::World& world, const base::Settings& settings, bool shared) {
  const auto cookies = gather(engine, world, world.cookie());
  for (const auto& cookie : cookies) CHECK(cookie == world.cookie());
  CHECK(world.cookie() != team::Cookie{});
  const topology::NodeMap& nodes = world.nodes();
  CHECK(nodes.ranks() == world.size());
  const int node_size = !shared ? 1 : settings.node_size > 0 ? settings.node_size : world.size();
  CHECK(nodes.nodes() == (world.size() + node_size - 1) / node_size);
  for (int rank = 0; rank < world.size(); ++rank) {
    CHECK(nodes.node_of(rank) == rank / node_size);
    CHECK(nodes.local_rank(rank) == rank % node_size);
    CHECK(world.takes_part(rank));
    CHECK(world.looks_at_receives(rank) == looks(rank));
    CHECK(world.on_my_node(rank) == (rank / node_size == world.rank() / node_size));
  }
  CHECK(!world.takes_part(team::not_in_world) && !world.takes_part(world.size()));
  CHECK(!world.looks_at_receives(team::not_in_world) && !world.looks_at_receives(world.size()));
}

/// A token goes round the node by words, each rank adding one.
void words(engine::Engine& engine, team::World& world) {
  share::Directory& directory = world.directory();
  const int ranks = directory.ranks();
  const int me = directory.local_rank();
  CHECK(ranks == world.nodes().node_size(world.nodes().node_of(world.rank())));
  const int next = (me + 1) % ranks;
  const int previous = (me + ranks - 1) % ranks;
  for (std::uint64_t round = 1; round <= 100; ++round) {
    if (me != 0) engine.wait(engine::Completion::of(directory.lines(previous, me)[0].word, round), {.call = "ring"});
    directory.lines(me)[0].word.store(round, std::memory_order_relaxed);
    directory.lines(me, next)[0].word.store(round, std::memory_order_release);
    if (me == 0) engine.wait(engine::Completion::of(directory.lines(previous, 0)[0].word, round), {.call = "ring"});
    if (me == 0)
      for (int rank = 0; rank < ranks; ++rank) CHECK(directory.lines(rank)[0].word == round);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(directory.record(rank).presence == share::Presence::joined);
    CHECK(directory.record(rank).world_rank ==
          world.nodes().members(world.nodes().node_of(world.rank()))[static_cast<std::size_t>(rank)]);
    CHECK(directory.alive(rank));
  }
}

void names_are_gone(const team::World& world, share::Directory& directory) {
  const share::Token& token = directory.segment().token();
  const std::string name = token.name.data();
  if (token.method == share::Method::posix) CHECK(!name.empty() && !std::filesystem::exists("/dev/shm" + name));
  if (token.method == share::Method::file) CHECK(!name.empty() && !std::filesystem::exists(name));
  static_cast<void>(world);
}

void communicators(const mpi::Library& library, const team::World& world) {
  const mpi::Functions& mpi = library.below();
  const mpi::Handles& handles = library.handles();
  team::Communicators all{mpi, handles};
  const int me = world.rank();
  const int size = world.size();

  team::CommunicatorFacts& whole = all.of(handles.comm_world);
  for (int rank = 0; rank < size; ++rank) CHECK(whole.world_rank(rank) == rank);
  CHECK(whole.world_rank(size) == team::not_in_world);
  CHECK(whole.world_rank(mpi::proc_null) == team::not_in_world);
  CHECK(whole.world_rank(mpi::any_source) == team::not_in_world);
  CHECK(&all.of(handles.comm_world) == &whole);
  CHECK(all.name_of(handles.comm_world) == "MPI_COMM_WORLD");
  CHECK(all.of(handles.comm_self).world_rank(0) == me);

  // Reversed halves, freed and made again: a handle that comes back must not bring old facts.
  for (int round = 0; round < 3; ++round) {
    MPI_Comm half{};
    CHECK(mpi.Comm_split(handles.comm_world, (me + round) % 2, -me, &half) == mpi::success);
    const team::CommunicatorFacts& facts = all.of(half);
    std::vector<int> expected;
    for (int rank = size - 1; rank >= 0; --rank)
      if ((rank + round) % 2 == (me + round) % 2) expected.push_back(rank);
    CHECK(facts.world_ranks == expected);
    const std::shared_ptr<team::CommunicatorFacts> kept = all.share(half);
    CHECK(kept.get() == &facts && !kept->freed);
    MPI_Comm copy{};
    CHECK(mpi.Comm_dup(half, &copy) == mpi::success);
    CHECK(&all.of(copy) != &facts && all.of(copy).world_ranks == expected);
    CHECK(all.of(copy).calls == 0);
    mpi.Comm_free(&copy);
    CHECK(!kept->freed);
    mpi.Comm_free(&half);
    CHECK(kept->freed && kept->world_ranks == expected);
  }

  if (size >= 2) {
    MPI_Comm half{};
    MPI_Comm inter{};
    CHECK(mpi.Comm_split(handles.comm_world, me % 2, me, &half) == mpi::success);
    CHECK(mpi.Intercomm_create(half, 0, handles.comm_world, 1 - me % 2, 5, &inter) == mpi::success);
    const team::CommunicatorFacts& facts = all.of(inter);
    CHECK(facts.inter);
    for (std::size_t rank = 0; rank < facts.world_ranks.size(); ++rank)
      CHECK(facts.world_ranks[rank] == static_cast<int>(2 * rank) + 1 - me % 2);
    mpi.Comm_free(&inter);
    mpi.Comm_free(&half);
  }
}

void run(const std::string& methods_name) {
  const mpi::Library library;
  const mpi::Functions& mpi = library.below();
  CHECK(mpi.Init(nullptr, nullptr) == mpi::success);
  base::Settings settings = base::Settings::from_environment();
  settings.pipeline_bytes = 1 << 20;  // where it is 0 nobody looks
  base::set_log_topics(settings.log);
  engine::Engine engine{mpi, 30};
  const auto methods = methods_of(methods_name);
  for (int round = 0; round < 3; ++round) {
    const base::Time begin = base::now();
    team::World world{mpi, library.handles(), engine, settings, looks(rank_in(mpi, library.handles())), methods};
    const std::chrono::duration<double, std::milli> took = base::now() - begin;
    if (world.rank() == 0) std::printf("the world formed in %.2f ms\n", took.count());
    if (settings.world == base::World::partial) {
      CHECK(!world.agreed());
      CHECK(!world.takes_part(world.rank()) && !world.on_my_node(world.rank()));
      CHECK(!world.looks_at_receives(world.rank()));
      CHECK(world.nodes().nodes() == world.size());
      CHECK(world.directory().ranks() == 1);
    } else {
      facts(engine, world, settings, !methods.empty());
      names_are_gone(world, world.directory());
      words(engine, world);
      barrier(engine, world);
    }
    communicators(library, world);
    CHECK(engine.idle());
  }
  CHECK(mpi.Finalize() == mpi::success);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "all");
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return EXIT_FAILURE;
  }
  return check::status();
}
