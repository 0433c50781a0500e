// The flag protocol of a team's kernels (the tables in kernel/team.h and kernel/low_latency.h), by exhaustive
// interleaving: every order in which writes of 2 or 3 members can become visible over 3 launches of every mix of kernels.
// Nobody may read memory that is not of its launch, nobody may hang; and protocols with a piece missing must be caught.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace crosslane::test {
namespace {

// How kernels of each kind use memory. `pull` and `push` touch users' buffers, the others the team's windows.
enum class Kind {
  window,
  two_shot,
  pull,
  push,
  low_latency,
  broadcast,
  pipelined,
  pairwise,
  collected,
  shares,
  pushed,
  ring
};
// Only where a test says so: `collected`, a pipeline whose results go through member 0's window; `shares`, LL in two flights; `pushed`, to
// member 0 through its window, chunk by chunk; `ring`, a reduction of three along it.
constexpr std::array all_kinds{Kind::window,      Kind::two_shot,  Kind::pull,      Kind::push,
                               Kind::low_latency, Kind::broadcast, Kind::pipelined, Kind::pairwise};
constexpr std::size_t chunks = 4;  // of a pipeline

// What a protocol may lack.
struct Protocol {
  bool double_buffered = true, tokens = true, start_barrier = true, end_barrier = true, releases = true;
  bool pairs_hear_all = true;
  std::size_t pipeline_places = 3, pair_places = 2, push_places = 3;
  bool waits_to_collect = true, waits_to_push = true, results_apart = true;
  // Of a ring: chunks of a round, how many rounds, places; whether results go on.
  std::size_t ring_chunks = 1, ring_rounds = 1, ring_places = 2;
  bool ring_results = true;
};

// Chunks that go between two members in a pairwise launch: some pairs have none.
std::size_t pair_chunks(std::size_t a, std::size_t b) { return a + b == 1 ? 3 : a + b == 2 ? 1 : 0; }

bool uses_slots(Kind kind) { return kind == Kind::low_latency || kind == Kind::broadcast || kind == Kind::shares; }

// A step of one block. Places are words of an abstract memory; values are launches + 1, or flags as in Control.
struct Step {
  enum class Do { write, post, await, await_value, read } what;
  std::size_t place;
  std::uint8_t value;
};

// Where things are, for so many members and blocks.
class Layout {
 public:
  Layout(std::size_t members, std::size_t blocks) : members_(members), blocks_(blocks) {}
  // Arrays one behind another, each indexed [owner][block][parity][other member].
  [[nodiscard]] std::size_t flag(std::size_t owner, std::size_t block, std::size_t of) const {
    return at(0, owner, block, 0, of);
  }
  [[nodiscard]] std::size_t window(std::size_t owner, std::size_t block, std::size_t parity) const {
    return at(1, owner, block, parity, 0);
  }
  [[nodiscard]] std::size_t result(std::size_t owner, std::size_t block, std::size_t parity, std::size_t of) const {
    return at(2, owner, block, parity, of);
  }
  [[nodiscard]] std::size_t slot(std::size_t owner, std::size_t block, std::size_t parity, std::size_t of) const {
    return at(3, owner, block, parity, of);
  }
  [[nodiscard]] std::size_t source(std::size_t owner, std::size_t block) const { return at(4, owner, block, 0, 0); }
  [[nodiscard]] std::size_t target(std::size_t owner, std::size_t block, std::size_t of) const {
    return at(4, owner, block, 1, of);
  }
  [[nodiscard]] std::size_t step(std::size_t owner, std::size_t block, std::size_t of) const {
    return at(5, owner, block, 0, of);
  }
  // A place of a pipeline's window, by its number. With two members the first two places are where the other kernels'
  // windows are, of both parities: pipelines use all of the window.
  [[nodiscard]] std::size_t chunk(std::size_t owner, std::size_t block, std::size_t index, std::size_t of) const {
    return members_ == 2 && index < 2 ? window(owner, block, index) : at(6 + index, owner, block, 0, of);
  }
  // A place of a pair in the sender's window, of that parity. With two members the first one is where the other kernels' window of
  // that parity is, with more some are where pipelines have theirs.
  [[nodiscard]] std::size_t pair(std::size_t owner, std::size_t block, std::size_t parity, std::size_t index,
                                 std::size_t to) const {
    return members_ == 2 && index == 0 ? window(owner, block, parity) : at(6 + 2 * parity + index, owner, block, 0, to);
  }
  [[nodiscard]] std::size_t chunk_result(std::size_t owner, std::size_t block, std::size_t k, std::size_t of) const {
    return at(6 + k, owner, block, 1, of);
  }
  [[nodiscard]] std::size_t second_slot(std::size_t owner, std::size_t block, std::size_t parity,
                                        std::size_t of) const {
    return at(6 + chunks, owner, block, parity, of);
  }
  [[nodiscard]] std::size_t size() const { return at(7 + chunks, 0, 0, 0, 0); }

