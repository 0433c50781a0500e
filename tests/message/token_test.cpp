// Tokens: what an owner has told is read back by the rank that it is for, from a message of that length alone; nothing else is taken for
// one, whatever stands beside the words.
#include "message/token.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace crosslane::message {
namespace {

// Two ranks of a node in one process: world ranks 5 and 6, over one mapping.
class TokenTest : public testing::Test {
 protected:
  static constexpr share::Shape shape{.ranks = 2, .lines_per_rank = 16};
  static constexpr team::Cookie cookie{0x0123456789abcdef, 0xfedcba9876543210};
  static constexpr int sender_rank = 5, receiver_rank = 6;

  TokenTest() { directory_.join(sender_rank); }

  Header offered(std::size_t bytes, int to) {
    Header header;
    header.bytes = header.chunk_bytes = bytes;
    header.sender = sender_rank;
    header.tag = 8200;
    header.exposed.id = random_();
    header.exposed.offset = random_();
    for (std::byte& byte : header.exposed.handle) byte = static_cast<std::byte>(random_());
    header.offer = offers_.open().value();
    header.token = sender_.write(header, to);
    return header;
  }
  static std::vector<std::byte> message_of(const Header& header) {
    const auto bytes = encode(header);
    return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header.bytes)};
  }

  std::mt19937_64 random_{20261123};
  share::Directory directory_{share::Segment::unshared(share::Directory::bytes_for(shape)), shape, 0};
  share::Offers offers_{directory_};
  Tokens sender_{directory_, offers_, cookie, sender_rank}, receiver_{directory_, offers_, cookie, receiver_rank};
};

TEST_F(TokenTest, IsReadBackByItsReceiverInEachRound) {
  for (std::size_t bytes = token_bytes; bytes < header_bytes; ++bytes) {
    const Header header = offered(bytes, receiver_rank);
    const auto read = receiver_.read(message_of(header));
    ASSERT_TRUE(read) << bytes;
    EXPECT_EQ(read->bytes, bytes);
    EXPECT_EQ(read->chunks(), 1U);
    EXPECT_EQ(read->sender, sender_rank);
    EXPECT_EQ(read->tag, header.tag);
    EXPECT_EQ(read->cookie, cookie);
    EXPECT_EQ(read->exposed.id, header.exposed.id);
    EXPECT_EQ(read->exposed.offset, header.exposed.offset);
    EXPECT_EQ(read->exposed.handle, header.exposed.handle);
    EXPECT_TRUE(offers_.take(0, read->offer));
    offers_.end(0, read->offer, share::Offers::State::done);
    offers_.close(header.offer);
  }
}

TEST_F(TokenTest, StandsAfterItsOfferWasWithdrawn) {
  const Header header = offered(40, receiver_rank);
  ASSERT_TRUE(offers_.keep(header.offer));
  const auto read = receiver_.read(message_of(header));
  ASSERT_TRUE(read);
  EXPECT_FALSE(offers_.take(0, read->offer));
}

TEST_F(TokenTest, IsNothingToOthersOrInOtherLengthsOrOnceItsLineIsUsedAnew) {
  const Header header = offered(40, receiver_rank);
  const auto message = message_of(header);
  EXPECT_FALSE(sender_.read(message));
  EXPECT_FALSE(Tokens(directory_, offers_, {1, 2}, receiver_rank).read(message));
  for (std::size_t bytes = 0; bytes < message.size(); ++bytes)
    EXPECT_FALSE(receiver_.read(std::span(message).first(bytes))) << bytes;
  auto longer = message;
  longer.push_back(std::byte{});
  EXPECT_FALSE(receiver_.read(longer));
  offers_.close(header.offer);
  const Header next = offered(40, receiver_rank);
  ASSERT_EQ(next.offer.line, header.offer.line);
  EXPECT_FALSE(receiver_.read(message));
  EXPECT_TRUE(receiver_.read(message_of(next)));
}

TEST_F(TokenTest, NoOtherMessageIsOne) {
  const Header header = offered(64, receiver_rank);
  const auto message = message_of(header);
  for (std::size_t bit = 0; bit < 8 * token_bytes; ++bit) {
    auto changed = message;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(receiver_.read(changed)) << bit;
  }
  for (int i = 0; i < 100'000; ++i) {
    auto other = message;
    // Every other one has what a token has on top.
    const std::uint64_t value = random_() & (i % 2 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << 40) - 1);
    const std::uint64_t begins = i % 2 == 0 ? value : (header.token & ~((std::uint64_t{1} << 40) - 1)) | value;
    if (begins == header.token) continue;
    std::memcpy(other.data(), &begins, sizeof begins);
    ASSERT_FALSE(receiver_.read(other)) << i;
  }
}

}  // namespace
}  // namespace crosslane::message
