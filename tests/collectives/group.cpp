// See group.h.
#include "collectives/group.h"

#include "support/check.h"

#include <algorithm>
#include <array>
#include <utility>

namespace crosslane::tests {
namespace {

std::vector<int> world_ranks(MPI_Group group) {
  int size = 0;
  MPI_Group_size(group, &size);
  std::vector<int> mine(static_cast<std::size_t>(size)), result(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) mine[static_cast<std::size_t>(i)] = i;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, mine.data(), world, result.data());
  MPI_Group_free(&world);
  MPI_Group_free(&group);
  return result;
}

// Neighbours as ranks of the communicator, in the order of the neighbourhood collectives.
std::pair<std::vector<int>, std::vector<int>> neighbours(MPI_Comm comm) {
  int topology = MPI_UNDEFINED;
  MPI_Topo_test(comm, &topology);
  std::vector<int> in, out;
  if (topology == MPI_CART) {
    int dimensions = 0;
    MPI_Cartdim_get(comm, &dimensions);
    for (int i = 0; i < dimensions; ++i) {
      int below = 0, above = 0;
      MPI_Cart_shift(comm, i, 1, &below, &above);
      in.push_back(below);
      in.push_back(above);
    }
    out = in;
  } else if (topology == MPI_GRAPH) {
    int rank = 0, count = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Graph_neighbors_count(comm, rank, &count);
    in.resize(static_cast<std::size_t>(count));
    MPI_Graph_neighbors(comm, rank, count, in.data());
    out = in;
  } else {
    int indegree = 0, outdegree = 0, weighted = 0;
    MPI_Dist_graph_neighbors_count(comm, &indegree, &outdegree, &weighted);
    in.resize(static_cast<std::size_t>(indegree));
    out.resize(static_cast<std::size_t>(outdegree));
    MPI_Dist_graph_neighbors(comm, indegree, in.data(), MPI_UNWEIGHTED, outdegree, out.data(), MPI_UNWEIGHTED);
  }
  return {in, out};
}

}  // namespace

void Groups::add(MPI_Comm comm, Group::Kind kind, std::string text) {
  Group group;
  group.comm = comm;
  group.kind = kind;
  group.text = std::move(text);
  MPI_Comm_rank(comm, &group.rank);
  MPI_Comm_size(comm, &group.size);
  int smallest = 0;
  MPI_Allreduce(&group.size, &smallest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  group.has_lonely_rank = smallest == 1;
  MPI_Group mine = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &mine);
  group.local = world_ranks(mine);
  group.sizes[0] = group.size;
  group.in = group.out = group.local;
  if (kind == Group::Kind::inter) {
    MPI_Comm_remote_group(comm, &mine);
    group.in = group.out = world_ranks(mine);
    group.side = group.local.front() < group.in.front() ? 0 : 1;
    group.sizes[group.side] = group.size;
    group.sizes[1 - group.side] = static_cast<int>(group.in.size());
  } else if (kind == Group::Kind::topology) {
    auto [in, out] = neighbours(comm);
    int topology = MPI_UNDEFINED;
    MPI_Topo_test(comm, &topology);
    group.directed = topology == MPI_DIST_GRAPH;
    const auto to_world = [&group](int rank) {
      return rank == MPI_PROC_NULL ? -1 : group.local[static_cast<std::size_t>(rank)];
    };
    std::transform(in.begin(), in.end(), in.begin(), to_world);
    std::transform(out.begin(), out.end(), out.begin(), to_world);
    group.in = std::move(in);
    group.out = std::move(out);
  }
  groups_[static_cast<std::size_t>(kind)].push_back(std::move(group));
}

void Groups::add_topologies(Random& common, int rank, int size) {
  MPI_Comm comm = MPI_COMM_NULL;
  const auto cart = [&](std::vector<int> dimensions, std::vector<int> periods) {
    MPI_Cart_create(MPI_COMM_WORLD, static_cast<int>(dimensions.size()), dimensions.data(), periods.data(), 0, &comm);
    if (comm != MPI_COMM_NULL)
      add(comm, Group::Kind::topology, fmt::format("cart {}D, period {}", dimensions.size(), periods[0]));
  };
  cart({size}, {0});
  // Periodic dimensions of one or two ranks have the same neighbour on both sides: MPIs have disagreed on the order there.
  if (size >= 3) cart({size}, {1});
  std::vector<int> dimensions(2, 0);
  MPI_Dims_create(size, 2, dimensions.data());
  cart(dimensions, {dimensions[0] >= 3 ? 1 : 0, 0});
  dimensions.assign(3, 0);
  MPI_Dims_create(size, 3, dimensions.data());
  cart(dimensions, {0, 0, 0});

  // A ring with a hub: every rank knows rank 0.
  std::vector<int> ends, edges;
  for (int i = 0; i < size; ++i) {
    std::vector<int> mine{(i + 1) % size, (i + size - 1) % size, 0};
    if (i == 0) {
      mine = {1 % size, size - 1};
      for (int j = 0; j < size; ++j) mine.push_back(j);
    }
    edges.insert(edges.end(), mine.begin(), mine.end());
    ends.push_back(static_cast<int>(edges.size()));
  }
  MPI_Graph_create(MPI_COMM_WORLD, size, ends.data(), edges.data(), 0, &comm);
  add(comm, Group::Kind::topology, "graph");

  // Random directed edges, loops and repetitions among them; all ranks draw all edges.
  for (int graph = 0; graph < 2; ++graph) {
    std::vector<int> sources, destinations;
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) {
        for (auto copies = common.below(graph == 0 ? 2 : 3); copies > 0; --copies) {
          if (to == rank) sources.push_back(from);
          if (from == rank) destinations.push_back(to);
        }
      }
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(sources.size()), sources.data(), MPI_UNWEIGHTED,
                                   static_cast<int>(destinations.size()), destinations.data(), MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &comm);
    add(comm, Group::Kind::topology, fmt::format("dist_graph {}", graph));
  }
}

Groups::Groups(Random& common) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm comm = MPI_COMM_NULL;
  add(MPI_COMM_WORLD, Group::Kind::intra, "world");
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  add(comm, Group::Kind::intra, "duplicate");
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
  add(comm, Group::Kind::intra, "reversed");
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &comm);
  add(comm, Group::Kind::intra, "even or odd");
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : 1, -rank, &comm);
  add(comm, Group::Kind::intra, "all but one");
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  add(comm, Group::Kind::intra, "self");
  // Inter-communicators: one rank against the others, and halves.
  for (const int lower : {1, size / 2}) {
    if (lower == 0 || lower == size) continue;
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < lower ? 0 : 1, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < lower ? lower : 0, 7, &comm);
    MPI_Comm_free(&half);
    add(comm, Group::Kind::inter, fmt::format("{} against {}", lower, size - lower));
  }
  add_topologies(common, rank, size);
}

Groups::~Groups() {
  for (auto& kind : groups_)
    for (auto& group : kind)
      if (group.comm != MPI_COMM_WORLD) MPI_Comm_free(&group.comm);
}

const Group& Groups::pick(Random& common, Group::Kind kind) const { return common.pick(of(kind)); }

}  // namespace crosslane::tests