 private:
  [[nodiscard]] std::size_t at(std::size_t array, std::size_t owner, std::size_t block, std::size_t parity,
                               std::size_t of) const {
    return (((array * members_ + owner) * blocks_ + block) * 2 + parity) * members_ + of;
  }
  std::size_t members_, blocks_;
};

struct Team {
  std::size_t members, blocks;
  std::vector<Kind> launches;
  Protocol protocol;
};

// What block b of member m does in one launch.
std::vector<Step> program(const Team& team, std::size_t m, std::size_t b, std::size_t launch) {
  const Layout memory(team.members, team.blocks);
  const Protocol& protocol = team.protocol;
  using Do = Step::Do;
  std::vector<Step> steps;
  const auto tag = static_cast<std::uint8_t>(launch + 1);
  const auto poison = static_cast<std::uint8_t>(100 + launch);
  std::size_t parity = launch % 2;
  // LL areas count launches of their own.
  std::size_t epoch = 0;
  for (std::size_t l = 0; l < launch; ++l) epoch += uses_slots(team.launches[l]) ? 1 : 0;
  std::size_t slot_parity = epoch % 2;
  const auto slot_tag = static_cast<std::uint8_t>(epoch + 1);
  if (!protocol.double_buffered) parity = slot_parity = 0;

  const auto for_peers = [&](auto f) {
    for (std::size_t k = 1; k < team.members; ++k) f((m + k) % team.members);
  };
  const auto post = [&](std::size_t p, std::size_t block, std::size_t phase) {
    steps.push_back({Do::post, memory.flag(p, block, m), static_cast<std::uint8_t>(4 * launch + phase)});
  };
  const auto await = [&](std::size_t p, std::size_t block, std::size_t phase) {
    steps.push_back({Do::await, memory.flag(m, block, p), static_cast<std::uint8_t>(4 * launch + phase)});
  };
  const auto barrier = [&](std::size_t phase) {
    for_peers([&](std::size_t p) { post(p, b, phase); });
    for_peers([&](std::size_t p) { await(p, b, phase); });
  };
  // The user's own work before the launch: new data to send, and the buffer to receive in used for something else.
  steps.push_back({Do::write, memory.source(m, b), tag});
  for_peers([&](std::size_t p) { steps.push_back({Do::write, memory.target(m, b, p), poison}); });
  switch (team.launches[launch]) {
    case Kind::window:
    case Kind::two_shot:
      steps.push_back({Do::write, memory.window(m, b, parity), tag});
      if (protocol.start_barrier) barrier(1);
      for_peers([&](std::size_t p) { steps.push_back({Do::read, memory.window(p, b, parity), tag}); });
      if (team.launches[launch] == Kind::window) break;
      for_peers([&](std::size_t p) { steps.push_back({Do::write, memory.result(p, b, parity, m), tag}); });
      if (protocol.end_barrier) barrier(2);
      for_peers([&](std::size_t p) { steps.push_back({Do::read, memory.result(m, b, parity, p), tag}); });
      break;
    case Kind::pull:
      if (protocol.start_barrier) barrier(1);
      for_peers([&](std::size_t p) { steps.push_back({Do::read, memory.source(p, b), tag}); });
      if (protocol.end_barrier) barrier(2);
      break;
    case Kind::push:
      if (protocol.start_barrier) barrier(1);
      for_peers([&](std::size_t p) { steps.push_back({Do::write, memory.target(p, b, m), tag}); });
      if (protocol.end_barrier) barrier(2);
      for_peers([&](std::size_t p) { steps.push_back({Do::read, memory.target(m, b, p), tag}); });
      break;
    case Kind::pipelined: {
      // Values of chunks tell the launch, too; so do those of steps, which only grow.
      const auto of_chunk = [&](std::size_t k) { return static_cast<std::uint8_t>(8 * (launch + 1) + k); };
      const auto await_step = [&](std::size_t k) {
        for_peers([&](std::size_t p) { steps.push_back({Do::await, memory.step(m, b, p), of_chunk(k)}); });
      };
      if (protocol.start_barrier) barrier(1);
      for (std::size_t k = 0; k <= chunks; ++k) {
        if (k < chunks) {
          for_peers([&](std::size_t p) {
            steps.push_back({Do::write, memory.chunk(p, b, k % protocol.pipeline_places, m), of_chunk(k)});
          });
        }
        if (k != 0) {
          await_step(k);
          for_peers([&](std::size_t p) {
            steps.push_back({Do::read, memory.chunk(m, b, (k - 1) % protocol.pipeline_places, p), of_chunk(k - 1)});
          });
          for_peers([&](std::size_t p) {
            steps.push_back({Do::write, memory.chunk_result(p, b, k - 1, m), of_chunk(k - 1)});
          });
        }
        for_peers([&](std::size_t p) { steps.push_back({Do::post, memory.step(p, b, m), of_chunk(k + 1)}); });
      }
      if (protocol.end_barrier) await_step(chunks + 1);
      for (std::size_t k = 0; k < chunks; ++k) {
        for_peers([&](std::size_t p) { steps.push_back({Do::read, memory.chunk_result(m, b, k, p), of_chunk(k)}); });
      }
      break;
    }
    case Kind::collected: {
      // Parts go from member 0 to the others, results the other way, each chunk's through a place of the pair in the taker's window.
      const auto of_chunk = [&](std::size_t k) { return static_cast<std::uint8_t>(8 * (launch + 1) + k); };
      const auto place = [&](std::size_t owner, std::size_t k, std::size_t of) {
        return memory.chunk(owner, b, k % protocol.pipeline_places, of);
      };
      const auto await_step = [&](std::size_t k) {
        for_peers([&](std::size_t p) { steps.push_back({Do::await, memory.step(m, b, p), of_chunk(k)}); });
      };
      const auto collect = [&](std::size_t k) {
        if (m == 0) for_peers([&](std::size_t p) { steps.push_back({Do::read, place(m, k, p), of_chunk(k)}); });
      };
      if (protocol.start_barrier) barrier(1);
      for (std::size_t k = 0; k <= chunks; ++k) {
        if (k < chunks) {
          for_peers([&](std::size_t p) {
            if (p != 0) steps.push_back({Do::write, place(p, k, m), of_chunk(k)});
          });
        }
        if (k != 0) {
          await_step(k);
          const std::size_t late = protocol.waits_to_collect ? 2 : 1;
          if (k >= late) collect(k - late);
          if (m != 0) {
            for_peers([&](std::size_t p) { steps.push_back({Do::read, place(m, k - 1, p), of_chunk(k - 1)}); });
            steps.push_back({Do::write, place(0, k - 1, m), of_chunk(k - 1)});
          }
        }
        for_peers([&](std::size_t p) { steps.push_back({Do::post, memory.step(p, b, m), of_chunk(k + 1)}); });
      }
      if (protocol.end_barrier) await_step(chunks + 1);
      collect(chunks - 1);
      break;
    }
    case Kind::pairwise: {
      const auto of_chunk = [&](std::size_t k) { return static_cast<std::uint8_t>(8 * (launch + 1) + k); };
      // All take part in step 0, then those that have another chunk for one another.
      const auto for_partners = [&](std::size_t k, auto f) {
        for_peers([&](std::size_t p) {
          if ((k == 0 && protocol.pairs_hear_all) || pair_chunks(m, p) > k) f(p);
        });
      };
      const auto write = [&](std::size_t k) {
        for_peers([&](std::size_t p) {
          if (pair_chunks(m, p) > k)
            steps.push_back({Do::write, memory.pair(m, b, parity, k % protocol.pair_places, p), of_chunk(k)});
        });
      };
      write(0);
      for (std::size_t k = 0;; ++k) {
        bool more = k == 0;
        for_partners(k, [&](std::size_t p) {
          more = true;
          steps.push_back({Do::post, memory.step(p, b, m), of_chunk(k + 1)});
        });
        if (!more) break;
        for_partners(k, [&](std::size_t p) { steps.push_back({Do::await, memory.step(m, b, p), of_chunk(k + 1)}); });
        // Threads read one chunk and write the next at the same time.
        write(k + 1);
        for_peers([&](std::size_t p) {
          if (pair_chunks(m, p) > k)
            steps.push_back({Do::read, memory.pair(p, b, parity, k % protocol.pair_places, m), of_chunk(k)});
        });
      }
      break;
    }
    case Kind::low_latency:
      for_peers([&](std::size_t p) { steps.push_back({Do::write, memory.slot(p, b, slot_parity, m), slot_tag}); });
      for_peers(
          [&](std::size_t p) { steps.push_back({Do::await_value, memory.slot(m, b, slot_parity, p), slot_tag}); });
      break;
    case Kind::shares: {
      const auto each = [&](Do what, auto place, std::uint8_t tag_of) {
        for_peers([&](std::size_t p) {
          const std::size_t owner = what == Do::write ? p : m;
          const std::size_t of = what == Do::write ? m : p;
          steps.push_back({what, place(owner, of), tag_of});
        });
      };
      const auto part = [&](std::size_t owner, std::size_t of) { return memory.slot(owner, b, slot_parity, of); };
      const auto result = [&](std::size_t owner, std::size_t of) {
        return protocol.results_apart ? memory.second_slot(owner, b, slot_parity, of)
                                      : memory.slot(owner, b, slot_parity, of);
      };
      const auto result_tag = static_cast<std::uint8_t>(slot_tag + (protocol.results_apart ? 0 : 50));
      each(Do::write, part, slot_tag);
      each(Do::await_value, part, slot_tag);
      each(Do::write, result, result_tag);
      each(Do::await_value, result, result_tag);
      break;
    }
    case Kind::pushed: {
      const auto of_chunk = [&](std::size_t k) { return static_cast<std::uint8_t>(8 * (launch + 1) + k); };
      const std::size_t places = protocol.push_places;
      if (protocol.start_barrier) barrier(1);
      for (std::size_t k = 0; k < chunks; ++k) {
        for_peers([&](std::size_t p) {
          if (m != 0 && p != 0) return;
          if (m == 0) {
            steps.push_back({Do::await, memory.step(m, b, p), of_chunk(k + 1)});
            steps.push_back({Do::read, memory.chunk(m, b, k % places, p), of_chunk(k)});
          } else {
            if (k >= places && protocol.waits_to_push)
              steps.push_back({Do::await, memory.step(m, b, p), of_chunk(k + 1 - places)});
            steps.push_back({Do::write, memory.chunk(p, b, k % places, m), of_chunk(k)});
          }
          steps.push_back({Do::post, memory.step(p, b, m), of_chunk(k + 1)});
        });
      }
      break;
    }
    case Kind::ring: {
      const auto of_chunk = [&](std::size_t k) { return static_cast<std::uint8_t>(8 * (launch + 1) + k); };
      const std::size_t n = team.members, next = (m + 1) % n, before = (m + n - 1) % n;
      const std::size_t complete = n - 1, end = protocol.ring_results ? 2 * n - 2 : n - 1,
                        places = protocol.ring_places;
      std::size_t sent = 0, received = 0, placed = 0, taken = 0;
      // Shard s starts at member s + 1; in how many hops this one sees it, at first.
      const auto shard_at = [&](std::size_t hop) { return (m + 2 * n - 1 - hop % n) % n; };
      if (protocol.start_barrier) barrier(1);
      for (std::size_t round = 0; round < protocol.ring_rounds; ++round) {
        for (std::size_t each = 0; each < (end + 1) * protocol.ring_chunks; ++each) {
          const std::size_t hop = each / protocol.ring_chunks;
          const bool from_window = hop != 0 && hop <= complete, into_window = hop < complete;
          if (hop != 0) steps.push_back({Do::await, memory.step(m, b, before), of_chunk(++received)});
          if (into_window && ++placed > places && protocol.waits_to_push)
            steps.push_back({Do::await, memory.step(m, b, next), of_chunk(placed - places)});
          if (from_window) {
            steps.push_back({Do::read, memory.chunk(m, b, taken % places, before), of_chunk(taken + 1)});
            ++taken;
          }
          if (hop > complete)
            steps.push_back({Do::read, memory.chunk_result(m, b, shard_at(hop), before), of_chunk(received)});
          if (hop < end) {
            ++sent;
            const std::size_t to = into_window ? memory.chunk(next, b, (placed - 1) % places, m)
                                               : memory.chunk_result(next, b, shard_at(hop), m);
            steps.push_back({Do::write, to, of_chunk(sent)});
            steps.push_back({Do::post, memory.step(next, b, m), of_chunk(sent)});
          }
          if (from_window) steps.push_back({Do::post, memory.step(before, b, m), of_chunk(taken)});
        }
      }
      break;
    }
    case Kind::broadcast:  // from member 0; who sends no data sends a token
      for_peers([&](std::size_t p) {
        if (m == 0) {
          steps.push_back({Do::write, memory.slot(p, b, slot_parity, m), slot_tag});
        } else if (b == 0 && protocol.tokens) {
          post(p, 0, 1);
        }
      });
      for_peers([&](std::size_t p) {
        if (p == 0) {
          steps.push_back({Do::await_value, memory.slot(m, b, slot_parity, p), slot_tag});
        } else if (b == 0 && protocol.tokens) {
          await(p, 0, 1);
        }
      });
      break;
  }
  return steps;
}

// A write that is not visible to others yet. One that releases follows all its block's earlier ones; others come in any
// order, but before their kernel ends.
struct Pending {
  std::uint8_t place, value, release;
};
struct BlockState {
  std::uint8_t launch = 0, step = 0;
  std::vector<Pending> pending;
};
struct State {
  std::vector<std::uint8_t> memory;
  std::vector<BlockState> blocks;  // [member][block]

