// Offers: every interleaving of an owner and a reader over their accesses, with ranks as threads, so that ThreadSanitizer sees them:
// exactly one of the two has the payload, nobody reads what its owner has back, and a word that is used again is not mistaken.
#include "share/offers.h"

#include "kernel/push.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace crosslane::share {
namespace {

using State = Offers::State;

// Threads of one process, over one mapping: the reader's calls take the owner's rank, and need no directory of their own.
class OffersTest : public testing::Test {
 protected:
  static constexpr Shape shape{.ranks = 3, .lines_per_rank = 4};
  Directory directory_{Segment::unshared(Directory::bytes_for(shape)), shape, 0};
  Offers owner{directory_}, reader{directory_};
};

TEST_F(OffersTest, OneOfTwoHasIt) {
  for (const bool owner_first : {true, false}) {
    const auto ticket = owner.open();
    ASSERT_TRUE(ticket);
    EXPECT_EQ(owner.state(*ticket), State::offered);
    if (owner_first) {
      EXPECT_TRUE(owner.keep(*ticket));
      EXPECT_FALSE(reader.take(0, *ticket));
      EXPECT_EQ(owner.state(*ticket), State::kept);
    } else {
      EXPECT_TRUE(reader.take(0, *ticket));
      EXPECT_FALSE(owner.keep(*ticket));
      reader.end(0, *ticket, State::done);
      EXPECT_EQ(owner.state(*ticket), State::done);
    }
    owner.close(*ticket);
  }
}

TEST_F(OffersTest, AStoredOneIsAskedFor) {
  const auto ticket = owner.open();
  EXPECT_FALSE(reader.stored(0, *ticket));
  ASSERT_TRUE(owner.store(*ticket));
  EXPECT_FALSE(owner.keep(*ticket));
  EXPECT_FALSE(reader.take(0, *ticket));
  EXPECT_TRUE(reader.stored(0, *ticket));
  EXPECT_FALSE(owner.declined(*ticket));
  EXPECT_FALSE(owner.declined(ticket->line));
  reader.decline(0, *ticket, 17);
  EXPECT_FALSE(reader.stored(0, *ticket));
  EXPECT_EQ(owner.declined(*ticket), 17U);
  EXPECT_EQ(owner.declined(ticket->line), 17U);
  EXPECT_TRUE(owner.answer(*ticket, State::done));
  EXPECT_FALSE(owner.declined(*ticket));
  owner.close(*ticket);
  // The next use of the word is not this one.
  std::vector<Offers::Ticket> all;
  while (const auto next = owner.open()) all.push_back(*next);
  for (const auto& next : all) {
    ASSERT_TRUE(owner.store(next));
    reader.decline(0, next, 18);
  }
  EXPECT_FALSE(reader.stored(0, *ticket));
  EXPECT_FALSE(owner.declined(*ticket));
}

// The thread that has made a copy is behind the one that has found the reader dead, and may have offered something else by then.
TEST_F(OffersTest, AnAnswerThatComesTooLateIsNone) {
  const auto ticket = owner.open();
  EXPECT_FALSE(owner.answer(*ticket, State::done));
  ASSERT_TRUE(reader.take(0, *ticket));
  reader.decline(0, *ticket, 17);
  owner.fail(0, *ticket);
  EXPECT_FALSE(owner.answer(*ticket, State::done));
  EXPECT_EQ(owner.state(*ticket), State::failed);
  owner.close(*ticket);
  const auto next = owner.open();
  ASSERT_EQ(next->line, ticket->line);
  EXPECT_FALSE(owner.answer(*ticket, State::done));
  EXPECT_EQ(owner.state(*next), State::offered);
}

TEST_F(OffersTest, ATakenOneIsNotStored) {
  const auto ticket = owner.open();
  ASSERT_TRUE(reader.take(0, *ticket));
  EXPECT_FALSE(owner.store(*ticket));
  EXPECT_FALSE(reader.stored(0, *ticket));
  reader.decline(0, *ticket, 3);
  EXPECT_FALSE(owner.store(*ticket));
  EXPECT_EQ(owner.declined(*ticket), 3U);
}

TEST_F(OffersTest, OneOfTwoMovesWhatIsAsked) {
  for (const bool written : {true, false}) {
    const auto ticket = owner.open();
    EXPECT_FALSE(owner.asked(*ticket));
    EXPECT_FALSE(owner.write(*ticket));
    ASSERT_TRUE(reader.take(0, *ticket));
    EXPECT_FALSE(owner.asked(*ticket));
    Offers::Where where{};
    where.front() = 7;
    where.back() = 8;
    reader.ask(0, *ticket, where);
    EXPECT_FALSE(owner.keep(*ticket));
    EXPECT_FALSE(owner.store(*ticket));
    EXPECT_EQ(owner.asked(*ticket), where);
    if (written) {
      ASSERT_TRUE(owner.write(*ticket));
      EXPECT_FALSE(owner.asked(*ticket));
      EXPECT_FALSE(reader.given_up(0, *ticket));
      EXPECT_FALSE(reader.is_writing(0));
      owner.begun(*ticket).store(kernel::Revocation::begins(Offers::use(*ticket)));
      EXPECT_EQ(reader.take_back(0, *ticket), std::nullopt);
      owner.begun(*ticket).store(kernel::Revocation::goes(Offers::use(*ticket)));
      EXPECT_EQ(reader.take_back(0, *ticket), false);
      EXPECT_TRUE(reader.has_begun(0, *ticket));
      EXPECT_TRUE(reader.is_writing(0));
      owner.give_up(*ticket);
      EXPECT_FALSE(reader.is_writing(0));
    } else {
      ASSERT_EQ(reader.take_back(0, *ticket), true);
      EXPECT_FALSE(owner.asked(*ticket));
      EXPECT_FALSE(owner.write(*ticket));
    }
    EXPECT_TRUE(reader.given_up(0, *ticket));
    reader.end(0, *ticket, State::done);
    EXPECT_FALSE(reader.given_up(0, *ticket));
    EXPECT_EQ(owner.state(*ticket), State::done);
    owner.close(*ticket);
  }
}

TEST_F(OffersTest, WhoCannotWriteSaysSoAtOnce) {
  const auto ticket = owner.open();
  ASSERT_TRUE(reader.take(0, *ticket));
  owner.refuse(*ticket);  // nothing is asked yet
  EXPECT_EQ(owner.state(*ticket), State::taken);
  reader.ask(0, *ticket, {});
  owner.refuse(*ticket);
  EXPECT_TRUE(reader.given_up(0, *ticket));
  EXPECT_EQ(reader.take_back(0, *ticket), true);
  EXPECT_FALSE(owner.write(*ticket));
}

// A reader takes long to call off what is over meanwhile, and its line used by others.
TEST_F(OffersTest, WhoCallsOffLateTouchesNothing) {
  const auto old = owner.open();
  ASSERT_TRUE(reader.take(0, *old));
  reader.ask(0, *old, {});
  ASSERT_TRUE(owner.write(*old));
  owner.begun(*old).store(kernel::Revocation::goes(Offers::use(*old)));
  owner.end(0, *old, State::done);
  owner.close(*old);
  const auto next = owner.open();
  ASSERT_EQ(next->line, old->line);
  Offers::Note note{};
  note.fill(7);
  owner.tell(*next, note);
  EXPECT_EQ(reader.take_back(0, *old), false);
  EXPECT_EQ(reader.told(0, next->line), note);
  ASSERT_TRUE(reader.take(0, *next));
  reader.ask(0, *next, {});
  EXPECT_EQ(reader.take_back(0, *old), false);
  ASSERT_TRUE(owner.write(*next));
  EXPECT_NE(owner.called_off(*next).load(), kernel::Revocation::off(Offers::use(*next)));
  EXPECT_EQ(reader.take_back(0, *next), true);
  EXPECT_EQ(reader.take_back(0, *old), false);
  EXPECT_EQ(owner.called_off(*next).load(), kernel::Revocation::off(Offers::use(*next)));
  EXPECT_TRUE(reader.given_up(0, *next));
}

// A reader finds that its GPU has failed just when that has written that it is done.
TEST_F(OffersTest, WhatIsOverDoesNotFailAnyMore) {
  const auto ticket = owner.open();
  ASSERT_TRUE(reader.take(0, *ticket));
  reader.end(0, *ticket, State::done);
  reader.fail(0, *ticket);
  EXPECT_EQ(owner.state(*ticket), State::done);
  owner.close(*ticket);
  const auto next = owner.open();
  ASSERT_EQ(next->line, ticket->line);
  reader.fail(0, *ticket);
  EXPECT_EQ(owner.state(*next), State::offered);
  ASSERT_TRUE(reader.take(0, *next));
  reader.fail(0, *next);
  EXPECT_EQ(owner.state(*next), State::failed);
}

TEST_F(OffersTest, AnOldTicketTakesNothing) {
  const auto old = owner.open();
  ASSERT_TRUE(owner.keep(*old));
  owner.close(*old);
  std::vector<Offers::Ticket> all;
  while (const auto ticket = owner.open()) all.push_back(*ticket);
  EXPECT_EQ(all.size(), shape.lines_per_rank);
  EXPECT_FALSE(reader.take(0, *old));
  for (const auto& ticket : all) {
    EXPECT_EQ(owner.state(ticket), State::offered);
    EXPECT_TRUE(reader.take(0, ticket));
  }
}

// As a block of the message window is used: offered by the owner's GPU, read, and used again, without being closed in between.
TEST_F(OffersTest, AReservedWordIsOfferedBySomebodyElseAndUsedAgain) {
  auto ticket = owner.reserve();
  ASSERT_TRUE(ticket);
  const auto first = *ticket;
  for (int use = 0; use < 5; ++use) {
    EXPECT_EQ(owner.state(*ticket), State::free);
    EXPECT_EQ(reader.state(0, *ticket), State::free);
    EXPECT_FALSE(reader.take(0, *ticket));
    EXPECT_FALSE(owner.keep(*ticket));
    owner.word(*ticket).store(Offers::value(*ticket, State::offered), std::memory_order_release);
    EXPECT_EQ(reader.state(0, *ticket), State::offered);
    EXPECT_TRUE(reader.take(0, *ticket));
    EXPECT_FALSE(owner.keep(*ticket));
    reader.end(0, *ticket, State::done);
    EXPECT_EQ(owner.state(*ticket), State::done);
    ticket->round += 1;
  }
  owner.withhold(*ticket);
  EXPECT_FALSE(reader.take(0, *ticket));
  EXPECT_TRUE(reader.stored(0, *ticket));
  reader.end(0, *ticket, State::failed);
  owner.close(*ticket);
  // Whoever has the word next does not take an earlier use for its own.
  std::vector<Offers::Ticket> all;
  while (const auto next = owner.reserve()) all.push_back(*next);
  EXPECT_EQ(all.size(), shape.lines_per_rank);
  for (const auto& next : all) {
    EXPECT_EQ(owner.state(next), State::free);
    EXPECT_TRUE(next.line != first.line || next.round > ticket->round);
  }
}

TEST_F(OffersTest, WordsLieInTheMemoryForGpus) {
  const auto memory = owner.memory();
  EXPECT_EQ(memory.size(), static_cast<std::size_t>(shape.ranks) * shape.lines_per_rank * sizeof(Line));
  while (const auto ticket = owner.open()) {
    const auto* const word = reinterpret_cast<const std::byte*>(&owner.word(*ticket));
    EXPECT_GE(word, memory.data());
    EXPECT_LT(word, memory.data() + memory.size());
  }
}

// An owner and a reader for many rounds, each with a payload that only the offer guards. `read(random, round, ticket)` is the reader's part of one,
// `own(random, round, ticket)` the owner's, behind which the word is free.
class OffersRounds : public OffersTest {
 protected:
  static constexpr std::uint64_t rounds = 20000;
  std::uint64_t payload_ = 0;

