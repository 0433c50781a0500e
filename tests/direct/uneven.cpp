// See uneven.h.
#include "direct/uneven.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace crosslane::tests {
namespace {

// Sizes that fit the collective: what a rank gets may depend on who sends, on who receives, or on both.
void draw_units(Uneven& call, std::size_t most, Random& random) {
  const auto n = static_cast<std::size_t>(call.size);
  const std::size_t granules = most / (call.element->base.extent * static_cast<std::size_t>(call.granule));
  const auto how = random.below(5);
  const int chosen = static_cast<int>(random.below(n * n));
  std::vector<std::size_t> drawn(n * n);
  for (std::size_t i = 0; i < n * n; ++i) {
    const std::size_t some = random.chance(25) ? 0 : random.below(granules + 1);
    drawn[i] = how == 0 ? granules : how == 1 ? (static_cast<int>(i) == chosen ? granules : 0) : some;
  }
  call.units.assign(n * n, 0);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      std::size_t which = from * n + to;
      switch (call.what) {
        case What::allgatherv:
          which = from * n;
          break;
        case What::reduce_scatter:
          which = to;
          break;
        case What::gatherv:
          if (to != static_cast<std::size_t>(call.root)) continue;
          break;
        case What::scatterv:
          if (from != static_cast<std::size_t>(call.root)) continue;
          break;
        case What::alltoallv:
          if (call.in_place && from > to) which = to * n + from;
          break;
      }
      call.units[from * n + to] = drawn[which] * static_cast<std::size_t>(call.granule);
    }
  }
}

Uneven drawn(What what, int size, Random& random) {
  Uneven call;
  call.what = what;
  call.size = size;
  call.seed = random.next();
  call.element = &elements().front();
  std::tie(call.op_name, call.op) = call.element->ops.front();
  call.root = static_cast<int>(random.below(static_cast<std::uint64_t>(size)));
  return call;
}

// Types of many elements are not for large buffers: each has its list of offsets.
constexpr int most_in_type = 48;
constexpr std::size_t most_derived = 64000;

void fill_arrays(UnevenRun::Side& made, const std::vector<std::size_t>& blocks, int granule) {
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    made.counts.push_back(static_cast<int>(blocks[block]) / granule);
    made.places.push_back(static_cast<int>(made.at[block]) / granule);
  }
  made.wide_counts.assign(made.counts.begin(), made.counts.end());
  made.wide_places.assign(made.places.begin(), made.places.end());
}

}  // namespace

std::size_t Uneven::largest() const { return *std::ranges::max_element(units); }

std::string Uneven::text() const {
  return fmt::format("{} of up to {} {} ({} bytes){}{}, root {}", name(), largest(), element->base.name,
                     bytes(largest()), what == What::reduce_scatter ? ", " + op_name : "", in_place ? ", in place" : "",
                     root);
}

Uneven make_uneven(What what, int size, Random& random, std::size_t most) {
  Uneven call = drawn(what, size, random);
  call.element = &random.pick(elements());
  std::tie(call.op_name, call.op) = random.pick(call.element->ops);
  call.granule = random.pick(std::array{1, 1, 2, 3, 4, 12});
  call.in_place = random.chance(30);
  const std::array<std::size_t, 7> scales{0, 40, 3000, 40000, 66000, 300000, most};
  draw_units(call, std::min(random.pick(scales), most), random);
  // Open MPI (4.1, 5.0) chooses the algorithm by all ranks' counts and the size of a rank's own type: where ranks give types of
  // different sizes, although of one signature, they choose differently, and hang.
  if (what == What::allgatherv) {
    const bool small = call.bytes(call.largest()) * static_cast<std::size_t>(size) <= most_derived;
    call.in_type = small && random.chance(50) ? random_divisor(random, call.granule, most_in_type) : 1;
  }
  return call;
}

Uneven make_even(What what, int size, Random& random, std::size_t bytes) {
  Uneven call = drawn(what, size, random);
  const auto n = static_cast<std::size_t>(size), root = static_cast<std::size_t>(call.root);
  call.units.assign(n * n, 0);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const bool goes = what == What::gatherv ? to == root : what != What::scatterv || from == root;
      if (goes) call.units[from * n + to] = bytes / call.element->base.extent;
    }
  }
  return call;
}

UnevenRun::UnevenRun(const Uneven& call, const Job& job, const UnevenManners& manners, Random& local)
    : call_(call), me_(job.me()) {
  const int n = call.size;
  const bool rooted = call.what == What::gatherv || call.what == What::scatterv;
  const bool at_root = me_ == call.root;
  const bool in_place = call.in_place && (!rooted || at_root);
  // What this rank sends, and receives, by peer.
  std::vector<std::size_t> out, in;
  for (int peer = 0; peer < n; ++peer) {
    out.push_back(call.between(me_, peer));
    in.push_back(call.between(peer, me_));
  }
  const bool one_out = call.what == What::allgatherv || call.what == What::gatherv;
  const bool one_in = call.what == What::scatterv || call.what == What::reduce_scatter;
  if (one_out) out = {call.between(me_, call.what == What::gatherv ? call.root : 0)};
  if (one_in) in = {call.between(call.what == What::scatterv ? call.root : 0, me_)};
  if (one_in) result_ = in.front();
  const bool sends = call.what != What::scatterv || at_root;
  const bool receives = call.what != What::gatherv || at_root;
  const bool scattered = call.what != What::reduce_scatter;
  // In place, a reduce-scatter reads its input where the result comes, and a scatter's root keeps its own block.
  only_out_ = in_place && call.what == What::scatterv;
  only_in_ = in_place && !only_out_;
  if (sends && !only_in_) send_ = side(out, scattered && !one_out, manners, local);
  if (receives && !only_out_)
    receive_ = side(only_in_ && call.what == What::reduce_scatter ? out : in, scattered && !one_in, manners, local);
  for (MPI_Datatype* const type : {&send_.type, &receive_.type})
    if (*type == MPI_DATATYPE_NULL) *type = call.element->base.type;
  for (std::size_t block = 0; block < out.size(); ++block)
    inputs_.push_back(contribution(me_, call.what == What::gatherv ? call.root : static_cast<int>(block)));
  for (int rank = 0; rank < n; ++rank) shares_.push_back(static_cast<int>(call.between(0, rank)));
  wide_shares_.assign(shares_.begin(), shares_.end());
}