  [[nodiscard]] std::string key() const {
    std::string text(memory.begin(), memory.end());
    for (const auto& block : blocks) {
      text += static_cast<char>(block.launch);
      text += static_cast<char>(block.step);
      for (const auto& one : block.pending) {
        text += static_cast<char>(one.place);
        text += static_cast<char>(one.value);
      }
      text += '\xff';
    }
    return text;
  }
};

class Checker {
 public:
  explicit Checker(const Team& team) : team_(team) {
    for (std::size_t m = 0; m < team.members; ++m)
      for (std::size_t b = 0; b < team.blocks; ++b) {
        programs_.emplace_back();
        for (std::size_t l = 0; l < team.launches.size(); ++l) programs_.back().push_back(program(team, m, b, l));
      }
  }

  // What is wrong with the protocol, if anything.
  std::optional<std::string> check() {
    State first;
    first.memory.assign(Layout(team_.members, team_.blocks).size(), 0);
    first.blocks.resize(programs_.size());
    advance(first);
    std::deque<State> todo{first};
    seen_.insert(first.key());
    while (!todo.empty()) {
      const State now = std::move(todo.back());
      todo.pop_back();
      if (const auto wrong = misread(now)) return wrong;
      bool stuck = true, over = true;
      for (std::size_t i = 0; i < now.blocks.size(); ++i) {
        const BlockState& block = now.blocks[i];
        over = over && block.launch == team_.launches.size() && block.pending.empty();
        for (std::size_t k = 0; k < block.pending.size(); ++k) {
          const Pending one = block.pending[k];
          if (k != 0 && one.release != 0 && team_.protocol.releases) continue;
          bool first_there = true;  // writes of one block to one place stay in order
          for (std::size_t j = 0; j < k; ++j) first_there = first_there && block.pending[j].place != one.place;
          if (!first_there) continue;
          State next = now;
          next.memory[one.place] = one.value;
          next.blocks[i].pending.erase(next.blocks[i].pending.begin() + static_cast<std::ptrdiff_t>(k));
          stuck = false;
          visit(next, todo);
        }
        if (const Step* const step = current(now, i); step != nullptr && step->what == Step::Do::read) {
          State next = now;
          ++next.blocks[i].step;  // reading ends some time
          stuck = false;
          visit(next, todo);
        }
      }
      if (stuck && !over) return "a hang";
    }
    return std::nullopt;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  void visit(State& next, std::deque<State>& todo) {
    advance(next);
    if (seen_.insert(next.key()).second) todo.push_back(next);
  }

  [[nodiscard]] const Step* current(const State& state, std::size_t i) const {
    const BlockState& block = state.blocks[i];
    if (block.launch == team_.launches.size()) return nullptr;
    const auto& steps = programs_[i][block.launch];
    return block.step == steps.size() ? nullptr : &steps[block.step];
  }

  // While a block reads, what it reads must be of its launch.
  [[nodiscard]] std::optional<std::string> misread(const State& state) const {
    for (std::size_t i = 0; i < state.blocks.size(); ++i) {
      const Step* const step = current(state, i);
      if (step == nullptr) continue;
      const unsigned found = state.memory[step->place];
      const std::string where = "block " + std::to_string(i % team_.blocks) + " of member " +
                                std::to_string(i / team_.blocks) + " in launch " +
                                std::to_string(state.blocks[i].launch) + ": " + std::to_string(found) + " instead of " +
                                std::to_string(step->value);
      if (step->what == Step::Do::read && found != step->value) return "a wrong read by " + where;
      if (step->what == Step::Do::await_value && found > step->value) return "a message lost by " + where;
    }
    return std::nullopt;
  }

  // All that touches only a block's own state, and so commutes with what others do: done at once.
  void advance(State& state) const {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t i = 0; i < state.blocks.size(); ++i) {
        BlockState& block = state.blocks[i];
        while (const Step* const step = current(state, i)) {
          if (step->what == Step::Do::read) break;
          if (step->what == Step::Do::await && state.memory[step->place] < step->value) break;
          if (step->what == Step::Do::await_value && state.memory[step->place] != step->value) break;
          if (step->what == Step::Do::write || step->what == Step::Do::post) {
            block.pending.push_back({static_cast<std::uint8_t>(step->place), step->value,
                                     static_cast<std::uint8_t>(step->what == Step::Do::post ? 1 : 0)});
          }
          ++block.step;
          moved = true;
        }
      }
      // A member's next kernel starts when all its blocks are done, and all that they wrote is there.
      for (std::size_t m = 0; m < team_.members; ++m) {
        bool done = true;
        for (std::size_t b = 0; b < team_.blocks; ++b) {
          const std::size_t i = m * team_.blocks + b;
          const BlockState& block = state.blocks[i];
          done = done && block.launch < team_.launches.size() && current(state, i) == nullptr && block.pending.empty();
        }
        if (!done) continue;
        for (std::size_t b = 0; b < team_.blocks; ++b) {
          BlockState& block = state.blocks[m * team_.blocks + b];
          ++block.launch;
          block.step = 0;
        }
        moved = true;
      }
    }
  }

