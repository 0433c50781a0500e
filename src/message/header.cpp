// The header's bytes: its fields as they lie in memory (all ranks of a job run on one kind of machine), then zeros.
#include "message/header.h"

#include <cstring>
#include <type_traits>

namespace crosslane::message {

static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) < header_bytes);

HeaderMessage encode(const Header& header) noexcept {
  HeaderMessage message{};
  std::memcpy(message.data(), &header, sizeof header);
  return message;
}

std::optional<Header> decode(std::span<const std::byte> message, const team::Cookie& cookie) noexcept {
  if (message.size() != header_bytes) return std::nullopt;
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.cookie != cookie) return std::nullopt;
  return header;
}

}  // namespace crosslane::message
