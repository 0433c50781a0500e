// See collective.h.
#include "collectives/collective.h"

#include <algorithm>
#include <array>

namespace crosslane::tests {
namespace {

constexpr auto intra = Group::Kind::intra, inter = Group::Kind::inter, neighbourhood = Group::Kind::topology;

// A root as this rank names it, and what the rank is to it.
struct Root {
  int argument = 0;
  bool is_root = false, contributes = true;
  int side = 0;  // the root's
};

Root draw_root(const Group& group, Random& common) {
  Root root;
  if (group.kind != inter) {
    root.argument = static_cast<int>(common.below(static_cast<std::uint64_t>(group.size)));
    root.is_root = root.argument == group.rank;
    return root;
  }
  root.side = static_cast<int>(common.below(2));
  root.argument = static_cast<int>(common.below(static_cast<std::uint64_t>(group.sizes[root.side])));
  if (group.side == root.side) {
    root.contributes = false;
    root.is_root = root.argument == group.rank;
    root.argument = root.is_root ? MPI_ROOT : MPI_PROC_NULL;
  }
  return root;
}

int blocks_of(const std::vector<int>& peers) { return static_cast<int>(peers.size()); }

template <class Amount>
std::vector<int> amounts(const std::vector<int>& peers, Amount&& amount) {
  std::vector<int> result;
  for (const int peer : peers) result.push_back(amount(peer));
  return result;
}

int self_of(const Group& group) { return group.local[static_cast<std::size_t>(group.rank)]; }

bool in_place_here(const Group& group, Random& random) { return group.kind == intra && random.chance(30); }

// What this rank sends to all, or receives from all, in an inter-communicator depends on the side that sends.
int sent(const Group& group, const Traffic& traffic) { return traffic.uniform(group.side); }
int received(const Group& group, const Traffic& traffic) {
  return traffic.uniform(group.kind == inter ? 1 - group.side : group.side);
}

void build_bcast(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic) {
  const Root root = draw_root(*call.group, common);
  call.root = root.argument;
  call.receive = root.is_root || root.contributes
                     ? Argument::single(mine, base, traffic.uniform(0), 1, traffic.granule())
                     : Argument::absent(mine);
}

template <bool varying>
void build_gather(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic) {
  const Group& group = *call.group;
  const Root root = draw_root(group, common);
  call.root = root.argument;
  const auto amount = [&](int rank) { return varying ? traffic.from(rank) : traffic.uniform(0); };
  if (root.is_root && in_place_here(group, mine.random))
    call.send = Argument::in_place();
  else
    call.send = root.contributes ? Argument::single(mine, base, amount(self_of(group)), 1, traffic.granule())
                                 : Argument::absent(mine);
  if (!root.is_root)
    call.receive = Argument::absent(mine);
  else if (varying)
    call.receive = Argument::blocks(mine, base, amounts(group.in, amount), traffic.granule_of_blocks());
  else
    call.receive = Argument::single(mine, base, traffic.uniform(0), blocks_of(group.in), traffic.granule());
}

template <bool varying>
void build_scatter(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic) {
  const Group& group = *call.group;
  const Root root = draw_root(group, common);
  call.root = root.argument;
  const auto amount = [&](int rank) { return varying ? traffic.to(rank) : traffic.uniform(0); };
  if (!root.is_root)
    call.send = Argument::absent(mine);
  else if (varying)
    call.send = Argument::blocks(mine, base, amounts(group.out, amount), traffic.granule_of_blocks());
  else
    call.send = Argument::single(mine, base, traffic.uniform(0), blocks_of(group.out), traffic.granule());
  if (root.is_root && in_place_here(group, mine.random))
    call.receive = Argument::in_place();
  else
    call.receive = root.contributes ? Argument::single(mine, base, amount(self_of(group)), 1, traffic.granule())
                                    : Argument::absent(mine);
}

template <bool varying>
void build_allgather(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic) {
  const Group& group = *call.group;
  const auto amount = [&](int rank) { return traffic.from(rank); };
  // All ranks or none: MPI wants MPI_IN_PLACE on every rank.
  if (in_place_here(group, common))
    call.send = Argument::in_place();
  else
    call.send =
        Argument::single(mine, base, varying ? amount(self_of(group)) : sent(group, traffic), 1, traffic.granule());
  if (varying)
    call.receive = Argument::blocks(mine, base, amounts(group.in, amount), traffic.granule_of_blocks());
  else
    call.receive = Argument::single(mine, base, received(group, traffic), blocks_of(group.in), traffic.granule());
}

void build_alltoall(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic) {
  const Group& group = *call.group;
  if (in_place_here(group, common))
    call.send = Argument::in_place();
  else
    call.send = Argument::single(mine, base, sent(group, traffic), blocks_of(group.out), traffic.granule());
  call.receive = Argument::single(mine, base, received(group, traffic), blocks_of(group.in), traffic.granule());
}

template <bool typed>
void build_alltoallv(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic) {
  const Group& group = *call.group;
  const int self = self_of(group);
  const bool in_place = in_place_here(group, common);
  const auto blocks = [&](const std::vector<int>& elements) {
    // Both MPIs exchange blocks of derived types in place wrongly.
    if (typed) return Argument::typed_blocks(mine, base, elements, in_place ? Argument::base_type : traffic.granule());
    return Argument::blocks(mine, base, elements, in_place ? Argument::base_type : traffic.granule_of_blocks());
  };
  // In place, both directions of a pair are of one size.
  const int least = defects_of("Alltoallv").empty_in_place ? 1 : 0;
  const auto in = [&](int peer) {
    return in_place ? std::max(traffic.between(std::min(self, peer), std::max(self, peer)), least)
                    : traffic.between(peer, self);
  };
  if (in_place)
    call.send = Argument::in_place();
  else
    call.send = blocks(amounts(group.out, [&](int peer) { return traffic.between(self, peer); }));
  call.receive = blocks(amounts(group.in, in));
}

int operands(Random& common) { return static_cast<int>(common.bytes(common.chance(10) ? 40000 : 600)) / 4; }

void build_reduce(Call& call, Random& common, Draw mine, const Base&, const Traffic&) {
  const Group& group = *call.group;
  const Root root = draw_root(group, common);
  call.root = root.argument;
  const int count = operands(common);
  const bool in_place = root.is_root && in_place_here(group, mine.random);
  if (in_place)
    call.send = Argument::in_place();
  else
    call.send = root.contributes ? Argument::operand(mine, *call.reduction, count) : Argument::absent(mine);
  call.receive = root.is_root ? Argument::operand(mine, *call.reduction, count) : Argument::absent(mine);
  call.send.count = call.receive.count = count;
  call.receive.ignore_padding(*call.reduction);
}

// Allreduce, scan and exscan: the same buffers, another result.
template <bool exclusive>
void build_symmetric(Call& call, Random& common, Draw mine, const Base&, const Traffic&) {
  const Group& group = *call.group;
  const int count = operands(common);
  if (in_place_here(group, common))
    call.send = Argument::in_place();
  else
    call.send = Argument::operand(mine, *call.reduction, count);
  call.receive = Argument::operand(mine, *call.reduction, count);
  call.receive.ignore_padding(*call.reduction);
  if (exclusive && group.rank == 0) call.receive.undefined(*call.reduction, 0, count);
}

void build_reduce_scatter(Call& call, Random& common, Draw mine, const Base&, const Traffic&) {
  const Group& group = *call.group;
  const int total = operands(common);
  // Both sides of an inter-communicator share out the same total, each in its own way.
  std::array<std::vector<int>, 2> shares;
  for (int side = 0; side < 2; ++side) {
    auto& share = shares.at(static_cast<std::size_t>(side));
    share.assign(static_cast<std::size_t>(group.sizes[side]), 0);
    for (int left = total; left > 0 && !share.empty();) {
      const int part = std::min(left, common.between(1, total));
      share.at(common.below(share.size())) += part;
      left -= part;
    }
  }
  call.counts = shares.at(static_cast<std::size_t>(group.side));
  call.wide_counts.assign(call.counts.begin(), call.counts.end());
  const int own = call.counts[static_cast<std::size_t>(group.rank)];
  const bool in_place = in_place_here(group, common);
  if (in_place)
    call.send = Argument::in_place();
  else
    call.send = Argument::operand(mine, *call.reduction, total);
  call.receive = Argument::operand(mine, *call.reduction, in_place ? total : own);
  call.receive.ignore_padding(*call.reduction);
  if (in_place) call.receive.undefined(*call.reduction, own, total);
}

void build_reduce_scatter_block(Call& call, Random& common, Draw mine, const Base&, const Traffic&) {
  const Group& group = *call.group;
  const int share = operands(common) / 4;
  const int own = group.kind == inter ? share * group.sizes[1 - group.side] : share;
  const int total = own * group.size;
  const bool in_place = in_place_here(group, common);
  if (in_place)
    call.send = Argument::in_place();
  else
    call.send = Argument::operand(mine, *call.reduction, total);
  call.receive = Argument::operand(mine, *call.reduction, in_place ? total : own);
  call.receive.ignore_padding(*call.reduction);
  if (in_place) call.receive.undefined(*call.reduction, own, total);
  call.receive.count = own;
}

void* address(Argument& argument, bool reference) {
  return reference ? argument.reference_address() : argument.address();
}
const void* source(Argument& argument, bool reference) { return address(argument, reference); }

int issue_bcast(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request) {
  auto& buffer = call.receive;
  void* const where = address(buffer, reference);
  if (entry.large) return entry(request, where, MPI_Count{buffer.count}, buffer.type, call.root, call.comm);
  return entry(request, where, buffer.count, buffer.type, call.root, call.comm);
}

template <class... Root>
int issue_singles(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request, Root... root) {
  auto &s = call.send, &r = call.receive;
  if (entry.large) {
    return entry(request, source(s, reference), MPI_Count{s.count}, s.type, address(r, reference), MPI_Count{r.count},
                 r.type, root..., call.comm);
  }
  return entry(request, source(s, reference), s.count, s.type, address(r, reference), r.count, r.type, root...,
               call.comm);
}

template <class... Root>
int issue_single_blocks(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request, Root... root) {
  auto &s = call.send, &r = call.receive;
  if (entry.large) {
    return entry(request, source(s, reference), MPI_Count{s.count}, s.type, address(r, reference),
                 static_cast<const MPI_Count*>(r.wide_counts.data()),
                 static_cast<const MPI_Aint*>(r.wide_displacements.data()), r.type, root..., call.comm);
  }
  return entry(request, source(s, reference), s.count, s.type, address(r, reference),
               static_cast<const int*>(r.counts.data()), static_cast<const int*>(r.displacements.data()), r.type,
               root..., call.comm);
}

int issue_scatterv(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request) {
  auto &s = call.send, &r = call.receive;
  if (entry.large) {
    return entry(request, source(s, reference), static_cast<const MPI_Count*>(s.wide_counts.data()),
                 static_cast<const MPI_Aint*>(s.wide_displacements.data()), s.type, address(r, reference),
                 MPI_Count{r.count}, r.type, call.root, call.comm);
  }
  return entry(request, source(s, reference), static_cast<const int*>(s.counts.data()),
               static_cast<const int*>(s.displacements.data()), s.type, address(r, reference), r.count, r.type,
               call.root, call.comm);
}

int issue_blocks(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request) {
  auto &s = call.send, &r = call.receive;
  if (entry.large) {
    return entry(request, source(s, reference), static_cast<const MPI_Count*>(s.wide_counts.data()),
                 static_cast<const MPI_Aint*>(s.wide_displacements.data()), s.type, address(r, reference),
                 static_cast<const MPI_Count*>(r.wide_counts.data()),
                 static_cast<const MPI_Aint*>(r.wide_displacements.data()), r.type, call.comm);
  }
  return entry(request, source(s, reference), static_cast<const int*>(s.counts.data()),
               static_cast<const int*>(s.displacements.data()), s.type, address(r, reference),
               static_cast<const int*>(r.counts.data()), static_cast<const int*>(r.displacements.data()), r.type,
               call.comm);
}

template <bool addresses>  // displacements are MPI_Aint in both forms
int issue_typed_blocks(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request) {
  auto &s = call.send, &r = call.receive;
  const MPI_Datatype *sent = s.types.data(), *got = r.types.data();
  const MPI_Aint *sent_at = s.wide_displacements.data(), *got_at = r.wide_displacements.data();
  if (entry.large) {
    return entry(request, source(s, reference), static_cast<const MPI_Count*>(s.wide_counts.data()), sent_at, sent,
                 address(r, reference), static_cast<const MPI_Count*>(r.wide_counts.data()), got_at, got, call.comm);
  }
  const int *sent_counts = s.counts.data(), *got_counts = r.counts.data();
  if constexpr (addresses)
    return entry(request, source(s, reference), sent_counts, sent_at, sent, address(r, reference), got_counts, got_at,
                 got, call.comm);
  const int *sent_places = s.displacements.data(), *got_places = r.displacements.data();
  return entry(request, source(s, reference), sent_counts, sent_places, sent, address(r, reference), got_counts,
               got_places, got, call.comm);
}

template <class... Root>
int issue_reduction(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request, Root... root) {
  auto &s = call.send, &r = call.receive;
  const auto& reduction = *call.reduction;
  if (entry.large) {
    return entry(request, source(s, reference), address(r, reference), MPI_Count{r.count}, reduction.type.handle,
                 reduction.op, root..., call.comm);
  }
  return entry(request, source(s, reference), address(r, reference), r.count, reduction.type.handle, reduction.op,
               root..., call.comm);
}

int issue_reduce_scatter(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request) {
  auto &s = call.send, &r = call.receive;
  const auto& reduction = *call.reduction;
  if (entry.large) {
    return entry(request, source(s, reference), address(r, reference),
                 static_cast<const MPI_Count*>(call.wide_counts.data()), reduction.type.handle, reduction.op,
                 call.comm);
  }
  return entry(request, source(s, reference), address(r, reference), static_cast<const int*>(call.counts.data()),
               reduction.type.handle, reduction.op, call.comm);
}

// Forms whose arguments end with the root and those without.
int rooted_singles(Call& c, const EntryPoint& e, bool ref, MPI_Request* r) {
  return issue_singles(c, e, ref, r, c.root);
}
int plain_singles(Call& c, const EntryPoint& e, bool ref, MPI_Request* r) { return issue_singles(c, e, ref, r); }
int rooted_single_blocks(Call& c, const EntryPoint& e, bool ref, MPI_Request* r) {
  return issue_single_blocks(c, e, ref, r, c.root);
}
int plain_single_blocks(Call& c, const EntryPoint& e, bool ref, MPI_Request* r) {
  return issue_single_blocks(c, e, ref, r);
}
int rooted_reduction(Call& c, const EntryPoint& e, bool ref, MPI_Request* r) {
  return issue_reduction(c, e, ref, r, c.root);
}
int plain_reduction(Call& c, const EntryPoint& e, bool ref, MPI_Request* r) { return issue_reduction(c, e, ref, r); }

}  // namespace

Defects defects_of(const std::string& collective) {
#ifdef CROSSLANE_TEST_MPI_MPICH
  if (collective == "Bcast" || collective == "Scatter" || collective == "Gather") return {.inter = true};
  if (collective == "Allgatherv") return {.alone = true};
  if (collective == "Reduce_scatter_block") return {.user_defined = true};
  // MPICH 4.0 writes behind its temporary memory, and corrupts the heap: nothing to try out in this process.
  if (collective == "Reduce_scatter") return {.user_defined_persistent = true};
  if (collective == "Neighbor_alltoallw") return {.directed = true};
#else
  if (collective == "Allgatherv") return {.inter = true};
  if (collective == "Alltoallv") return {.empty_in_place = true};
  if (collective == "Alltoallw") return {.alone = true};
#endif
  return {};
}

Traffic::Traffic(Random& common, const Base& base, int peers, bool same_granule)
    : seed_(common.next()),
      unit_(common.pick(std::array{1, 1, 2, 3, 4, 6, 12})),
      granule_(same_granule ? random_divisor(common, unit_, unit_) : 0),
      most_(common.bytes(common.chance(10) ? std::size_t{200} << 10 : 4000) / base.extent /
            static_cast<std::size_t>(std::max(peers, 1))) {}

int Traffic::amount(int kind, int a, int b) const {
  Random random(mix(seed_, kind, a, b));
  if (random.chance(15)) return 0;
  return static_cast<int>(random.below(most_ / static_cast<std::size_t>(unit_) + 2)) * unit_;
}

void Call::check(const std::string& what) const {
  send.check(what + " send buffer");
  receive.check(what + " receive buffer");
}

std::span<const Collective> collectives() {
  static const std::vector<Collective> all{
      {"Bcast", {intra, inter}, false, true, build_bcast, issue_bcast},
      {"Gather", {intra, inter}, false, true, build_gather<false>, rooted_singles},
      {"Gatherv", {intra, inter}, false, true, build_gather<true>, rooted_single_blocks},
      {"Scatter", {intra, inter}, false, true, build_scatter<false>, rooted_singles},
      {"Scatterv", {intra, inter}, false, true, build_scatter<true>, issue_scatterv},
      {"Allgather", {intra, inter}, false, true, build_allgather<false>, plain_singles},
      {"Allgatherv", {intra, inter}, false, true, build_allgather<true>, plain_single_blocks},
      {"Alltoall", {intra, inter}, false, true, build_alltoall, plain_singles},
      {"Alltoallv", {intra, inter}, false, true, build_alltoallv<false>, issue_blocks},
      {"Alltoallw", {intra, inter}, false, true, build_alltoallv<true>, issue_typed_blocks<false>},
      {"Reduce", {intra, inter}, true, false, build_reduce, rooted_reduction},
      {"Allreduce", {intra, inter}, true, false, build_symmetric<false>, plain_reduction},
      {"Scan", {intra}, true, false, build_symmetric<false>, plain_reduction},
      {"Exscan", {intra}, true, false, build_symmetric<true>, plain_reduction},
      {"Reduce_scatter_block", {intra, inter}, true, false, build_reduce_scatter_block, plain_reduction},
      {"Reduce_scatter", {intra, inter}, true, false, build_reduce_scatter, issue_reduce_scatter},
      {"Neighbor_allgather", {neighbourhood}, false, false, build_allgather<false>, plain_singles},
      {"Neighbor_allgatherv", {neighbourhood}, false, false, build_allgather<true>, plain_single_blocks},
      {"Neighbor_alltoall", {neighbourhood}, false, false, build_alltoall, plain_singles},
      {"Neighbor_alltoallv", {neighbourhood}, false, false, build_alltoallv<false>, issue_blocks},
      {"Neighbor_alltoallw", {neighbourhood}, false, false, build_alltoallv<true>, issue_typed_blocks<true>}};
  return all;
}

}  // namespace crosslane::tests