  Team team_;
  std::vector<std::vector<std::vector<Step>>> programs_;
  std::unordered_set<std::string> seen_;
};

template <class F>
void for_each_sequence(std::size_t length, F f) {
  std::vector<Kind> sequence(length);
  std::size_t all = 1;
  for (std::size_t i = 0; i < length; ++i) all *= all_kinds.size();
  for (std::size_t code = 0; code < all; ++code) {
    std::size_t rest = code;
    for (auto& kind : sequence) {
      kind = all_kinds[rest % all_kinds.size()];
      rest /= all_kinds.size();
    }
    f(sequence);
  }
}

std::string name_of(const std::vector<Kind>& sequence) {
  static constexpr const char* names[] = {"window",    "two-shot", "pull",      "push",   "LL",     "broadcast",
                                          "pipelined", "pairwise", "collected", "shares", "pushed", "ring"};
  std::string text;
  for (const auto kind : sequence) text += std::string(text.empty() ? "" : ", ") + names[static_cast<int>(kind)];
  return text;
}

TEST(Protocol, HoldsForTwoMembers) {
  std::size_t states = 0;
  for_each_sequence(3, [&](const std::vector<Kind>& sequence) {
    Checker checker({2, 1, sequence, {}});
    const auto wrong = checker.check();
    EXPECT_FALSE(wrong) << *wrong << " after " << name_of(sequence);
    states += checker.states();
  });
  std::printf("%zu states\n", states);
}

