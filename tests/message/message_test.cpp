// What can be said of message/ without an MPI: a header is told from everything else, its chunks cover the payload, the
// decision between protocols, and tags that are never shared by two transfers under way.
#include "message/header.h"
#include "message/protocols.h"
#include "message/tags.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace crosslane::message {
namespace {

const team::Cookie cookie{0x0123456789abcdef, 0xfedcba9876543210};

Header some_header() {
  Header header;
  header.cookie = cookie;
  header.bytes = 1'000'003;
  header.chunk_bytes = 65'536;
  header.sender = 17;
  header.tag = 9000;
  return header;
}

share::Exposed some_memory(std::mt19937_64& random) {
  share::Exposed exposed{random(), random(), {}};
  for (std::byte& byte : exposed.handle) byte = static_cast<std::byte>(random());
  return exposed;
}

bool same(const share::Exposed& a, const share::Exposed& b) {
  return a.id == b.id && a.offset == b.offset && a.handle == b.handle;
}

TEST(Header, IsReadBack) {
  const auto read = decode(encode(some_header()), cookie);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->bytes, 1'000'003U);
  EXPECT_EQ(read->chunk_bytes, 65'536U);
  EXPECT_EQ(read->sender, 17);
  EXPECT_EQ(read->tag, 9000);
}

TEST(Header, WhereAPayloadLiesIsReadBack) {
  std::random_device device;
  const std::uint64_t seed = device();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    Header header = some_header();
    header.offer = {random() | 1, random() % share::Offers::most};
    header.exposed = some_memory(random);
    header.address = random();
    header.strided = random() % 2;
    if (header.strided != 0) {
      header.shape.offset = static_cast<std::int64_t>(random());
      header.shape.width = random();
      header.shape.dimensions = 1 + random() % kernel::Strided::limit;
      for (std::size_t d = 0; d < header.shape.dimensions; ++d)
        header.shape.dimension[d] = {random() >> 32U, static_cast<std::int64_t>(random())};
      ASSERT_TRUE(travels(header.shape));
    }
    const auto read = decode(encode(header), cookie);
    ASSERT_TRUE(read && protocol_of(*read) == Protocol::direct) << "seed " << seed;
    EXPECT_TRUE(read->offer.round == header.offer.round && read->offer.line == header.offer.line);
    EXPECT_TRUE(same(read->exposed, header.exposed) && read->address == header.address);
    ASSERT_TRUE(read->strided == header.strided && read->shape.dimensions == header.shape.dimensions);
    EXPECT_TRUE(read->shape.offset == header.shape.offset && read->shape.width == header.shape.width);
    for (std::size_t d = 0; d < header.shape.dimensions; ++d) {
      EXPECT_EQ(read->shape.dimension[d].count, header.shape.dimension[d].count) << "seed " << seed;
      EXPECT_EQ(read->shape.dimension[d].stride, header.shape.dimension[d].stride) << "seed " << seed;
    }
    EXPECT_EQ(read->pieces.blocks, 0U);
  }
  kernel::Strided long_loop{.dimensions = 2};
  long_loop.dimension[1].count = std::uint64_t{1} << 32U;
  EXPECT_FALSE(travels(long_loop));
}

TEST(Header, WhatIsListedIsReadBack) {
  std::random_device device;
  const std::uint64_t seed = device();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    Header header = some_header();
    header.offer = {random() | 1, random() % share::Offers::most};
    header.exposed = some_memory(random);
    header.list = some_memory(random);
    lane::Listed& list = header.listed;
    list.loops.offset = static_cast<std::int64_t>(random());
    const std::uint64_t rounds = 1 + (random() >> 40U);
    if (random() % 2 != 0) {
      list.loops.dimensions = 1;
      list.loops.dimension[0] = {rounds, static_cast<std::int64_t>(random())};
    }
    list.bytes = 1 + (random() >> 30U);
    header.bytes = list.bytes * (list.loops.dimensions != 0 ? rounds : 1);
    list.entries = 1 + random() % 0xffff'fffe;
    list.run_bytes = random() >> 32U;
    list.fingerprint = random();
    list.shift = static_cast<std::uint32_t>(random() % 5);
    list.wide = random() % 2 != 0;
    ASSERT_TRUE(travels(list));
    const auto read = decode(encode(header), cookie);
    ASSERT_TRUE(read && protocol_of(*read) == Protocol::direct) << "seed " << seed;
    EXPECT_TRUE(same(read->exposed, header.exposed) && same(read->list, header.list));
    const auto& got = read->listed;
    EXPECT_TRUE(read->bytes == header.bytes && got.bytes == list.bytes && got.entries == list.entries &&
                got.run_bytes == list.run_bytes && got.fingerprint == list.fingerprint && got.shift == list.shift &&
                got.wide == list.wide && read->strided == 0)
        << "seed " << seed;
    ASSERT_TRUE(got.loops.offset == list.loops.offset && got.loops.dimensions == list.loops.dimensions);
    if (got.loops.dimensions == 0) continue;
    EXPECT_TRUE(got.loops.dimension[0].count == rounds &&
                got.loops.dimension[0].stride == list.loops.dimension[0].stride);
  }
  lane::Listed list;
  EXPECT_TRUE(travels(list));
  list.loops.dimensions = 2;
  EXPECT_FALSE(travels(list));
  list.loops.dimensions = 1;
  list.loops.dimension[0].count = std::uint64_t{1} << 32U;
  EXPECT_FALSE(travels(list));
  list.loops.dimensions = 0;
  EXPECT_TRUE(travels(list));
  for (auto* const number : {&list.entries, &list.run_bytes}) {
    *number = std::uint64_t{1} << 32U;
    EXPECT_FALSE(travels(list));
    *number = 1;
  }
}

