// The header's bytes: its fields as they lie in memory here (all ranks of a job run on one kind of machine).
#include "message/header.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace crosslane::message {
namespace {

// What `direct` needs alone, of a payload in one piece or a nest of loops.
struct Memory {
  share::Exposed exposed;
  std::uint64_t address;
  std::int64_t offset;
  std::uint64_t width;
  std::array<std::uint32_t, kernel::Strided::limit> count;
  std::array<std::int64_t, kernel::Strided::limit> stride;
};

// The same of one along a list.
struct List {
  share::Exposed exposed, list;
  std::uint64_t fingerprint;
  std::int64_t offset, stride;
  std::uint32_t count, entries, run_bytes;
  std::uint8_t shift;
  bool loops, wide;
};

struct Wire {
  team::Cookie cookie;
  std::uint64_t bytes, chunk_bytes;
  std::int32_t sender, tag;
  std::uint64_t offer_round;
  std::uint32_t offer_line;
  enum class Form : std::uint16_t { contiguous, strided, listed } form;
  std::uint16_t dimensions;
};

// What follows it: List, Memory, or Pieces where there is no offer. Of a List all but what pads it.
constexpr std::size_t rest_bytes = offsetof(List, wide) + sizeof(bool);

static_assert(std::is_trivially_copyable_v<Wire> && std::is_trivially_copyable_v<Pieces> &&
              std::is_trivially_copyable_v<List> && sizeof(Wire) + rest_bytes <= header_bytes);
static_assert(sizeof(Memory) <= rest_bytes && sizeof(Pieces) <= rest_bytes);

constexpr std::uint64_t most_runs = std::numeric_limits<std::uint32_t>::max();

template <class T>
void put(HeaderMessage& message, const T& rest, std::size_t bytes = sizeof(T)) noexcept {
  std::memcpy(message.data() + sizeof(Wire), &rest, bytes);
}

template <class T>
T rest_of(std::span<const std::byte> message, std::size_t bytes = sizeof(T)) noexcept {
  T rest;
  std::memcpy(&rest, message.data() + sizeof(Wire), bytes);
  return rest;
}

}  // namespace

bool travels(const kernel::Strided& shape) noexcept {
  const std::span loops(shape.dimension, shape.dimensions);
  return std::ranges::all_of(loops, [](const auto& loop) { return loop.count <= most_runs; });
}

bool travels(const lane::Listed& list) noexcept {
  const auto& loops = list.loops;
  return loops.dimensions <= 1 && (loops.dimensions == 0 || loops.dimension[0].count <= most_runs) &&
         list.entries <= most_runs && list.run_bytes <= most_runs;
}

HeaderMessage encode(const Header& header) noexcept {
  using Form = Wire::Form;
  HeaderMessage message{};
  if (header.token != 0) {
    std::memcpy(message.data(), &header.token, sizeof header.token);
    return message;
  }
  const bool listed = header.listed.entries != 0;
  const Wire wire{.cookie = header.cookie,
                  .bytes = header.bytes,
                  .chunk_bytes = header.chunk_bytes,
                  .sender = header.sender,
                  .tag = header.tag,
                  .offer_round = header.offer.round,
                  .offer_line = static_cast<std::uint32_t>(header.offer.line),
                  .form = listed                ? Form::listed
                          : header.strided != 0 ? Form::strided
                                                : Form::contiguous,
                  .dimensions = static_cast<std::uint16_t>(header.shape.dimensions)};
  std::memcpy(message.data(), &wire, sizeof wire);
  if (!header.offer) {
    put(message, header.pieces);
  } else if (listed) {
    const auto& list = header.listed;
    const auto& loop = list.loops.dimension[0];
    const bool loops = list.loops.dimensions != 0;
    put(message,
        List{.exposed = header.exposed,
             .list = header.list,
             .fingerprint = list.fingerprint,
             .offset = list.loops.offset,
             .stride = loops ? loop.stride : 0,
             .count = loops ? static_cast<std::uint32_t>(loop.count) : 1,
             .entries = static_cast<std::uint32_t>(list.entries),
             .run_bytes = static_cast<std::uint32_t>(list.run_bytes),
             .shift = static_cast<std::uint8_t>(list.shift),
             .loops = loops,
             .wide = list.wide},
        rest_bytes);
  } else {
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
    put(message, memory);
  }
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
  if (!header.offer) {
    header.pieces = rest_of<Pieces>(message);
  } else if (wire.form == Wire::Form::listed) {
    const auto list = rest_of<List>(message, rest_bytes);
    header.exposed = list.exposed;
    header.list = list.list;
    auto& listed = header.listed;
    listed.loops.offset = list.offset;
    if (list.loops) {
      listed.loops.dimensions = 1;
      listed.loops.dimension[0] = {list.count, list.stride};
    }
    listed.bytes = header.bytes / list.count;
    listed.entries = list.entries;
    listed.run_bytes = list.run_bytes;
    listed.fingerprint = list.fingerprint;
    listed.shift = list.shift;
    listed.wide = list.wide;
  } else {
    const auto memory = rest_of<Memory>(message);
    header.exposed = memory.exposed;
    header.address = memory.address;
    header.strided = wire.form == Wire::Form::strided ? 1 : 0;
    header.shape.offset = memory.offset;
    header.shape.width = memory.width;
    header.shape.dimensions = wire.dimensions;
    for (std::size_t d = 0; d < header.shape.dimensions; ++d)
      header.shape.dimension[d] = {memory.count[d], memory.stride[d]};
  }
  return header;
}

}  // namespace crosslane::message
