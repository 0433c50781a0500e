// The header's bytes: its fields as they lie in memory here (all ranks of a job run on one kind of machine), then a zero.
#include "message/header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace crosslane::message {
namespace {

// What `direct` needs alone.
struct Memory {
  share::Exposed exposed;
  std::uint64_t address;
  std::int64_t offset;
  std::uint64_t width;
  std::array<std::uint32_t, kernel::Strided::limit> count;
  std::array<std::int64_t, kernel::Strided::limit> stride;
};

struct Wire {
  team::Cookie cookie;
  std::uint64_t bytes, chunk_bytes;
  std::int32_t sender, tag;
  std::uint64_t offer_round;
  std::uint32_t offer_line;
  std::uint16_t strided, dimensions;
  std::array<std::byte, sizeof(Memory)> rest;  // Memory where there is an offer, else Pieces
};

static_assert(std::is_trivially_copyable_v<Wire> && std::is_trivially_copyable_v<Pieces> &&
              sizeof(Wire) < header_bytes);
static_assert(sizeof(Pieces) <= sizeof(Memory));

constexpr std::uint64_t most_runs = std::numeric_limits<std::uint32_t>::max();

}  // namespace

bool travels(const kernel::Strided& shape) noexcept {
  const std::span loops(shape.dimension, shape.dimensions);
  return std::ranges::all_of(loops, [](const auto& loop) { return loop.count <= most_runs; });
}

HeaderMessage encode(const Header& header) noexcept {
  Wire wire{.cookie = header.cookie,
            .bytes = header.bytes,
            .chunk_bytes = header.chunk_bytes,
            .sender = header.sender,
            .tag = header.tag,
            .offer_round = header.offer.round,
            .offer_line = static_cast<std::uint32_t>(header.offer.line),
            .strided = static_cast<std::uint16_t>(header.strided),
            .dimensions = static_cast<std::uint16_t>(header.shape.dimensions),
            .rest = {}};
  if (header.offer) {
    Memory memory{.exposed = header.exposed,
                  .address = header.address,
                  .offset = header.shape.offset,
                  .width = header.shape.width,
                  .count = {},
                  .stride = {}};
    for (std::size_t d = 0; d < header.shape.dimensions; ++d) {
      memory.count[d] = static_cast<std::uint32_t>(header.shape.dimension[d].count);
      memory.stride[d] = header.shape.dimension[d].stride;
    }
    std::memcpy(wire.rest.data(), &memory, sizeof memory);
  } else {
    std::memcpy(wire.rest.data(), &header.pieces, sizeof header.pieces);
  }
  HeaderMessage message{};
  std::memcpy(message.data(), &wire, sizeof wire);
  return message;
}

std::optional<Header> decode(std::span<const std::byte> message, const team::Cookie& cookie) noexcept {
  if (message.size() != header_bytes) return std::nullopt;
  Wire wire;
  std::memcpy(&wire, message.data(), sizeof wire);
  if (wire.cookie != cookie) return std::nullopt;
  Header header;
  header.cookie = wire.cookie;
  header.bytes = wire.bytes;
  header.chunk_bytes = wire.chunk_bytes;
  header.sender = wire.sender;
  header.tag = wire.tag;
  header.offer = {wire.offer_round, wire.offer_line};
  if (header.offer) {
    Memory memory;
    std::memcpy(&memory, wire.rest.data(), sizeof memory);
    header.exposed = memory.exposed;
    header.address = memory.address;
    header.strided = wire.strided;
    header.shape.offset = memory.offset;
    header.shape.width = memory.width;
    header.shape.dimensions = wire.dimensions;
    for (std::size_t d = 0; d < header.shape.dimensions; ++d)
      header.shape.dimension[d] = {memory.count[d], memory.stride[d]};
  } else {
    std::memcpy(&header.pieces, wire.rest.data(), sizeof header.pieces);
  }
  return header;
}

}  // namespace crosslane::message