TEST(Header, PiecesAreReadBack) {
  Header header = some_header();
  header.pieces = {.piece_bytes = 5000, .blocks = 4, .window = {3, 1 << 20}, .block = {}};
  for (std::uint64_t block = 0; block < 4; ++block) header.pieces.block[block] = {{block + 7, block}, block * 8192};
  const auto read = decode(encode(header), cookie);
  ASSERT_TRUE(read && protocol_of(*read) == Protocol::packed);
  EXPECT_TRUE(read->pieces.piece_bytes == 5000 && read->pieces.blocks == 4 && read->pieces.window.segment == 3 &&
              read->pieces.window.offset == 1 << 20);
  for (std::uint64_t piece = 0; piece < 9; ++piece) {
    EXPECT_EQ(read->pieces.ticket(piece).round, header.pieces.ticket(piece).round);
    EXPECT_EQ(read->pieces.ticket(piece).line, header.pieces.ticket(piece).line);
    EXPECT_EQ(read->pieces.offset(piece), header.pieces.offset(piece));
  }
}

TEST(Header, IsToldFromAnyOtherMessage) {
  const auto message = encode(some_header());
  for (std::size_t byte = 0; byte < sizeof cookie; ++byte) {
    auto other = message;
    other[byte] ^= std::byte{1};
    EXPECT_FALSE(decode(other, cookie)) << "byte " << byte << " of the cookie";
  }
  EXPECT_FALSE(decode(std::span{message}.first(header_bytes - 1), cookie));
  EXPECT_FALSE(decode(message, team::Cookie{cookie[1], cookie[0]}));
  EXPECT_FALSE(decode(HeaderMessage{}, cookie));
}

TEST(Header, ChunksCoverThePayloadOnce) {
  for (const std::uint64_t bytes : {1, 999, 1000, 1001, 65'536, 1'000'003}) {
    for (const std::uint64_t chunk : {1, 7, 1000, 65'536, 2'000'000}) {
      Header header;
      header.bytes = bytes;
      header.chunk_bytes = chunk;
      std::uint64_t end = 0;
      for (std::uint64_t index = 0; index < header.chunks(); ++index) {
        EXPECT_EQ(header.begin(index), end);
        EXPECT_GT(header.end(index), header.begin(index));
        EXPECT_LE(header.end(index) - header.begin(index), chunk);
        end = header.end(index);
      }
      EXPECT_EQ(end, bytes);
    }
  }
}

TEST(Protocols, ChunksOnlyWhatWaitsForSomebodyElseWhoLooks) {
  const Envelope good{
      .on_gpu = true, .bytes = 5000, .waits = true, .to_self = false, .peer_looks = true, .threshold = 2000};
  EXPECT_EQ(choose(good), Protocol::chunked);
  const auto changed = [&](auto change) {
    Envelope envelope = good;
    change(envelope);
    return choose(envelope);
  };
  EXPECT_EQ(changed([](Envelope& e) { e.on_gpu = false; }), Protocol::plain);
  EXPECT_EQ(changed([](Envelope& e) { e.waits = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.to_self = true; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.peer_looks = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.threshold = 0; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.threshold = 5001; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.threshold = 5000; }), Protocol::chunked);
  // Never what is no longer than a header, whatever the setting.
  EXPECT_EQ(changed([](Envelope& e) { e.threshold = 1, e.bytes = header_bytes; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.threshold = 1, e.bytes = header_bytes + 1; }), Protocol::chunked);
}

TEST(Protocols, DirectWhatLiesRegularlyForOneWhoReads) {
  const Envelope good{.on_gpu = true,
                      .bytes = 5000,
                      .waits = false,
                      .to_self = false,
                      .peer_looks = true,
                      .regular = true,
                      .peer_reads = true,
                      .threshold = 2000,
                      .direct_threshold = 3000};
  EXPECT_EQ(choose(good), Protocol::direct);
  const auto changed = [&](auto change) {
    Envelope envelope = good;
    change(envelope);
    return choose(envelope);
  };
  EXPECT_EQ(changed([](Envelope& e) { e.on_gpu = false; }), Protocol::plain);
  EXPECT_EQ(changed([](Envelope& e) { e.waits = true; }), Protocol::direct);
  EXPECT_EQ(changed([](Envelope& e) { e.to_self = true; }), Protocol::direct);
  EXPECT_EQ(changed([](Envelope& e) { e.peer_looks = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.regular = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.peer_reads = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.peer_reads = false, e.waits = true; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 0; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 0, e.turns = true; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 5001; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.turns = true; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.turns = true, e.bytes = std::size_t{64} << 20; }), Protocol::direct);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 1, e.bytes = header_bytes; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 1, e.bytes = header_bytes + 1; }), Protocol::direct);
}