  /// The reader is through with that round.
  void await_end(std::uint64_t round) const {
    while (over_.load(std::memory_order_acquire) < round) std::this_thread::yield();
  }

  template <class Read, class Own>
  void play(Read read, Own own) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(seed);
    Offers::Ticket shown;
    std::atomic<std::uint64_t> posted{0};  // stands for MPI's message, as over_ does for its completion
    std::thread reading([&] {
      std::mt19937 random(seed);
      for (std::uint64_t round = 1; round <= rounds; ++round) {
        while (posted.load(std::memory_order_acquire) < round) std::this_thread::yield();
        if (random() % 4 == 0) std::this_thread::yield();
        read(random, round, shown);
        over_.store(round, std::memory_order_release);
      }
    });
    std::mt19937 random(seed + 1);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      payload_ = round;
      const auto ticket = owner.open();
      ASSERT_TRUE(ticket);
      shown = *ticket;
      posted.store(round, std::memory_order_release);
      if (random() % 2 == 0) std::this_thread::yield();
      own(random, round, *ticket);
      payload_ = 0;
      owner.close(*ticket);
      await_end(round);
    }
    reading.join();
  }

 private:
  std::atomic<std::uint64_t> over_{0};
};

// What the payload's owner and its reader do to the payload, unsynchronised but for the offer. One that is stored is asked for, and told by the
// word alone.
TEST_F(OffersRounds, NobodyReadsWhatItsOwnerHasBack) {
  std::uint64_t taken = 0, kept = 0, asked = 0;
  play(
      [&](std::mt19937& /*random*/, std::uint64_t round, const Offers::Ticket& ticket) {
        if (reader.take(0, ticket)) {
          ++taken;
          EXPECT_EQ(payload_, round);
          reader.end(0, ticket, State::done);
        } else if (reader.stored(0, ticket)) {
          ++asked;
          reader.decline(0, ticket, round);
          while (reader.state(0, ticket) != State::done) std::this_thread::yield();
          EXPECT_EQ(payload_, round + rounds);
        }
      },
      [&](std::mt19937& random, std::uint64_t round, const Offers::Ticket& ticket) {
        const bool stores = random() % 2 == 0;
        if (stores && owner.store(ticket)) {
          payload_ = round + rounds;
          while (!owner.declined(ticket)) std::this_thread::yield();
          EXPECT_EQ(owner.declined(ticket), round);
          owner.end(0, ticket, State::done);
          await_end(round);
        } else if (!stores && owner.keep(ticket)) {
          ++kept;
        } else {
          while (owner.state(ticket) < State::done) std::this_thread::yield();
          EXPECT_EQ(owner.state(ticket), State::done);
        }
      });
  EXPECT_EQ(taken + kept + asked, rounds);
}

