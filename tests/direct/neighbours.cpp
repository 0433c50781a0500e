// See neighbours.h.
#include "direct/neighbours.h"

#include "support/beneath.h"
#include "support/check.h"
#include "support/program.h"
#include "support/random_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace crosslane::tests {
namespace {

bool repeats(std::vector<int> ranks) {
  std::erase(ranks, MPI_PROC_NULL);
  std::ranges::sort(ranks);
  return std::ranges::adjacent_find(ranks) != ranks.end();
}

// How many edges go from one rank to another: by both.
std::vector<int> random_edges(Random& random, int size, bool both_ways) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<int> edges(n * n);
  const bool multiple = random.chance(60);
  const std::size_t lonely = random.chance(40) ? random.below(n) : n;  // has no neighbours
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      int some = random.chance(45) ? 1 : 0;
      if (multiple && random.chance(40)) some = static_cast<int>(random.below(4));
      if (from == lonely || to == lonely) some = 0;
      if (both_ways && to < from) some = edges[to * n + from];
      edges[from * n + to] = some;
    }
  }
  return edges;
}

}  // namespace

EntryPoint plain_entry(const std::string& procedure, Form form) {
  EntryPoint entry = EntryPoint::find(procedure, form, false);
  if (entry.address == nullptr) return entry;
  entry.address = beneath(("P" + entry.name).c_str());
  return entry;
}

Topology::Topology(Random& random) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  switch (random.below(5)) {
    case 0:
    case 1:
      make_grid(random);
      break;
    case 2:
      make_graph(random);
      break;
    case 3:
      make_adjacent(random);
      break;
    default:
      // Open MPI (4.1.4) hangs in MPI_Dist_graph_create now and then, where ranks come to it at different times.
#if CROSSLANE_TEST_MPI_OPENMPI
      make_adjacent(random);
#else
      make_distributed(random);
#endif
      break;
  }
  if (random.chance(25)) {
    MPI_Comm copy = MPI_COMM_NULL;
    CROSSLANE_MPI(MPI_Comm_dup(communicator_, &copy));
    MPI_Comm_free(&communicator_);
    communicator_ = copy;
    name_ += ", duplicated";
  }
  find_neighbours();
}

Topology::~Topology() { MPI_Comm_free(&communicator_); }

// Of all ranks, also along dimensions of one or two.
void Topology::make_grid(Random& random) {
  std::vector<int> dimensions;
  int left = size_;
  while (left > 1) {
    const int length = random.chance(50) ? left : random_divisor(random, left, left);
    dimensions.push_back(length);
    left /= length;
    if (dimensions.size() == 3) dimensions.back() *= std::exchange(left, 1);
  }
  while (dimensions.empty() || (dimensions.size() < 3 && random.chance(30))) dimensions.push_back(1);
  random.shuffle(dimensions);
  std::vector<int> periods;
  for (std::size_t i = 0; i < dimensions.size(); ++i) periods.push_back(random.chance(60) ? 1 : 0);
  const int count = static_cast<int>(dimensions.size());
  CROSSLANE_MPI(
      MPI_Cart_create(MPI_COMM_WORLD, count, dimensions.data(), periods.data(), random.chance(30), &communicator_));
  name_ = "a grid of";
  for (std::size_t i = 0; i < dimensions.size(); ++i)
    name_ += fmt::format(" {}{}", dimensions[i], periods[i] != 0 ? " (periodic)" : "");
}

void Topology::make_graph(Random& random) {
  const auto edges = random_edges(random, size_, true);
  std::vector<int> ends;
  std::vector<int> neighbours;
  for (int from = 0; from < size_; ++from) {
    std::vector<int> own;
    for (int to = 0; to < size_; ++to)
      own.insert(own.end(), static_cast<std::size_t>(edges[static_cast<std::size_t>(from * size_ + to)]), to);
    random.shuffle(own);
    neighbours.insert(neighbours.end(), own.begin(), own.end());
    ends.push_back(static_cast<int>(neighbours.size()));
  }
  neighbours.push_back(0);  // none at null
  CROSSLANE_MPI(MPI_Graph_create(MPI_COMM_WORLD, size_, ends.data(), neighbours.data(), 0, &communicator_));
  name_ = fmt::format("a graph of {} edges", ends.back());
}

void Topology::make_adjacent(Random& random) {
  const auto edges = random_edges(random, size_, false);
  std::vector<int> from;
  std::vector<int> to;
  for (int other = 0; other < size_; ++other) {
    from.insert(from.end(), static_cast<std::size_t>(edges[static_cast<std::size_t>(other * size_ + rank_)]), other);
    to.insert(to.end(), static_cast<std::size_t>(edges[static_cast<std::size_t>(rank_ * size_ + other)]), other);
  }
  Random own(mix(random.next(), rank_));
  own.shuffle(from);
  own.shuffle(to);
  const int in = static_cast<int>(from.size());
  const int out = static_cast<int>(to.size());
  from.push_back(0);
  to.push_back(0);
  const std::vector<int> weights(std::max(from.size(), to.size()), 1);
  CROSSLANE_MPI(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, from.data(), weights.data(), out, to.data(),
                                               weights.data(), MPI_INFO_NULL, 0, &communicator_));
  name_ = fmt::format("an adjacent graph of {} edges", std::accumulate(edges.begin(), edges.end(), 0));
}

