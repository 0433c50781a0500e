// See neighbourhood.h.
#include "team/neighbourhood.h"

#include "team/messenger.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace crosslane::team {
namespace {

using Edge = Neighbourhood::Edge;

// By rank; those of one rank stay in their order.
std::vector<Edge> by_rank(std::span<const int> ranks, int absent) {
  std::vector<Edge> edges;
  for (std::size_t block = 0; block < ranks.size(); ++block)
    if (ranks[block] != absent) edges.push_back({ranks[block], block});
  std::ranges::stable_sort(edges, {}, &Edge::rank);
  return edges;
}

bool single(const std::vector<Edge>& edges) {
  return std::ranges::adjacent_find(edges, {}, &Edge::rank) == edges.end();
}

std::vector<int> ranks_of(std::size_t length) { return std::vector<int>(std::max<std::size_t>(length, 1)); }

}  // namespace

std::shared_ptr<Neighbourhood> Neighbourhood::of(const mpi::Functions& mpi, MPI_Comm communicator) {
  int topology = mpi::undefined;
  check(mpi, mpi.Topo_test(communicator, &topology), "MPI_Topo_test");
  std::vector<int> sources;
  std::vector<int> destinations;
  if (topology == mpi::cart) {
    int dimensions = 0;
    check(mpi, mpi.Cartdim_get(communicator, &dimensions), "MPI_Cartdim_get");
    for (int dimension = 0; dimension < dimensions; ++dimension) {
      int below = mpi::proc_null;
      int above = mpi::proc_null;
      check(mpi, mpi.Cart_shift(communicator, dimension, 1, &below, &above), "MPI_Cart_shift");
      sources.insert(sources.end(), {below, above});
    }
    destinations = sources;
  } else if (topology == mpi::graph) {
    int rank = 0;
    int count = 0;
    check(mpi, mpi.Comm_rank(communicator, &rank), "MPI_Comm_rank");
    check(mpi, mpi.Graph_neighbors_count(communicator, rank, &count), "MPI_Graph_neighbors_count");
    sources = ranks_of(static_cast<std::size_t>(count));
    check(mpi, mpi.Graph_neighbors(communicator, rank, count, sources.data()), "MPI_Graph_neighbors");
    sources.resize(static_cast<std::size_t>(count));
    destinations = sources;
  } else if (topology == mpi::dist_graph) {
    int in = 0;
    int out = 0;
    int weighted = 0;
    check(mpi, mpi.Dist_graph_neighbors_count(communicator, &in, &out, &weighted), "MPI_Dist_graph_neighbors_count");
    sources = ranks_of(static_cast<std::size_t>(in));
    destinations = ranks_of(static_cast<std::size_t>(out));
    std::vector<int> weights_in = sources;
    std::vector<int> weights_out = destinations;
    check(mpi,
          mpi.Dist_graph_neighbors(communicator, in, sources.data(), weights_in.data(), out, destinations.data(),
                                   weights_out.data()),
          "MPI_Dist_graph_neighbors");
    sources.resize(static_cast<std::size_t>(in));
    destinations.resize(static_cast<std::size_t>(out));
  } else {
    return nullptr;
  }
  return std::make_shared<Neighbourhood>(sources, destinations, mpi::proc_null);
}

Neighbourhood::Neighbourhood(std::span<const int> sources, std::span<const int> destinations, int absent)
    : in_(by_rank(sources, absent)),
      out_(by_rank(destinations, absent)),
      question_(destinations.size()),
      blocks_in_(sources.size()),
      single_(single(in_) && single(out_)) {
  for (std::size_t i = 1; i < out_.size(); ++i)
    if (out_[i].rank == out_[i - 1].rank) question_[out_[i].block] = question_[out_[i - 1].block] + 1;
}

std::size_t Neighbourhood::place(EdgeCall call) noexcept {
  const auto procedure = static_cast<std::size_t>(call.procedure) - static_cast<std::size_t>(NeighbourCall::alltoall);
  return procedure * forms + static_cast<std::size_t>(call.form);
}

const std::vector<Edge>& Neighbourhood::in(EdgeCall call) const noexcept {
  return call.tells_edges_apart() && matched(call) ? *known_[place(call)].in : in_;
}

void Neighbourhood::ask(const mpi::Functions& mpi, MPI_Comm communicator, EdgeCall call) {
  // Open MPI refuses arrays at null, even of no elements.
  const std::size_t length = std::max<std::size_t>({question_.size(), blocks_in_, 1});
  std::vector<int> out = question_;
  out.resize(length);
  std::vector<int> in(length);
  const std::vector<int> ones(length, 1);
  std::vector<int> places(length);
  std::iota(places.begin(), places.end(), 0);
  std::vector<MPI_Aint> bytes;
  for (const int at : places) bytes.push_back(static_cast<MPI_Aint>(sizeof(int)) * at);
  const std::vector<MPI_Datatype> types(length, mpi.handles->int_);
  const MPI_Datatype type = types.front();
  switch (call.procedure) {
    case NeighbourCall::alltoall:
      check(mpi, mpi.Neighbor_alltoall(out.data(), 1, type, in.data(), 1, type, communicator), "MPI_Neighbor_alltoall");
      break;
    case NeighbourCall::alltoallv:
      check(mpi,
            mpi.Neighbor_alltoallv(out.data(), ones.data(), places.data(), type, in.data(), ones.data(), places.data(),
                                   type, communicator),
            "MPI_Neighbor_alltoallv");
      break;
    case NeighbourCall::alltoallw:
      check(mpi,
            mpi.Neighbor_alltoallw(out.data(), ones.data(), bytes.data(), types.data(), in.data(), ones.data(),
                                   bytes.data(), types.data(), communicator),
            "MPI_Neighbor_alltoallw");
      break;
    default:
      return;
  }
  learn(call, {in.data(), blocks_in_});
}

void Neighbourhood::learn(EdgeCall call, std::span<const int> answer) {
  known_[place(call)].asked = true;
  std::vector<Edge> edges = in_;
  std::ranges::sort(edges, [&](const Edge& a, const Edge& b) {
    return std::pair(a.rank, answer[a.block]) < std::pair(b.rank, answer[b.block]);
  });
  // From each rank its edges to here, each once.
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const bool first = i == 0 || edges[i].rank != edges[i - 1].rank;
    const int expected = first ? 0 : answer[edges[i - 1].block] + 1;
    if (answer[edges[i].block] != expected) return;
  }
  known_[place(call)].in = std::move(edges);
}

}  // namespace crosslane::team
