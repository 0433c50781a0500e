// Neighbourhood collectives on a ring: every rank's neighbours are the one to its left and the one to its right.
#include "demo.h"

#include <memory>

namespace demo {
namespace {

/// A periodic Cartesian communicator of one dimension, freed with its last user.
std::shared_ptr<MPI_Comm> make_ring(int size) {
  const std::shared_ptr<MPI_Comm> ring(new MPI_Comm(MPI_COMM_NULL), [](MPI_Comm* comm) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(comm);
    delete comm;
  });
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, ring.get());
  return ring;
}

}  // namespace

void add_neighbourhoods(std::vector<Check>& checks, const World& world) {
  const auto ring = make_ring(world.size);
  const int rank = world.rank;

  std::vector<int> gathered;  // MPI orders them: left, then right
  append(gathered, message(world.left()));
  append(gathered, message(world.right()));
  // What a rank sends is a block to the left and one to the right; it gets its left neighbour's second and its right
  // neighbour's first.
  const auto from_left = message(world.left(), 2 * length);
  const auto from_right = message(world.right(), 2 * length);
  std::vector<int> exchanged;
  append(exchanged, {from_left.begin() + length, from_left.end()});
  append(exchanged, {from_right.begin(), from_right.begin() + length});
  const std::vector<int> counts{length, length}, places{0, length};
  const std::vector<MPI_Aint> bytes{0, static_cast<MPI_Aint>(length * sizeof(int))};
  const std::vector<MPI_Datatype> types{MPI_INT, MPI_INT};

  // `calls` are the blocking and the nonblocking procedure of one row.
  const auto add = [&](const char* blocking, const char* nonblocking, int sent, const std::vector<int>& expected,
                       const std::function<void(void*, void*, MPI_Request*)>& call) {
    for (const bool wait : {false, true}) {
      checks.push_back({wait ? nonblocking : blocking, [=] {
                          const DeviceVector in(message(rank, sent)), out(expected.size());
                          MPI_Request request = MPI_REQUEST_NULL;
                          call(in.data(), out.data(), wait ? &request : nullptr);
                          if (wait) finish(request);
                          return out.values() == expected;
                        }});
    }
  };
  add("MPI_Neighbor_allgather", "MPI_Ineighbor_allgather", length, gathered,
      [=](void* in, void* out, MPI_Request* request) {
        if (request == nullptr)
          MPI_Neighbor_allgather(in, length, MPI_INT, out, length, MPI_INT, *ring);
        else
          MPI_Ineighbor_allgather(in, length, MPI_INT, out, length, MPI_INT, *ring, request);
      });
  add("MPI_Neighbor_allgatherv", "MPI_Ineighbor_allgatherv", length, gathered,
      [=](void* in, void* out, MPI_Request* request) {
        if (request == nullptr)
          MPI_Neighbor_allgatherv(in, length, MPI_INT, out, counts.data(), places.data(), MPI_INT, *ring);
        else
          MPI_Ineighbor_allgatherv(in, length, MPI_INT, out, counts.data(), places.data(), MPI_INT, *ring, request);
      });
  // In a ring of one or two, both neighbours are one rank, and which block goes where is the MPI's business.
  if (world.size <= 2) return;
  add("MPI_Neighbor_alltoall", "MPI_Ineighbor_alltoall", 2 * length, exchanged,
      [=](void* in, void* out, MPI_Request* request) {
        if (request == nullptr)
          MPI_Neighbor_alltoall(in, length, MPI_INT, out, length, MPI_INT, *ring);
        else
          MPI_Ineighbor_alltoall(in, length, MPI_INT, out, length, MPI_INT, *ring, request);
      });
  add("MPI_Neighbor_alltoallv", "MPI_Ineighbor_alltoallv", 2 * length, exchanged,
      [=](void* in, void* out, MPI_Request* request) {
        if (request == nullptr)
          MPI_Neighbor_alltoallv(in, counts.data(), places.data(), MPI_INT, out, counts.data(), places.data(), MPI_INT,
                                 *ring);
        else
          MPI_Ineighbor_alltoallv(in, counts.data(), places.data(), MPI_INT, out, counts.data(), places.data(), MPI_INT,
                                  *ring, request);
      });
  add("MPI_Neighbor_alltoallw", "MPI_Ineighbor_alltoallw", 2 * length, exchanged,
      [=](void* in, void* out, MPI_Request* request) {
        if (request == nullptr)
          MPI_Neighbor_alltoallw(in, counts.data(), bytes.data(), types.data(), out, counts.data(), bytes.data(),
                                 types.data(), *ring);
        else
          MPI_Ineighbor_alltoallw(in, counts.data(), bytes.data(), types.data(), out, counts.data(), bytes.data(),
                                  types.data(), *ring, request);
      });
}

}  // namespace demo