// The third launch uses what the first did: every pair of kinds in a row is among these.
TEST(Protocol, HoldsForThreeMembers) {
  if (CROSSLANE_TESTS_FEWER != 1) GTEST_SKIP() << "a minute with a sanitizer, and one thread alone";
  std::size_t states = 0;
  for_each_sequence(3, [&](const std::vector<Kind>& sequence) {
    if (sequence[0] != sequence[2]) return;
    // A pipeline of three has too many orders; its steps go by pairs, as those of two members do.
    if (sequence[0] == Kind::pipelined || sequence[1] == Kind::pipelined) return;
    Checker checker({3, 1, sequence, {}});
    const auto wrong = checker.check();
    EXPECT_FALSE(wrong) << *wrong << " after " << name_of(sequence);
    states += checker.states();
  });
  std::printf("%zu states\n", states);
}

// Pairs of which some have no chunk: whom a member does not wait for must be known to have started all the same.
TEST(Protocol, PairsOfThreeMembersHearOfAll) {
  if (CROSSLANE_TESTS_FEWER != 1) GTEST_SKIP() << "a minute with a sanitizer, and one thread alone";
  const std::vector<Kind> sequence{Kind::window, Kind::pairwise, Kind::window};
  const auto wrong = Checker({3, 1, sequence, {}}).check();
  EXPECT_FALSE(wrong) << *wrong;
  EXPECT_TRUE(Checker({3, 1, sequence, {.pairs_hear_all = false}}).check());
}

