// See window.h.
#include "collective/window.h"

#include "collective/frame.h"
#include "kernel/exchange.h"

#include <algorithm>
#include <array>

namespace crosslane::collective::window {
namespace {

constexpr std::size_t bytes_a_block = std::size_t{8} << 10;
constexpr std::size_t most_blocks = 32;  // measured on H200: 64 gain nothing

// A plan that runs part after part, each in a launch of its own; the last one reports.
class Parted : public Plan {
 public:
  /// `volume`: what moves through a member, in parts.
  Parted(const Call& call, std::size_t part_bytes, std::size_t volume)
      : shape_(call.shape),
        mine_(call.mine),
        team_(call.team),
        facts_(facts_of(call.team)),
        part_bytes_(part_bytes),
        volume_(volume) {}

  void start(gpu::StreamView stream, const Report& report) override {
    const std::size_t bytes = shape_.bytes;
    std::size_t done = 0;
    do {
      const std::size_t part = std::min(bytes - done, part_bytes_);
      const bool last = done + part == bytes;
      start_part(stream, last ? report : report.of_earlier_ones(), done, part);
      done += part;
    } while (done < bytes);
  }

  [[nodiscard]] std::uint64_t launches() const noexcept override {
    return std::max<std::uint64_t>((shape_.bytes + part_bytes_ - 1) / part_bytes_, 1);
  }
  [[nodiscard]] unsigned blocks() const noexcept override {
    return blocks_for_part(std::min(shape_.bytes, part_bytes_));
  }

 protected:
  /// Of the launch for a part of so many bytes; equal on all ranks, for all must launch the same number.
  [[nodiscard]] unsigned blocks_for_part(std::size_t bytes) const noexcept {
    return blocks_for(facts_, bytes * volume_, bytes_a_block, most_blocks);
  }
  virtual void start_part(gpu::StreamView stream, const Report& report, std::size_t offset, std::size_t bytes) = 0;

  [[nodiscard]] int me() const noexcept { return team_.me(); }
  [[nodiscard]] int members() const noexcept { return team_.size(); }
  [[nodiscard]] const team::RegionLayout& layout() const noexcept { return team_.layout(); }
  [[nodiscard]] const kernel::Kernels& kernels() const noexcept { return team_.kernels(); }
  [[nodiscard]] std::uint64_t inbound(int member) const { return region(member) + layout().inbound(); }
  [[nodiscard]] std::uint64_t outbound(int member) const { return region(member) + layout().outbound(); }

  Shape shape_;
  Buffers mine_;
  team::TeamView team_;
  TeamFacts facts_;

 private:
  [[nodiscard]] std::uint64_t region(int member) const { return address_of(team_.region(member)); }

  std::size_t part_bytes_;
  std::size_t volume_;
};

// Parts of whole vectors and whole elements, of which so many blocks fit side by side.
std::size_t part_of(const Call& call, std::size_t blocks) {
  constexpr std::size_t granule = 64;
  const std::size_t fits = call.team.layout().part_bytes / blocks;
  return fits / granule * granule;
}

std::size_t blocks_in_window(const Call& call) {
  return sends_blocks(call.shape.collective) ? static_cast<std::size_t>(call.team.size()) : 1;
}

class Movement final : public Parted {
 public:
  explicit Movement(const Call& call)
      : Parted(call, part_of(call, blocks_in_window(call)),
               call.shape.collective == Collective::broadcast ? 1 : static_cast<std::size_t>(call.team.size())) {}

 private:
  void start_part(gpu::StreamView stream, const Report& report, std::size_t offset, std::size_t bytes) override {
    const bool personal = sends_blocks(shape_.collective);
    kernel::ExchangeMoveParameters parameters{};
    parameters.frame = frame_of(team_, report);
    parameters.parity = layout().parity_bytes();
    const bool gives = receives_blocks(shape_.collective) || me() == shape_.root;
    if (gives) {
      for (int to = 0; to < (personal ? members() : 1); ++to) {
        const auto block = static_cast<std::size_t>(to);
        parameters.in[parameters.ins++] = {address_of(mine_.send) + block * shape_.bytes + offset,
                                           inbound(me()) + block * bytes, bytes};
      }
    }
    for (int from = 0; from < members(); ++from) {
      if (!shape_.goes(from, me())) continue;
      // Gathered blocks have their places; what comes from a root alone has one.
      const bool placed = receives_blocks(shape_.collective);
      const auto block = static_cast<std::size_t>(from);
      const std::uint64_t to = address_of(mine_.receive) + (placed ? block * shape_.bytes : 0) + offset;
      const std::size_t place = personal ? static_cast<std::size_t>(me()) * bytes : 0;
      parameters.move[parameters.moves++] = {inbound(from) + place, to, bytes};
    }
    kernels().exchange_move(stream, parameters, blocks_for_part(bytes));
  }
};

// As much of `whole` bytes as there is from `offset` on, at most `most`.
std::size_t rest(std::size_t whole, std::size_t offset, std::size_t most) {
  return std::min(whole - std::min(whole, offset), most);
}

// An all-gather of blocks of different sizes: all know all of them, and so how many parts the longest has.
class UnevenGather final : public Parted {
 public:
  explicit UnevenGather(const Call& call)
      : Parted(call, part_of(call, 1), static_cast<std::size_t>(call.team.size())), pieces_(*call.pieces) {}