// The same where the payload goes to memory of the reader's, which either of the two fills, but never both: who moves it writes to `target`,
// unsynchronised but for the offer. The owner plays its kernel, too, which may come late, even when all is over.
TEST_F(OffersRounds, NobodyMovesWhatTheOtherOneMoves) {
  using kernel::Revocation;
  std::uint64_t target = 0, written = 0, given_up = 0, called_off = 0, read = 0;
  const auto kernel = [&](std::mt19937& random, const Offers::Ticket& ticket) {
    EXPECT_FALSE(owner.has_looked(ticket));
    const std::uint64_t use = Offers::use(ticket);
    owner.begun(ticket).exchange(Revocation::begins(use), std::memory_order_seq_cst);
    if (random() % 4 == 0) std::this_thread::yield();
    const bool off = owner.called_off(ticket).load(std::memory_order_seq_cst) == Revocation::off(use);
    owner.begun(ticket).store(off ? Revocation::stays_away(use) : Revocation::goes(use), std::memory_order_seq_cst);
    EXPECT_TRUE(owner.has_looked(ticket));
    if (off) {
      ++called_off;
    } else {
      ++written;
      target = payload_;
      owner.end(0, ticket, State::done);
    }
  };
  play(
      [&](std::mt19937& random, std::uint64_t round, const Offers::Ticket& ticket) {
        EXPECT_TRUE(reader.take(0, ticket));
        target = 0;
        Offers::Where where{};
        where.front() = round;
        reader.ask(0, ticket, where);
        for (auto looks = random() % 8; looks != 0 && reader.state(0, ticket) == State::asked; --looks)
          std::this_thread::yield();
        const auto is_over = [&] { return reader.state(0, ticket) == State::done; };
        const auto is_begun = [&] { return is_over() || reader.has_begun(0, ticket); };
        // Who goes asks once, and is told for good.
        bool mine = false;
        if (random() % 2 == 0) {
          for (auto looks = random() % 8; looks != 0 && !is_begun(); --looks) std::this_thread::yield();
          auto taken = reader.take_back(0, ticket);
          while (!taken) taken = reader.take_back(0, ticket);
          mine = *taken;
          EXPECT_TRUE(mine || is_begun());
          while (!mine && !is_over()) std::this_thread::yield();
        }
        while (!mine && !is_over()) {
          mine = reader.given_up(0, ticket);
          std::this_thread::yield();
        }
        if (mine) {
          ++read;
          target = payload_;
          reader.end(0, ticket, State::done);
        }
        EXPECT_EQ(target, round);
      },
      [&](std::mt19937& random, std::uint64_t round, const Offers::Ticket& ticket) {
        bool pending = false;
        while (owner.state(ticket) < State::done) {
          if (random() % 4 == 0) std::this_thread::yield();
          if (pending && random() % 4 == 0) {
            pending = false;
            kernel(random, ticket);
          }
          const auto where = owner.asked(ticket);
          if (where && random() % 4 == 0) owner.refuse(ticket);
          if (!where || !owner.write(ticket)) continue;
          EXPECT_EQ(where->front(), round);
          if (random() % 4 == 0) {
            ++given_up;
            owner.give_up(ticket);
          } else {
            pending = true;
          }
        }
        if (pending) kernel(random, ticket);
      });
  EXPECT_EQ(written + read, rounds);
  EXPECT_LE(given_up + called_off, read);
  EXPECT_GT(called_off, 0U);
}

}  // namespace
}  // namespace crosslane::share