// In how many sequences with that kind in the middle something is wrong.
std::size_t caught_around(Kind middle, const Protocol& protocol) {
  std::size_t wrong = 0;
  for (const Kind kind : all_kinds)
    for (const Kind last : {kind, middle}) wrong += Checker({2, 1, {kind, middle, last}, protocol}).check() ? 1 : 0;
  return wrong + (Checker({2, 1, {middle, middle, middle}, protocol}).check() ? 1 : 0);
}

// Whether launches of that kind alone go wrong: other kinds beside them would go wrong by themselves.
bool caught_alone(Kind kind, const Protocol& protocol) {
  return Checker({2, 1, {kind, kind, kind}, protocol}).check().has_value();
}

TEST(Protocol, HoldsWhereOneMemberCollects) {
  EXPECT_EQ(caught_around(Kind::collected, {}), 0U);
  // Its own launches are kept apart by their steps; the barrier at the start is for other kinds, which are wrong without it anyway.
  EXPECT_TRUE(caught_alone(Kind::collected, {.end_barrier = false}));
  EXPECT_TRUE(caught_alone(Kind::collected, {.releases = false}));
  EXPECT_TRUE(caught_alone(Kind::collected, {.pipeline_places = 1}));
  EXPECT_TRUE(caught_alone(Kind::collected, {.waits_to_collect = false}));
}

