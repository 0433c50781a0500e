// See neighbours.h.
#include "halo/neighbours.h"

#include <algorithm>
#include <vector>

namespace crosslane::bench {
namespace {

using Direction = std::array<int, 3>;

std::array<Direction, directions> all_directions() {
  std::vector<Direction> found;
  for (int faces = 1; faces <= 3; ++faces)
    for (int x = -1; x <= 1; ++x)
      for (int y = -1; y <= 1; ++y)
        for (int z = -1; z <= 1; ++z)
          if (x * x + y * y + z * z == faces) found.push_back({x, y, z});
  std::array<Direction, directions> result{};
  std::copy(found.begin(), found.end(), result.begin());
  return result;
}

// Along one dimension: where the box starts and how far it reaches that goes this way, or comes from it.
struct Stretch {
  int first, size;
};
Stretch leaves(int way, int edge) {
  if (way == 0) return {1, edge};
  return {way > 0 ? edge : 1, 1};
}
Stretch arrives(int way, int edge) {  // having gone this way, it comes from the other side
  if (way == 0) return {1, edge};
  return {way > 0 ? 0 : edge + 1, 1};
}

MPI_Datatype add(HaloParts& parts, const std::array<Stretch, 3>& box, int pitch) {
  std::array<int, 3> whole{pitch, pitch, pitch}, size{}, first{};
  HaloBox& added = parts.box[parts.count++];
  added.at = parts.cells;
  unsigned long long cells = 1;
  for (std::size_t k = 0; k < 3; ++k) {
    added.first[k] = static_cast<unsigned>(first[k] = box[k].first);
    added.size[k] = static_cast<unsigned>(size[k] = box[k].size);
    parts.edge[k] = static_cast<unsigned>(pitch);
    cells *= added.size[k];
  }
  parts.cells += cells;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(3, whole.data(), size.data(), first.data(), MPI_ORDER_C, MPI_DOUBLE, &type);
  MPI_Type_commit(&type);
  return type;
}

}  // namespace

Neighbours::Neighbours(int edge) : edge_(edge), pitch_(edge + 2) {
  int ranks = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Dims_create(ranks, 3, grid_.data());
  const auto rank_at = [&](std::array<int, 3> at) {
    for (std::size_t k = 0; k < 3; ++k) at[k] = (at[k] + grid_[k]) % grid_[k];
    return (at[0] * grid_[1] + at[1]) * grid_[2] + at[2];
  };
  mine_ = {rank / (grid_[1] * grid_[2]), rank / grid_[2] % grid_[1], rank % grid_[2]};
  const auto ways = all_directions();
  for (std::size_t d = 0; d < ways.size(); ++d) {
    const auto& way = ways[d];
    to[d] = rank_at({mine_[0] + way[0], mine_[1] + way[1], mine_[2] + way[2]});
    from[d] = rank_at({mine_[0] - way[0], mine_[1] - way[1], mine_[2] - way[2]});
    sent[d] = add(send, {leaves(way[0], edge), leaves(way[1], edge), leaves(way[2], edge)}, pitch_);
    received[d] = add(receive, {arrives(way[0], edge), arrives(way[1], edge), arrives(way[2], edge)}, pitch_);
  }
  // A rank may be a neighbour in several directions, itself too: what comes from one rank comes in the order of directions.
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, directions, from.data(), MPI_UNWEIGHTED, directions, to.data(),
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph_);
}

Neighbours::~Neighbours() {
  for (auto* types : {&sent, &received})
    for (auto& type : *types) MPI_Type_free(&type);
  MPI_Comm_free(&graph_);
}

std::array<int, 3> Neighbours::place(std::size_t cell) const {
  const auto pitch = static_cast<std::size_t>(pitch_);
  return {static_cast<int>(cell / pitch / pitch), static_cast<int>(cell / pitch % pitch),
          static_cast<int>(cell % pitch)};
}

bool Neighbours::inside(std::size_t cell) const {
  return std::ranges::all_of(place(cell), [&](int k) { return k >= 1 && k <= edge_; });
}

// The cell's number in the whole grid, whose ends meet.
double Neighbours::expected(std::size_t cell) const {
  const auto at = place(cell);
  double number = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    const long whole = static_cast<long>(grid_[k]) * edge_;
    const long here = (static_cast<long>(mine_[k]) * edge_ + at[k] - 1 + whole) % whole;
    number = number * static_cast<double>(whole) + static_cast<double>(here);
  }
  return number;
}

}  // namespace crosslane::bench