 private:
  void start_part(gpu::StreamView stream, const Report& report, std::size_t offset, std::size_t bytes) override {
    kernel::ExchangeMoveParameters parameters{};
    parameters.frame = frame_of(team_, report);
    parameters.parity = layout().parity_bytes();
    const Pieces::Piece& own = pieces_.send[static_cast<std::size_t>(me())];
    parameters.in[parameters.ins++] = {move_from(mine_, own).from + offset, inbound(me()),
                                       rest(own.bytes, offset, bytes)};
    for (int from = 0; from < members(); ++from) {
      const Pieces::Piece& theirs = pieces_.receive[static_cast<std::size_t>(from)];
      const std::size_t length = rest(theirs.bytes, offset, bytes);
      if (length == 0) continue;
      parameters.move[parameters.moves++] = {inbound(from), move_to(mine_, theirs).to + offset, length};
    }
    kernels().exchange_move(stream, parameters, blocks_for_part(bytes));
  }

  Pieces pieces_;
};

class OneShot final : public Parted {
 public:
  explicit OneShot(const Call& call) : Parted(call, part_of(call, blocks_in_window(call)), blocks_in_window(call)) {}

 private:
  void start_part(gpu::StreamView stream, const Report& report, std::size_t offset, std::size_t bytes) override {
    const bool personal = sends_blocks(shape_.collective);
    kernel::ExchangeCombineParameters parameters{};
    parameters.frame = frame_of(team_, report);
    parameters.parity = layout().parity_bytes();
    for (int to = 0; to < (personal ? members() : 1); ++to) {
      const auto block = static_cast<std::size_t>(to);
      parameters.in[parameters.ins++] = {address_of(mine_.send) + block * shape_.bytes + offset,
                                         inbound(me()) + block * bytes, bytes};
    }
    int sources = members();
    if (shape_.collective == Collective::scan) sources = me() + 1;
    if (shape_.collective == Collective::exscan) sources = me();
    if (shape_.collective == Collective::reduce && me() != shape_.root) sources = 0;
    const std::size_t place = personal ? static_cast<std::size_t>(me()) * bytes : 0;
    for (int from = 0; from < sources; ++from) parameters.source[parameters.sources++] = inbound(from) + place;
    if (sources == 0) {
      parameters.sources = 1;  // of nothing
    } else {
      parameters.destination[parameters.destinations++] = address_of(mine_.receive) + offset;
      parameters.count = bytes / kernel::bytes_of(shape_.element);
    }
    kernels().exchange_combine(stream, shape_.op, shape_.element, parameters, blocks_for_part(bytes));
  }
};

// A reduce-scatter of blocks of different sizes: each part has the same share of every block, so that all members have something to
// combine until the end, however unequal the blocks are.
class UnevenReduction final : public Plan {
 public:
  explicit UnevenReduction(const Call& call)
      : shape_(call.shape), mine_(call.mine), team_(call.team), pieces_(*call.pieces), facts_(facts_of(call.team)) {
    std::size_t total = 0;
    for (std::size_t m = 0; m < members(); ++m) total += pieces_.send[m].bytes;
    const std::size_t fits = team_.layout().part_bytes - members() * granule;
    parts_ = std::max<std::size_t>((total + fits - 1) / fits, 1);
    std::size_t place = 0;
    for (std::size_t m = 0; m < members(); ++m) {
      share_[m] = (pieces_.send[m].bytes + parts_ * granule - 1) / (parts_ * granule) * granule;
      place_[m] = place;
      place += share_[m];
    }
    blocks_ = blocks_for(facts_, place, bytes_a_block, most_blocks);
  }

