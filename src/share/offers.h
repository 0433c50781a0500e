// Offers: what a rank lets another rank of its node read from its GPU memory: one word each in the directory's lines, which
// says who may touch the memory now. It must not know GPUs, nor how the reader learns where the memory is.
//
// States of a word, in its low four bits; the others count how often the word was used (the round). A word only grows.
//
//   free     -> offered    by its owner, before the message that names it is sent; or by its owner's GPU, behind the copy of a payload to
//                          where it is read: then the reader waits for that
//   free     -> stored     by the owner, where its GPU will not offer it any more
//   offered  -> taken      by the reader, compare-and-swap: it reads, now or later; from now on the reader alone changes the word
//   taken    -> asked      by the reader: the owner may write the payload to where the reader has told beside the word
//   asked    -> reading    by the reader, compare-and-swap: the owner has not come; or by the owner, the same way: it cannot write; as taken
//   asked    -> writing    by the owner, compare-and-swap: a kernel of its GPU writes once it runs, unless it is called off before (kernel/push.h)
//   writing  -> reading    by the owner, compare-and-swap: it could not; or by the reader, the same way: it has called the kernel off; as taken
//   writing  -> done       by the owner's GPU, after its last write
//   offered  -> kept       by the owner, compare-and-swap: the payload goes by MPI, or to nobody any more
//   offered  -> stored     by the owner, compare-and-swap: nobody read for so long that it has a copy, or has found that it cannot have one
//   stored   -> declined   by the reader, as below
//   stored   -> failed     by the reader: it does not need the copy, as something has failed here, too
//   taken    -> declined   by the reader: it cannot reach the memory, and asks for the payload by its ferry (ferry.h), as which number
//                          it has written beside the word
//   declined -> done       by the owner, compare-and-swap: it has a copy to fill in there
//   declined -> failed     by the owner, the same way: it could not make one; or its reader has died
//   taken    -> done       by the reader's GPU, after its last read (a stream write behind the copy), or by its host
//   taken    -> failed     by the reader's host, compare-and-swap: its GPU has failed, which may have written `done` just before
//   below done -> failed   by the reader's host, where it cannot go on whatever comes
//   offered, stored -> free of the next round      by the owner, where no reader can come any more: the message was cancelled, or MPI is being
//                          finalized and all ranks have received
//   kept, done, failed -> free of the next round   by the owner, to whom alone that state is known: the word keeps its value; so a reader
//                          looks for no other state of its own use than those that last until it has seen them
//
// The owner's stores before `offered` reach the reader with MPI's message, or with the word where its GPU writes that. Who sees `done` or
// more with acquire may reuse the memory: nobody reads it any more; and where the owner wrote, all is there.
#pragma once

#include "base/light_mutex.h"
#include "engine/completion.h"
#include "share/directory.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

namespace crosslane::share {

class Offers {
 public:
  enum class State : std::uint64_t {
    free,
    offered,
    kept,
    stored,
    taken,
    asked,
    writing,
    reading,
    declined,
    done,
    failed
  };

  /// How many each rank may have at a time: the lines that a directory needs a rank.
  static constexpr std::size_t most = 256;

  /// One use of one word. Travels to the reader.
  struct Ticket {
    std::uint64_t round = 0;  ///< From 1; 0: none.
    std::uint64_t line = 0;
    [[nodiscard]] explicit operator bool() const noexcept { return round != 0; }
  };

  /// Of this rank of the directory, which must outlive it.
  explicit Offers(Directory& directory) : directory_(directory), rounds_(own().size(), 0) {
    free_.reserve(rounds_.size());
    for (std::size_t line = rounds_.size(); line > 0; --line) free_.push_back(line - 1);
  }

  /// The value of a word in that state; reached for `done` once nobody reads the memory any more.
  [[nodiscard]] static std::uint64_t value(const Ticket& ticket, State state) noexcept {
    return ticket.round << state_bits | static_cast<std::uint64_t>(state);
  }

  // For the owner. Thread-safe.

  /// Its rank of the directory.
  [[nodiscard]] int owner() const noexcept { return directory_.local_rank(); }

