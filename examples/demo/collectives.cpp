// The collectives, blocking and nonblocking: each row says how the procedure is called on GPU memory and what must be there.
#include "demo.h"

namespace demo {
namespace {

/// Runs one collective: blocking with a null request, nonblocking with one.
using Collective = std::function<bool(MPI_Request* request)>;

void add(std::vector<Check>& checks, const std::string& name, const Collective& collective) {
  checks.push_back({"MPI_" + name, [=] { return collective(nullptr); }});
  std::string nonblocking = name;
  nonblocking[0] = static_cast<char>(nonblocking[0] - 'A' + 'a');
  checks.push_back({"MPI_I" + nonblocking, [=] {
                      MPI_Request request = MPI_REQUEST_NULL;
                      return collective(&request);
                    }});
}

/// Elementwise sum of what ranks [0, ranks) send.
std::vector<int> sum_of(int ranks, int count = length) {
  std::vector<int> sum(static_cast<std::size_t>(count));
  for (int from = 0; from < ranks; ++from) {
    const auto part = message(from, count);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

/// The vector forms' counts: rank r sends or receives r + 1 elements; displacements leave no gap.
struct Counts {
  std::vector<int> counts, displacements;
  int total = 0;
};
Counts growing(int size) {
  Counts result;
  for (int r = 0; r < size; ++r) {
    result.counts.push_back(r + 1);
    result.displacements.push_back(result.total);
    result.total += r + 1;
  }
  return result;
}

}  // namespace

void add_collectives(std::vector<Check>& checks, const World& world) {
  const MPI_Comm comm = MPI_COMM_WORLD;
  const int rank = world.rank;
  const int size = world.size;
  const int root = size - 1;

  add(checks, "Bcast", [=](MPI_Request* request) {
    const DeviceVector buffer(rank == root ? message(root) : std::vector<int>(length));
    if (request == nullptr)
      MPI_Bcast(buffer.data(), length, MPI_INT, root, comm);
    else
      MPI_Ibcast(buffer.data(), length, MPI_INT, root, comm, request), finish(*request);
    return buffer.values() == message(root);
  });
  add(checks, "Reduce", [=](MPI_Request* request) {
    const DeviceVector in(message(rank)), out(length);
    if (request == nullptr)
      MPI_Reduce(in.data(), out.data(), length, MPI_INT, MPI_SUM, root, comm);
    else
      MPI_Ireduce(in.data(), out.data(), length, MPI_INT, MPI_SUM, root, comm, request), finish(*request);
    return rank != root || out.values() == sum_of(size);
  });
  add(checks, "Allreduce", [=](MPI_Request* request) {
    const DeviceVector in(message(rank)), out(length);
    if (request == nullptr)
      MPI_Allreduce(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm);
    else
      MPI_Iallreduce(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm, request), finish(*request);
    return out.values() == sum_of(size);
  });
  add(checks, "Scan", [=](MPI_Request* request) {
    const DeviceVector in(message(rank)), out(length);
    if (request == nullptr)
      MPI_Scan(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm);
    else
      MPI_Iscan(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm, request), finish(*request);
    return out.values() == sum_of(rank + 1);
  });
  add(checks, "Exscan", [=](MPI_Request* request) {
    const DeviceVector in(message(rank)), out(length);
    if (request == nullptr)
      MPI_Exscan(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm);
    else
      MPI_Iexscan(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm, request), finish(*request);
    return rank == 0 || out.values() == sum_of(rank);
  });
  add(checks, "Reduce_scatter_block", [=](MPI_Request* request) {
    const DeviceVector in(message(rank, length * size)), out(length);
    if (request == nullptr)
      MPI_Reduce_scatter_block(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm);
    else
      MPI_Ireduce_scatter_block(in.data(), out.data(), length, MPI_INT, MPI_SUM, comm, request), finish(*request);
    const auto all = sum_of(size, length * size);
    return out.values() == std::vector<int>(all.begin() + rank * length, all.begin() + (rank + 1) * length);
  });
  add(checks, "Reduce_scatter", [=](MPI_Request* request) {
    const Counts blocks = growing(size);
    const DeviceVector in(message(rank, blocks.total)), out(static_cast<std::size_t>(rank) + 1);
    if (request == nullptr)
      MPI_Reduce_scatter(in.data(), out.data(), blocks.counts.data(), MPI_INT, MPI_SUM, comm);
    else
      MPI_Ireduce_scatter(in.data(), out.data(), blocks.counts.data(), MPI_INT, MPI_SUM, comm, request),
          finish(*request);
    const auto all = sum_of(size, blocks.total);
    const auto begin = all.begin() + blocks.displacements[static_cast<std::size_t>(rank)];
    return out.values() == std::vector<int>(begin, begin + rank + 1);
  });

  std::vector<int> everybody;          // `length` elements of each rank
  std::vector<int> everybody_growing;  // rank + 1 elements of each rank
  for (int from = 0; from < size; ++from) {
    append(everybody, message(from));
    append(everybody_growing, message(from, from + 1));
  }
  add(checks, "Gather", [=](MPI_Request* request) {
    const DeviceVector in(message(rank)), out(everybody.size());
    if (request == nullptr)
      MPI_Gather(in.data(), length, MPI_INT, out.data(), length, MPI_INT, root, comm);
    else
      MPI_Igather(in.data(), length, MPI_INT, out.data(), length, MPI_INT, root, comm, request), finish(*request);
    return rank != root || out.values() == everybody;
  });
  add(checks, "Gatherv", [=](MPI_Request* request) {
    const Counts blocks = growing(size);
    const DeviceVector in(message(rank, rank + 1)), out(everybody_growing.size());
    if (request == nullptr)
      MPI_Gatherv(in.data(), rank + 1, MPI_INT, out.data(), blocks.counts.data(), blocks.displacements.data(), MPI_INT,
                  root, comm);
    else
      MPI_Igatherv(in.data(), rank + 1, MPI_INT, out.data(), blocks.counts.data(), blocks.displacements.data(), MPI_INT,
                   root, comm, request),
          finish(*request);
    return rank != root || out.values() == everybody_growing;
  });
  add(checks, "Scatter", [=](MPI_Request* request) {
    const DeviceVector in(everybody), out(length);
    if (request == nullptr)
      MPI_Scatter(in.data(), length, MPI_INT, out.data(), length, MPI_INT, root, comm);
    else
      MPI_Iscatter(in.data(), length, MPI_INT, out.data(), length, MPI_INT, root, comm, request), finish(*request);
    return out.values() == message(rank);
  });
  add(checks, "Scatterv", [=](MPI_Request* request) {
    const Counts blocks = growing(size);
    const DeviceVector in(everybody_growing), out(static_cast<std::size_t>(rank) + 1);
    if (request == nullptr)
      MPI_Scatterv(in.data(), blocks.counts.data(), blocks.displacements.data(), MPI_INT, out.data(), rank + 1, MPI_INT,
                   root, comm);
    else
      MPI_Iscatterv(in.data(), blocks.counts.data(), blocks.displacements.data(), MPI_INT, out.data(), rank + 1,
                    MPI_INT, root, comm, request),
          finish(*request);
    return out.values() == message(rank, rank + 1);
  });
  add(checks, "Allgather", [=](MPI_Request* request) {
    const DeviceVector in(message(rank)), out(everybody.size());
    if (request == nullptr)
      MPI_Allgather(in.data(), length, MPI_INT, out.data(), length, MPI_INT, comm);
    else
      MPI_Iallgather(in.data(), length, MPI_INT, out.data(), length, MPI_INT, comm, request), finish(*request);
    return out.values() == everybody;
  });
  add(checks, "Allgatherv", [=](MPI_Request* request) {
    const Counts blocks = growing(size);
    const DeviceVector in(message(rank, rank + 1)), out(everybody_growing.size());
    if (request == nullptr)
      MPI_Allgatherv(in.data(), rank + 1, MPI_INT, out.data(), blocks.counts.data(), blocks.displacements.data(),
                     MPI_INT, comm);
    else
      MPI_Iallgatherv(in.data(), rank + 1, MPI_INT, out.data(), blocks.counts.data(), blocks.displacements.data(),
                      MPI_INT, comm, request),
          finish(*request);
    return out.values() == everybody_growing;
  });

  // To rank r go the r-th `length` elements; the vector forms send every rank one element more than the last.
  std::vector<int> exchanged, exchanged_growing;
  for (int from = 0; from < size; ++from) {
    const auto all = message(from, length * size);
    append(exchanged, {all.begin() + rank * length, all.begin() + (rank + 1) * length});
    const Counts blocks = growing(size);
    const auto some = message(from, blocks.total);
    const auto begin = some.begin() + blocks.displacements[static_cast<std::size_t>(rank)];
    append(exchanged_growing, {begin, begin + rank + 1});
  }
  add(checks, "Alltoall", [=](MPI_Request* request) {
    const DeviceVector in(message(rank, length * size)), out(exchanged.size());
    if (request == nullptr)
      MPI_Alltoall(in.data(), length, MPI_INT, out.data(), length, MPI_INT, comm);
    else
      MPI_Ialltoall(in.data(), length, MPI_INT, out.data(), length, MPI_INT, comm, request), finish(*request);
    return out.values() == exchanged;
  });
  add(checks, "Alltoallv", [=](MPI_Request* request) {
    const Counts send = growing(size);
    const std::vector<int> counts(static_cast<std::size_t>(size), rank + 1);
    std::vector<int> places(static_cast<std::size_t>(size));
    for (int from = 0; from < size; ++from) places[static_cast<std::size_t>(from)] = from * (rank + 1);
    const DeviceVector in(message(rank, send.total)), out(exchanged_growing.size());
    if (request == nullptr)
      MPI_Alltoallv(in.data(), send.counts.data(), send.displacements.data(), MPI_INT, out.data(), counts.data(),
                    places.data(), MPI_INT, comm);
    else
      MPI_Ialltoallv(in.data(), send.counts.data(), send.displacements.data(), MPI_INT, out.data(), counts.data(),
                     places.data(), MPI_INT, comm, request),
          finish(*request);
    return out.values() == exchanged_growing;
  });
  add(checks, "Alltoallw", [=](MPI_Request* request) {
    const auto peers = static_cast<std::size_t>(size);
    const std::vector<int> counts(peers, length);
    const std::vector<MPI_Datatype> types(peers, MPI_INT);
    std::vector<int> bytes(peers);
    for (int peer = 0; peer < size; ++peer)
      bytes[static_cast<std::size_t>(peer)] = peer * length * static_cast<int>(sizeof(int));
    const DeviceVector in(message(rank, length * size)), out(exchanged.size());
    if (request == nullptr)
      MPI_Alltoallw(in.data(), counts.data(), bytes.data(), types.data(), out.data(), counts.data(), bytes.data(),
                    types.data(), comm);
    else
      MPI_Ialltoallw(in.data(), counts.data(), bytes.data(), types.data(), out.data(), counts.data(), bytes.data(),
                     types.data(), comm, request),
          finish(*request);
    return out.values() == exchanged;
  });
}

}  // namespace demo