TEST(Protocol, HoldsForSharesInTwoFlights) {
  EXPECT_EQ(caught_around(Kind::shares, {}), 0U);
  // Who waits for one of two peers has not seen yet what came from the other.
  const std::vector<Kind> three{Kind::low_latency, Kind::shares, Kind::low_latency};
  EXPECT_FALSE(Checker({3, 1, three, {}}).check());
  EXPECT_TRUE(Checker({3, 1, three, {.double_buffered = false}}).check());
  EXPECT_TRUE(Checker({3, 1, three, {.results_apart = false}}).check());
}

TEST(Protocol, HoldsForPushedMoves) {
  for (const std::size_t places : {1, 2, 3}) EXPECT_EQ(caught_around(Kind::pushed, {.push_places = places}), 0U);
  EXPECT_TRUE(caught_alone(Kind::pushed, {.start_barrier = false}));
  EXPECT_TRUE(caught_alone(Kind::pushed, {.releases = false}));
  EXPECT_TRUE(caught_alone(Kind::pushed, {.waits_to_push = false}));
  const std::vector<Kind> three{Kind::window, Kind::pushed, Kind::window};
  EXPECT_FALSE(Checker({3, 1, three, {}}).check());
}

// Twice the same, and others before and behind, whose windows are the ring's: for them is the barrier at its start.
TEST(Protocol, HoldsForRings) {
  const auto checked = [](std::vector<Kind> sequence, const Protocol& protocol) {
    return Checker({3, 1, std::move(sequence), protocol}).check();
  };
  const std::vector<Kind> twice{Kind::ring, Kind::ring};
  for (const bool results : {true, false}) {
    for (const std::vector<Kind>& sequence : {twice, {Kind::pushed, Kind::ring, Kind::pushed}}) {
      const auto wrong = checked(sequence, {.ring_results = results});
      EXPECT_FALSE(wrong) << *wrong;
    }
  }
  const Protocol several{.ring_chunks = 2, .ring_places = 3, .ring_results = false};
  EXPECT_FALSE(checked(twice, several));
  EXPECT_FALSE(checked(twice, {.ring_chunks = 1, .ring_rounds = 2, .ring_places = 2, .ring_results = false}));
  // As many places as chunks of a round: all wait for one another.
  EXPECT_EQ(checked(twice, {.ring_chunks = 2, .ring_places = 2, .ring_results = false}), "a hang");
  Protocol hasty = several;
  hasty.waits_to_push = false;
  EXPECT_TRUE(checked(twice, hasty));
  EXPECT_TRUE(checked(twice, {.releases = false}));
}

