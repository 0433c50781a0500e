// See token.h.
#include "message/token.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace crosslane::message {
namespace {

// What lies beside a word.
struct Beside {
  std::uint64_t token, bytes, round;
  std::int32_t to, tag;
  share::Exposed exposed;
};
using Note = share::Offers::Note;
static_assert(sizeof(Beside) <= sizeof(Note));

// An offer's name: the owner on its node, the line, and of the round what there is room for. The rest is zero, which tells most other
// messages without a look at shared memory.
constexpr unsigned line_bits = 8, round_bits = 20, owner_bits = 12;
static_assert(share::Offers::most <= std::size_t{1} << line_bits);

constexpr std::uint64_t low_bits(std::uint64_t value, unsigned bits) noexcept {
  return value & ((std::uint64_t{1} << bits) - 1);
}

std::uint64_t name_of(int owner, const share::Offers::Ticket& ticket) noexcept {
  return (static_cast<std::uint64_t>(owner) << line_bits | ticket.line) << round_bits |
         low_bits(ticket.round, round_bits);
}

}  // namespace

Tokens::Tokens(const share::Directory& directory, const share::Offers& offers, const team::Cookie& cookie,
               int world_rank) noexcept
    : directory_(directory),
      offers_(offers),
      cookie_(cookie),
      rank_(world_rank),
      key_(cookie[0] ^ std::rotl(cookie[1], 1)) {}

bool Tokens::usable() const noexcept { return directory_.ranks() <= 1 << owner_bits; }

std::uint64_t Tokens::write(const Header& header, int to) const noexcept {
  const std::uint64_t token = name_of(directory_.local_rank(), header.offer) ^ key_;
  const Beside beside{.token = token,
                      .bytes = header.bytes,
                      .round = header.offer.round,
                      .to = to,
                      .tag = header.tag,
                      .exposed = header.exposed};
  Note note{};
  std::memcpy(note.data(), &beside, sizeof beside);
  offers_.tell(header.offer, note);
  return token;
}

std::optional<Header> Tokens::read(std::span<const std::byte> message) const noexcept {
  if (!takes_token(message.size())) return std::nullopt;
  std::uint64_t token = 0;
  std::memcpy(&token, message.data(), sizeof token);
  const std::uint64_t name = token ^ key_;
  if (name >> (owner_bits + line_bits + round_bits) != 0) return std::nullopt;
  const auto line = low_bits(name >> round_bits, line_bits);
  const auto owner = static_cast<int>(name >> (line_bits + round_bits));
  if (owner >= directory_.ranks() || line >= directory_.lines(owner).size()) return std::nullopt;
  const Note note = offers_.told(owner, line);
  Beside beside;
  std::memcpy(&beside, note.data(), sizeof beside);
  if (beside.token != token || beside.bytes != message.size() || beside.to != rank_) return std::nullopt;
  std::optional<Header> read(std::in_place);  // it is long: nobody shall move it
  Header& header = *read;
  header.cookie = cookie_;
  header.bytes = header.chunk_bytes = beside.bytes;
  header.sender = directory_.record(owner).world_rank;
  header.tag = beside.tag;
  header.offer = {beside.round, line};
  header.exposed = beside.exposed;
  return read;
}

}  // namespace crosslane::message
