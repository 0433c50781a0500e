// Searches by exhaustive interleaving: every state that can be reached, once. It must not know any protocol.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace crosslane::test {

/// What a search has seen. A state has a key() that tells it from all others.
class Interleavings {
 public:
  /// `follow(state, next)` adds what may come next; `judge(state, nothing_follows)` tells what is wrong, if anything, which is returned.
  template <class State, class Follow, class Judge>
  std::optional<std::string> search(const State& first, Follow follow, Judge judge) {
    std::deque<State> todo{first};
    seen_.insert(first.key());
    while (!todo.empty()) {
      const State now = todo.back();
      todo.pop_back();
      std::vector<State> next;
      follow(now, next);
      if (const std::optional<std::string> wrong = judge(now, next.empty())) return wrong;
      for (const State& one : next)
        if (seen_.insert(one.key()).second) todo.push_back(one);
    }
    return std::nullopt;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  std::unordered_set<std::string> seen_;
};

/// A protocol in which all begins with State{}. Its class has follow(state, next) and judge(state, nothing_follows), as above.
template <class Protocol, class State>
class Searched {
 public:
  /// What goes wrong, if anything.
  std::optional<std::string> check() {
    return seen_.search(
        State{},
        [this](const State& now, std::vector<State>& next) { static_cast<const Protocol*>(this)->follow(now, next); },
        Protocol::judge);
  }
  [[nodiscard]] std::size_t states() const { return seen_.states(); }

 private:
  Interleavings seen_;
};

}  // namespace crosslane::test