// Every rank knows some of the edges, its own or others'.
void Topology::make_distributed(Random& random) {
  const auto edges = random_edges(random, size_, false);
  std::vector<int> sources;
  std::vector<int> degrees;
  std::vector<int> destinations;
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      const bool mine = static_cast<int>(random.below(static_cast<std::uint64_t>(size_))) == rank_;
      const int some = edges[static_cast<std::size_t>(from * size_ + to)];
      if (!mine || some == 0) continue;
      sources.push_back(from);
      degrees.push_back(some);
      destinations.insert(destinations.end(), static_cast<std::size_t>(some), to);
    }
  }
  const int count = static_cast<int>(sources.size());
  sources.push_back(0);
  degrees.push_back(0);
  destinations.push_back(0);
  const std::vector<int> weights(destinations.size(), 1);
  CROSSLANE_MPI(MPI_Dist_graph_create(MPI_COMM_WORLD, count, sources.data(), degrees.data(), destinations.data(),
                                      weights.data(), MPI_INFO_NULL, 0, &communicator_));
  name_ = fmt::format("a distributed graph of {} edges", std::accumulate(edges.begin(), edges.end(), 0));
}

void Topology::find_neighbours() {
  int topology = MPI_UNDEFINED;
  MPI_Topo_test(communicator_, &topology);
  if (topology == MPI_CART) {
    int dimensions = 0;
    MPI_Cartdim_get(communicator_, &dimensions);
    for (int i = 0; i < dimensions; ++i) {
      std::array<int, 2> sides{};
      MPI_Cart_shift(communicator_, i, 1, sides.data(), &sides[1]);
      in_.insert(in_.end(), sides.begin(), sides.end());
    }
    out_ = in_;
  } else if (topology == MPI_GRAPH) {
    int rank = 0;
    int count = 0;
    MPI_Comm_rank(communicator_, &rank);
    MPI_Graph_neighbors_count(communicator_, rank, &count);
    in_.resize(static_cast<std::size_t>(count) + 1);
    MPI_Graph_neighbors(communicator_, rank, count, in_.data());
    in_.pop_back();
    out_ = in_;
  } else {
    directed_ = true;
    int in = 0;
    int out = 0;
    int weighted = 0;
    MPI_Dist_graph_neighbors_count(communicator_, &in, &out, &weighted);
    in_.resize(static_cast<std::size_t>(in) + 1);
    out_.resize(static_cast<std::size_t>(out) + 1);
    std::vector<int> weights_in = in_;
    std::vector<int> weights_out = out_;
    MPI_Dist_graph_neighbors(communicator_, in, in_.data(), weights_in.data(), out, out_.data(), weights_out.data());
    in_.pop_back();
    out_.pop_back();
  }
  const int mine = repeats(in_) || repeats(out_) ? 1 : 0;
  int anybody = 0;
  MPI_Allreduce(&mine, &anybody, 1, MPI_INT, MPI_MAX, communicator_);
  single_ = anybody == 0;
}

std::vector<Sender> Topology::senders(const std::string& asked, Form form) const {
  // Where no two ranks have several edges all answer alike, but MPICH (4.0) not by MPI_Neighbor_alltoallw.
  const std::string procedure = single_ && asked.ends_with("w") ? "Neighbor_alltoallv" : asked;
  std::vector<Sender> result(in_.size());
  for (std::size_t block = 0; block < in_.size(); ++block) result[block].rank = in_[block];
  if (procedure.find("alltoall") == std::string::npos) return result;
  const EntryPoint entry = plain_entry(procedure, form);
  const std::size_t length = std::max({in_.size(), out_.size(), std::size_t{1}});
  std::vector<int> out(length);
  std::vector<int> in(length, -1);
  std::iota(out.begin(), out.end(), 0);
  const std::vector<int> places = out;
  const std::vector<int> ones(length, 1);
  std::vector<MPI_Aint> bytes;
  for (const int at : places) bytes.push_back(at * static_cast<MPI_Aint>(sizeof(int)));
  const std::vector<MPI_Datatype> types(length, MPI_INT);
  const void* const from = out.data();
  void* const to = in.data();
  MPI_Request request = MPI_REQUEST_NULL;
  if (procedure.ends_with("alltoall")) {
    CROSSLANE_MPI(entry(&request, from, 1, MPI_INT, to, 1, MPI_INT, communicator_));
  } else if (procedure.ends_with("v")) {
    CROSSLANE_MPI(entry(&request, from, ones.data(), places.data(), MPI_INT, to, ones.data(), places.data(), MPI_INT,
                        communicator_));
  } else {
    CROSSLANE_MPI(entry(&request, from, ones.data(), bytes.data(), types.data(), to, ones.data(), bytes.data(),
                        types.data(), communicator_));
  }
  if (form == Form::persistent) CROSSLANE_MPI(PMPI_Start(&request));
  for (int flag = form == Form::blocking ? 1 : 0; flag == 0;) PMPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  if (form == Form::persistent) PMPI_Request_free(&request);
  for (std::size_t block = 0; block < in_.size(); ++block)
    if (in_[block] != MPI_PROC_NULL) result[block].block = in[block];
  return result;
}

}  // namespace crosslane::tests
