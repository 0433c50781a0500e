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

// Open MPI refuses arrays at null, even of no elements.
Question::Question(EdgeCall call, const std::vector<int>& ordinals, std::size_t blocks_in)
    : call_(call), blocks_in_(blocks_in), out_(ordinals) {
  const std::size_t length = std::max<std::size_t>({ordinals.size(), blocks_in, 1});
  out_.resize(length);
  in_.resize(length);
  ones_.assign(length, 1);
  places_.resize(length);
  std::iota(places_.begin(), places_.end(), 0);
  for (const int at : places_) bytes_.push_back(static_cast<MPI_Aint>(sizeof(int)) * at);
}

void Question::put(const mpi::Functions& mpi, MPI_Comm communicator) {
  const MPI_Datatype type = mpi.handles->int_;
  types_.assign(ones_.size(), type);
  const bool waits = call_.form == CallForm::blocking;
  const int* const out = out_.data();
  int* const in = in_.data();
  const int* const ones = ones_.data();
  const int* const places = places_.data();
  const MPI_Aint* const bytes = bytes_.data();
  const MPI_Datatype* const types = types_.data();
  int code = mpi::success;
  switch (call_.procedure) {
    case NeighbourCall::alltoall:
      code = waits ? mpi.Neighbor_alltoall(out, 1, type, in, 1, type, communicator)
                   : mpi.Ineighbor_alltoall(out, 1, type, in, 1, type, communicator, &request_);
      break;
    case NeighbourCall::alltoallv:
      code = waits ? mpi.Neighbor_alltoallv(out, ones, places, type, in, ones, places, type, communicator)
                   : mpi.Ineighbor_alltoallv(out, ones, places, type, in, ones, places, type, communicator, &request_);
      break;
    default:
      code = waits ? mpi.Neighbor_alltoallw(out, ones, bytes, types, in, ones, bytes, types, communicator)
                   : mpi.Ineighbor_alltoallw(out, ones, bytes, types, in, ones, bytes, types, communicator, &request_);
      break;
  }
  check(mpi, code, "a neighbourhood collective");
  over_.store(waits, std::memory_order_release);
}

bool Question::over(const mpi::Functions& mpi) {
  if (over()) return true;
  const std::unique_lock lock(looking_, std::try_to_lock);
  if (!lock || over()) return over();
  int flag = 0;
  check(mpi, mpi.Test(&request_, &flag, mpi::status_ignore()), "a neighbourhood collective");
  over_.store(flag != 0, std::memory_order_release);
  return flag != 0;
}

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
      ordinals_(destinations.size()),
      blocks_in_(sources.size()),
      single_(single(in_) && single(out_)) {
  for (std::size_t i = 1; i < out_.size(); ++i)
    if (out_[i].rank == out_[i - 1].rank) ordinals_[out_[i].block] = ordinals_[out_[i - 1].block] + 1;
}

std::size_t Neighbourhood::place(EdgeCall call) noexcept {
  const auto procedure = static_cast<std::size_t>(call.procedure) - static_cast<std::size_t>(NeighbourCall::alltoall);
  return procedure * forms + static_cast<std::size_t>(call.form);
}

const std::vector<Edge>& Neighbourhood::in(EdgeCall call) const noexcept {
  return call.tells_edges_apart() && matched(call) ? *known_[place(call)].in : in_;
}

std::shared_ptr<Question> Neighbourhood::ask(const mpi::Functions& mpi, MPI_Comm communicator, EdgeCall call) {
  auto question = std::make_shared<Question>(call, ordinals_, blocks_in_);
  question->put(mpi, communicator);
  Known& known = known_[place(call)];
  known.asked = true;
  if (question->over()) {
    learn(call, question->answer());
    return nullptr;
  }
  known.question = question;
  return question;
}

bool Neighbourhood::listen(const mpi::Functions& mpi) {
  bool all = true;
  for (Known& known : known_) {
    if (known.question == nullptr) continue;
    if (!known.question->over(mpi)) {
      all = false;
      continue;
    }
    const auto question = std::move(known.question);
    learn(question->call(), question->answer());
  }
  return all;
}

void Neighbourhood::learn(EdgeCall call, std::span<const int> answer) {
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