TEST(Protocols, PackWhatCannotBeReadWhereItLies) {
  const Envelope good{.on_gpu = true,
                      .bytes = 5000,
                      .waits = true,
                      .to_self = false,
                      .peer_looks = true,
                      .regular = false,
                      .peer_reads = true,
                      .window = true,
                      .threshold = 2000,
                      .direct_threshold = 3000};
  EXPECT_EQ(choose(good), Protocol::packed);
  const auto changed = [&](auto change) {
    Envelope envelope = good;
    change(envelope);
    return choose(envelope);
  };
  EXPECT_EQ(changed([](Envelope& e) { e.waits = false; }), Protocol::packed);
  EXPECT_EQ(changed([](Envelope& e) { e.to_self = true; }), Protocol::packed);
  EXPECT_EQ(changed([](Envelope& e) { e.regular = true; }), Protocol::direct);
  EXPECT_EQ(changed([](Envelope& e) { e.window = false; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.window = false, e.waits = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.peer_reads = false; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.peer_looks = false; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.turns = true; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.turns = true, e.bytes = std::size_t{64} << 20; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.packed_threshold = 5000; }), Protocol::packed);
  EXPECT_EQ(changed([](Envelope& e) { e.packed_threshold = 5001; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.packed_threshold = 5001, e.threshold = 0; }), Protocol::staged);
  EXPECT_EQ(changed([](Envelope& e) { e.packed_threshold = 5001, e.regular = true; }), Protocol::direct);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 0; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 5001; }), Protocol::chunked);
  EXPECT_EQ(changed([](Envelope& e) { e.direct_threshold = 1, e.bytes = header_bytes; }), Protocol::staged);
}

TEST(Header, PiecesComeBlockByBlockAndRoundByRound) {
  Pieces pieces;
  pieces.piece_bytes = 1000;
  pieces.blocks = 3;
  for (std::uint64_t block = 0; block < pieces.blocks; ++block)
    pieces.block[block] = {{.round = 7 + block, .line = 40 + block}, block * 4096};
  EXPECT_EQ(pieces.count(1), 1U);
  EXPECT_EQ(pieces.count(1000), 1U);
  EXPECT_EQ(pieces.count(1001), 2U);
  std::set<std::pair<std::uint64_t, std::uint64_t>> uses;
  for (std::uint64_t piece = 0; piece < 100; ++piece) {
    const auto ticket = pieces.ticket(piece);
    EXPECT_EQ(ticket.line, 40 + piece % 3);
    EXPECT_EQ(ticket.round, 7 + piece % 3 + piece / 3);
    EXPECT_EQ(pieces.offset(piece), piece % 3 * 4096);
    EXPECT_TRUE(uses.emplace(ticket.round, ticket.line).second);
  }
}

TEST(Header, TellsItsProtocol) {
  Header header = some_header();
  EXPECT_EQ(protocol_of(header), Protocol::chunked);
  header.pieces.blocks = 1;
  EXPECT_EQ(protocol_of(header), Protocol::packed);
  header.pieces.blocks = 0;
  header.offer = {.round = 1, .line = 0};
  EXPECT_EQ(protocol_of(header), Protocol::direct);
}

TEST(Protocols, HaveNames) {
  std::set<std::string_view> names;
  for (const Row& row : protocols()) {
    EXPECT_EQ(name_of(row.protocol), row.name);
    EXPECT_FALSE(row.summary.empty());
    EXPECT_TRUE(names.insert(row.name).second);
  }
}

TEST(Tags, AreNeverSharedAndComeBack) {
  Tags tags;
  std::set<int> taken;
  for (int i = 0; i < team::transfer_tags; ++i) {
    const int tag = tags.take().value();
    EXPECT_TRUE(taken.insert(tag).second);
    EXPECT_GE(tag, team::value(team::Tag::transfers));
    EXPECT_LE(tag, 32767) << "MPI guarantees no more";
  }
  EXPECT_FALSE(tags.take());
  tags.give_back(*std::next(taken.begin(), 4711));
  EXPECT_EQ(tags.take(), *std::next(taken.begin(), 4711));
}

}  // namespace
}  // namespace crosslane::message