  void start(gpu::StreamView stream, const Report& report) override {
    for (std::size_t part = 0; part < parts_; ++part) {
      const bool last = part + 1 == parts_;
      start_part(stream, last ? report : report.of_earlier_ones(), part);
    }
  }

  [[nodiscard]] std::uint64_t launches() const noexcept override { return parts_; }
  [[nodiscard]] unsigned blocks() const noexcept override { return blocks_; }

 private:
  static constexpr std::size_t granule = 64;  // whole vectors and elements

  void start_part(gpu::StreamView stream, const Report& report, std::size_t part) const {
    const auto own = static_cast<std::size_t>(team_.me());
    const auto length = [&](std::size_t m) { return rest(pieces_.send[m].bytes, part * share_[m], share_[m]); };
    kernel::ExchangeCombineParameters parameters{};
    parameters.frame = frame_of(team_, report);
    parameters.parity = team_.layout().parity_bytes();
    for (std::size_t m = 0; m < members(); ++m) {
      parameters.source[parameters.sources++] = inbound(m) + place_[own];
      if (length(m) == 0) continue;
      parameters.in[parameters.ins++] = {move_from(mine_, pieces_.send[m]).from + part * share_[m],
                                         inbound(own) + place_[m], length(m)};
    }
    if (length(own) != 0) {
      parameters.destination[parameters.destinations++] = move_to(mine_, pieces_.receive[own]).to + part * share_[own];
      parameters.count = length(own) / kernel::bytes_of(shape_.element);
    }
    team_.kernels().exchange_combine(stream, shape_.op, shape_.element, parameters, blocks_);
  }

  [[nodiscard]] std::size_t members() const noexcept { return static_cast<std::size_t>(team_.size()); }
  [[nodiscard]] std::uint64_t inbound(std::size_t member) const {
    return address_of(team_.region(static_cast<int>(member))) + team_.layout().inbound();
  }

  Shape shape_;
  Buffers mine_;
  team::TeamView team_;
  Pieces pieces_;
  TeamFacts facts_;
  std::size_t parts_ = 1;
  unsigned blocks_ = 1;
  std::array<std::size_t, share::Board::most_members> share_{}, place_{};  // of each block in a part, by member
};

class TwoShot final : public Parted {
 public:
  explicit TwoShot(const Call& call) : Parted(call, part_of(call, 1), 1) {}

 private:
  void start_part(gpu::StreamView stream, const Report& report, std::size_t offset, std::size_t bytes) override {
    Shape part = shape_;
    part.bytes = bytes;
    const Shards shards(part, members());
    const bool to_all = part.collective == Collective::allreduce;
    const bool wants = to_all || me() == part.root;
    kernel::ExchangeCombineParameters parameters{};
    parameters.frame = frame_of(team_, report);
    parameters.parity = layout().parity_bytes();
    parameters.second_barrier = true;
    parameters.destination_parity = true;
    for (int shard = 0; shard < members(); ++shard) {
      const std::size_t at = shards.offset(shard);
      const std::size_t length = shards.bytes(shard);
      if (length == 0) continue;
      parameters.in[parameters.ins++] = {address_of(mine_.send) + offset + at, inbound(me()) + at, length};
      if (wants) {
        parameters.out[parameters.outs++] = {outbound(me()) + at, address_of(mine_.receive) + offset + at, length};
      }
    }
    const std::size_t mine = shards.offset(me());
    for (int member = 0; member < members(); ++member) {
      parameters.source[parameters.sources++] = inbound(member) + mine;
      if (to_all || member == part.root) parameters.destination[parameters.destinations++] = outbound(member) + mine;
    }
    parameters.count = shards.bytes(me()) / kernel::bytes_of(part.element);
    kernels().exchange_combine(stream, part.op, part.element, parameters, blocks_for_part(bytes));
  }
};

}  // namespace

bool supports(const Shape& /*shape*/, const TeamFacts& facts) { return facts.spinning; }

std::unique_ptr<Plan> prepare_one_shot(const Call& call) {
  if (call.shape.collective == Collective::reduce_scatter && !call.shape.even)
    return std::make_unique<UnevenReduction>(call);
  if (combines(call.shape.collective)) return std::make_unique<OneShot>(call);
  if (call.shape.collective == Collective::allgatherv) return std::make_unique<UnevenGather>(call);
  return std::make_unique<Movement>(call);
}

std::unique_ptr<Plan> prepare_two_shot(const Call& call) { return std::make_unique<TwoShot>(call); }

}  // namespace crosslane::collective::window