  /// A word that is offered now; nothing while all are in use.
  [[nodiscard]] std::optional<Ticket> open();
  /// A word that is free, to be offered by a GPU; and again, a round later each time, once nobody reads any more.
  [[nodiscard]] std::optional<Ticket> reserve();
  /// What the owner tells beside a word, before it sends the message that leads a reader there. The rest of the line is the reader's.
  using Note = std::array<std::uint64_t, std::tuple_size_v<decltype(Line::beside)> - 1>;
  /// What the reader tells there, where the owner has told nothing. The rest of that is for a kernel that may be called off.
  using Where = std::array<std::uint64_t, std::tuple_size_v<Note> - 2>;
  void tell(const Ticket& ticket, const Note& note) const noexcept;
  /// Of a reserved word that no GPU will offer: its reader finds that it is stored.
  void withhold(const Ticket& ticket) const noexcept {
    own()[ticket.line].word.store(value(ticket, State::stored), std::memory_order_release);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& word(const Ticket& ticket) const noexcept {
    return own()[ticket.line].word;
  }
  [[nodiscard]] State state(const Ticket& ticket) const noexcept { return state_in(word(ticket), ticket); }
  /// Done once its word is in that state or a later one.
  [[nodiscard]] engine::Completion reached(const Ticket& ticket, State state) const noexcept {
    return engine::Completion::of(word(ticket), value(ticket, state));
  }
  /// That is what its reader has made of the line's last use: as which payload of its ferry.
  [[nodiscard]] std::optional<std::uint64_t> declined(std::uint64_t line) const noexcept {
    const Line& declined = own()[line];
    if (state_of(declined.word.load(std::memory_order_acquire)) != State::declined) return std::nullopt;
    return declined.beside.back().load(std::memory_order_relaxed);
  }
  /// The same of this use.
  [[nodiscard]] std::optional<std::uint64_t> declined(const Ticket& ticket) const noexcept {
    const Line& declined = own()[ticket.line];
    if (declined.word.load(std::memory_order_acquire) != value(ticket, State::declined)) return std::nullopt;
    return declined.beside.back().load(std::memory_order_relaxed);
  }
  /// What becomes of one that was declined. False where it is over, and its word perhaps used again: its reader has failed, or died.
  [[nodiscard]] bool answer(const Ticket& ticket, State state) noexcept {
    return leave(ticket, State::declined, state);
  }
  /// False where a reader was faster.
  [[nodiscard]] bool keep(const Ticket& ticket) noexcept { return leave(ticket, State::offered, State::kept); }
  [[nodiscard]] bool store(const Ticket& ticket) noexcept { return leave(ticket, State::offered, State::stored); }
  /// Where its reader wants the payload to be written, if it does.
  [[nodiscard]] std::optional<Where> asked(const Ticket& ticket) const noexcept;
  /// It does that. False where the reader reads after all.
  [[nodiscard]] bool write(const Ticket& ticket) noexcept { return leave(ticket, State::asked, State::writing); }
  /// It cannot: the reader reads.
  void refuse(const Ticket& ticket) noexcept { static_cast<void>(leave(ticket, State::asked, State::reading)); }
  /// It could not: the reader reads, unless it was written after all.
  void give_up(const Ticket& ticket) noexcept { static_cast<void>(leave(ticket, State::writing, State::reading)); }
  /// For the kernel that writes: its two words, and which use of them this is (kernel::Revocation).
  [[nodiscard]] std::atomic<std::uint64_t>& begun(const Ticket& ticket) const noexcept {
    return begun(owner(), ticket);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& called_off(const Ticket& ticket) const noexcept {
    return called_off(owner(), ticket);
  }
  [[nodiscard]] static constexpr std::uint64_t use(const Ticket& ticket) noexcept { return ticket.round << state_bits; }
  /// That kernel has begun, and touches those words no more: they may be used again.
  [[nodiscard]] bool has_looked(const Ticket& ticket) const noexcept;
  /// It is offered to nobody any more, and nobody reads: the last of its uses.
  void close(const Ticket& ticket);

  // For the reader.

  [[nodiscard]] State state(int owner, const Ticket& ticket) const noexcept {
    return state_in(theirs(owner, ticket), ticket);
  }
  [[nodiscard]] engine::Completion reached(int owner, const Ticket& ticket, State state) const noexcept {
    return engine::Completion::of(theirs(owner, ticket), value(ticket, state));
  }
  /// False where the owner keeps it.
  [[nodiscard]] bool take(int owner, const Ticket& ticket) const noexcept {
    return leave(owner, ticket, State::offered, State::taken);
  }
  /// Of one that was taken, beside which its owner has told nothing: asks it to write the payload to where `where` tells.
  void ask(int owner, const Ticket& ticket, const Where& where) const noexcept;
  /// Of one that was asked: the reader reads after all. False where it is being written, or is over; nothing where that begins just now, which is
  /// known at once: then this is to be called again, while its owner lives.
  [[nodiscard]] std::optional<bool> take_back(int owner, const Ticket& ticket) const noexcept;
  /// Whether its owner has begun to write it; and whether that writes anything now, to whomever.
  [[nodiscard]] bool has_begun(int owner, const Ticket& ticket) const noexcept;
  [[nodiscard]] bool is_writing(int owner) const noexcept;
  /// Of one that was asked, and not taken back: its owner could not write.
  [[nodiscard]] bool given_up(int owner, const Ticket& ticket) const noexcept {
    return theirs(owner, ticket).load(std::memory_order_acquire) == value(ticket, State::reading);
  }
  /// Where it was not taken: its owner has it, and it may be declined.
  [[nodiscard]] bool stored(int owner, const Ticket& ticket) const noexcept {
    return theirs(owner, ticket).load(std::memory_order_acquire) == value(ticket, State::stored);
  }
  /// What stands beside a word; its owner may be changing it, unless it is known to be of an offer that stands.
  [[nodiscard]] Note told(int owner, std::size_t line) const noexcept;
  /// Of one that was taken, or is stored.
  void decline(int owner, const Ticket& ticket, std::uint64_t number) const noexcept;
  void end(int owner, const Ticket& ticket, State state) const noexcept {
    theirs(owner, ticket).store(value(ticket, state), std::memory_order_release);
  }
  /// It has failed, unless it is over by now, and its word perhaps used again.
  void fail(int owner, const Ticket& ticket) const noexcept;
  [[nodiscard]] std::atomic<std::uint64_t>& theirs(int owner, const Ticket& ticket) const noexcept {
    return directory_.lines(owner)[ticket.line].word;
  }

  /// All ranks' words, for GPUs to write to.
  [[nodiscard]] std::span<std::byte> memory() const noexcept;

 private:
  static constexpr unsigned state_bits = 4;
  static constexpr std::size_t begun_at = std::tuple_size_v<Where>, called_off_at = begun_at + 1;
  static std::uint64_t use_of(std::uint64_t word) noexcept { return word >> state_bits << state_bits; }
  static State state_of(std::uint64_t word) noexcept { return static_cast<State>(word & ((1U << state_bits) - 1)); }
  bool leave(const Ticket& ticket, State from, State to) noexcept;
  void tell(int owner, const Ticket& ticket, std::span<const std::uint64_t> what) const noexcept;
  [[nodiscard]] std::atomic<std::uint64_t>& begun(int owner, const Ticket& ticket) const noexcept {
    return directory_.lines(owner)[ticket.line].beside[begun_at];
  }
  [[nodiscard]] std::atomic<std::uint64_t>& called_off(int owner, const Ticket& ticket) const noexcept {
    return directory_.lines(owner)[ticket.line].beside[called_off_at];
  }
  bool leave(int owner, const Ticket& ticket, State from, State to) const noexcept;
  static State state_in(const std::atomic<std::uint64_t>& word, const Ticket& ticket) noexcept {
    const std::uint64_t seen = word.load(std::memory_order_acquire);
    return seen < value(ticket, State::offered) ? State::free : state_of(seen);
  }
  [[nodiscard]] std::span<Line> own() const noexcept { return directory_.lines(directory_.local_rank()); }

  Directory& directory_;
  base::LightMutex mutex_;  // guards the next two
  std::vector<std::size_t> free_;
  std::vector<std::uint64_t> rounds_;  // of each line, as last used
};

}  // namespace crosslane::share