TEST(Protocol, HoldsForTwoBlocks) {
  if (CROSSLANE_TESTS_FEWER != 1) GTEST_SKIP() << "a minute with a sanitizer, and one thread alone";
  std::size_t states = 0;
  for_each_sequence(2, [&](const std::vector<Kind>& sequence) {
    // Too many orders; what a pipeline does is the same for each block by itself.
    if (sequence[0] == Kind::pipelined || sequence[1] == Kind::pipelined) return;
    Checker checker({2, 2, sequence, {}});
    const auto wrong = checker.check();
    EXPECT_FALSE(wrong) << *wrong << " after " << name_of(sequence);
    states += checker.states();
  });
  std::printf("%zu states\n", states);
}

TEST(Protocol, ProtocolsThatLackSomethingAreCaught) {
  const auto caught = [](const Protocol& protocol) {
    std::size_t wrong = 0;
    for_each_sequence(
        3, [&](const std::vector<Kind>& sequence) { wrong += Checker({2, 1, sequence, protocol}).check() ? 1 : 0; });
    return wrong;
  };
  EXPECT_EQ(caught({}), 0U);
  EXPECT_GT(caught({.double_buffered = false}), 0U);
  EXPECT_GT(caught({.tokens = false}), 0U);
  EXPECT_GT(caught({.start_barrier = false}), 0U);
  EXPECT_GT(caught({.end_barrier = false}), 0U);
  EXPECT_GT(caught({.releases = false}), 0U);
  EXPECT_GT(caught({.pipeline_places = 2}), 0U);
  EXPECT_GT(caught({.pair_places = 1}), 0U);
}

}  // namespace
}  // namespace crosslane::test