const void* UnevenRun::from() const {
  if (only_in_) return MPI_IN_PLACE;
  return send_.buffer ? send_.buffer->address() : nullptr;
}

void* UnevenRun::to() const {
  if (only_out_) return MPI_IN_PLACE;
  return receive_.buffer ? receive_.buffer->address() : nullptr;
}

// What one rank has for another; of a reduce-scatter, for the block of that rank.
std::vector<std::byte> UnevenRun::contribution(int from, int to) const {
  std::vector<std::byte> data(call_.bytes(call_.between(from, to)));
  Random random(mix(call_.seed, from, call_.what == What::allgatherv ? 0 : to, 5));
  call_.element->fill(random, data, call_.whole);
  return data;
}

std::vector<std::byte> UnevenRun::expected(int from) const {
  if (call_.what != What::reduce_scatter) return contribution(from, me_);
  std::vector<std::byte> result = contribution(0, me_);
  for (int rank = 1; rank < call_.size; ++rank) {
    const auto theirs = contribution(rank, me_);
    for (std::size_t at = 0; at < theirs.size(); at += call_.element->base.extent)
      call_.element->combine(call_.op, &result[at], &theirs[at]);
  }
  return result;
}

// A buffer with these blocks, in any order and with gaps in between where that may be.
UnevenRun::Side UnevenRun::side(const std::vector<std::size_t>& blocks, bool scattered, const UnevenManners& manners,
                                Random& local) const {
  Side made;
  const auto granule = static_cast<std::size_t>(call_.granule);
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (scattered) local.shuffle(order);
  made.at.resize(blocks.size());
  for (const std::size_t block : order) {
    if (scattered && local.chance(40)) made.units += granule * local.below(20);
    made.at[block] = made.units;
    made.units += blocks[block];
  }
  if (made.units == 0 && local.chance(manners.absent)) {
    fill_arrays(made, blocks, 1);
    return made;
  }
  made.units = std::max(made.units, granule);
  const bool combines = call_.what == What::reduce_scatter;
  const Base& base = call_.element->base;
  const bool derived =
      !combines && (call_.in_type > 1 ? manners.derived > 0
                                      : local.chance(manners.derived) && call_.bytes(made.units) <= most_derived);
  Type type = base_type_of(base);
  if (derived) {
    const int elements = call_.in_type > 0 ? call_.in_type : random_divisor(local, call_.granule, most_in_type);
    do type = random_type(local, base, elements);
    while (static_cast<std::int64_t>(made.units) / elements > type.most);
  }
  const int elements_in_type = type.elements();
  made.type = type.handle;
  const std::size_t offset = combines ? call_.element->alignment * local.below(5) : local.below(33);
  made.buffer = std::make_unique<Buffer>(manners.kind(local), base, std::move(type), made.units, offset, local.next());
  fill_arrays(made, blocks, elements_in_type);
  return made;
}

// New noise, with the blocks in it that are this rank's own input.
void UnevenRun::load(Side& side, const std::vector<std::vector<std::byte>>& blocks, Random& local) const {
  if (!side.buffer) return;
  const std::size_t extent = call_.element->base.extent;
  std::vector<std::byte> content = pattern(local.next(), side.units * extent);
  for (std::size_t block = 0; block < blocks.size(); ++block)
    std::ranges::copy(blocks[block], content.begin() + static_cast<std::ptrdiff_t>(side.at[block] * extent));
  side.buffer->load(content, 0, local.next());
}

void UnevenRun::load(Random& local) {
  load(send_, inputs_, local);
  std::vector<std::vector<std::byte>> there(receive_.at.size());
  if (only_in_) {
    if (call_.what == What::allgatherv || call_.what == What::gatherv)
      there[static_cast<std::size_t>(me_)] = inputs_.front();
    if (call_.what == What::alltoallv || call_.what == What::reduce_scatter) there = inputs_;
  }
  load(receive_, there, local);
}

void UnevenRun::check() {
  if (receive_.buffer) {
    if (call_.what == What::scatterv || call_.what == What::reduce_scatter) {
      receive_.buffer->expect(expected(call_.root), 0);
      if (only_in_ && receive_.units > result_) receive_.buffer->forget(result_, receive_.units - result_);
    } else {
      for (int from = 0; from < call_.size; ++from)
        receive_.buffer->expect(expected(from), receive_.at[static_cast<std::size_t>(from)]);
    }
    receive_.buffer->check("what was received");
  }
  if (send_.buffer) send_.buffer->check("what was sent");
}

}  // namespace crosslane::tests
