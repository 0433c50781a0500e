// The engine under many threads (MPI_THREAD_MULTIPLE): random task graphs over words, requests, timers and a helper.
// Built with CROSSLANE_SANITIZE=thread this is the race check.
#include "engine/engine.h"
#include "engine/helper_thread.h"
#include "fake_mpi.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace crosslane::engine;

std::uint64_t seed_of_this_run() {
  if (const char* given = std::getenv("CROSSLANE_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  return std::random_device{}();
}

/// A graph whose node i may depend on nodes before it. Plain members are published by `word` alone, so that a missing
/// fence is a race for the sanitizer.
struct Node {
  std::vector<std::size_t> needs;
  enum class Kind { plain, request, timer, helper, external } kind = Kind::plain;
  MPI_Request request{};
  std::uint64_t value = 0;             // 1 + the sum of what it needs
  std::atomic<std::uint64_t> word{0};  // 1: value is written
  std::atomic<int> runs{0};
};

struct Graph {
  std::deque<Node> nodes;

  static void compute(Graph& graph, std::size_t index) {
    Node& node = graph.nodes[index];
    node.value = 1;
    for (const std::size_t need : node.needs) node.value += graph.nodes[need].value;
    node.runs.fetch_add(1);
    node.word.store(1, std::memory_order_release);
  }

  [[nodiscard]] std::vector<Completion> needs_of(std::size_t index) const {
    std::vector<Completion> all;
    for (const std::size_t need : nodes[index].needs) all.push_back(Completion::of(nodes[need].word, 1));
    return all;
  }
};

Task<> step(const Graph& graph, std::size_t need) { co_await Completion::of(graph.nodes[need].word, 1); }

Task<> run_node(Graph& graph, std::size_t index) {
  Node& node = graph.nodes[index];
  if (index % 2 == 0) {
    co_await Completion::when_all(graph.needs_of(index));
  } else {
    for (const std::size_t need : node.needs) co_await step(graph, need);
  }
  if (node.kind == Node::Kind::request) {
    const int code = co_await Completion::of(&node.request);
    EXPECT_EQ(code, crosslane::mpi::success);
  }
  if (node.kind == Node::Kind::timer) co_await Completion::after(std::chrono::microseconds(50));
  Graph::compute(graph, index);
}

void random_graph(std::uint64_t seed, int threads, std::size_t count) {
  SCOPED_TRACE(testing::Message() << "CROSSLANE_TEST_SEED=" << seed);
  fake::reset();
  const auto below = fake::functions();
  std::mt19937_64 random{seed};
  Graph graph;
  graph.nodes.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Node& node = graph.nodes[i];
    if (i > 0)
      for (std::uint64_t k = random() % 4; k > 0; --k) node.needs.push_back(random() % i);
    node.kind = static_cast<Node::Kind>(random() % 5);
    if (node.kind == Node::Kind::request) fake::make(node.request, static_cast<int>(random() % 20));
  }
  {
    Engine engine{below, 60};
    HelperThread helper;
    std::vector<std::thread> ranks;
    for (int thread = 0; thread < threads; ++thread) {
      ranks.emplace_back([&, thread, order = std::mt19937_64{seed + static_cast<std::uint64_t>(thread)}]() mutable {
        std::vector<Completion> mine;
        std::vector<std::size_t> external;
        for (std::size_t i = static_cast<std::size_t>(thread); i < count; i += static_cast<std::size_t>(threads)) {
          switch (graph.nodes[i].kind) {
            case Node::Kind::helper:
              mine.push_back(helper.spawn(run_node(graph, i)));
              break;
            case Node::Kind::external:
              external.push_back(i);
              break;
            default:
              mine.push_back(engine.spawn(run_node(graph, i)));
              break;
          }
        }
        // In the order of the graph: a thread that blocks for a node that only itself could run would hang by itself.
        for (const std::size_t i : external) {
          engine.wait(Completion::when_all(graph.needs_of(i)), {.call = "an external node"});
          Graph::compute(graph, i);
        }
        std::shuffle(mine.begin(), mine.end(), order);
        for (const Completion& one : mine) engine.wait(one, {.call = "a task"});
        const std::size_t sink = order() % count;
        engine.wait(Completion::of(graph.nodes[sink].word, 1), {.call = "a sink"});
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_TRUE(engine.idle());
  }
  EXPECT_FALSE(fake::calls().overlapped);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t expected = 1;
    for (const std::size_t need : graph.nodes[i].needs) expected += graph.nodes[need].value;
    ASSERT_EQ(graph.nodes[i].value, expected) << i;
    ASSERT_EQ(graph.nodes[i].runs, 1) << i;
  }
}

TEST(EngineThreads, RandomGraphs) {
  const std::uint64_t seed = seed_of_this_run();
  std::cout << "CROSSLANE_TEST_SEED=" << seed << '\n';
  for (std::uint64_t round = 0; round < 20; ++round)
    random_graph(seed + round, 1 + static_cast<int>(round % 8), 50 + static_cast<std::size_t>(round) * 25);
}

// A ring of threads, each setting the next one's word: nothing but the 10 microsecond path.
TEST(EngineThreads, RingOfWords) {
  fake::reset();
  const auto below = fake::functions();
  constexpr std::size_t ranks = 4;
  constexpr std::uint64_t rounds = 200;
  Engine engine{below, 60};
  std::vector<std::atomic<std::uint64_t>> words(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      for (std::uint64_t round = 1; round <= rounds; ++round) {
        if (rank != 0) engine.wait(Completion::of(words[rank], round), {.call = "ring"});
        words[(rank + 1) % ranks].store(round, std::memory_order_release);
        if (rank == 0) engine.wait(Completion::of(words[0], round), {.call = "ring"});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(words[0].load(), rounds);
}

// A thread that finds another one in the engine may not come again: who is there starts its task before it leaves.
TEST(EngineThreads, WhoLeavesStartsWhatWasSpawnedMeanwhile) {
  fake::reset();
  const auto below = fake::functions();
  Engine engine{below, 60};
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> inside{false}, spawned{false}, started{false};
    const auto stay = [](std::atomic<bool>& here, const std::atomic<bool>& until) -> Task<> {
      here = true;
      while (!until) std::this_thread::yield();
      co_return;
    };
    const auto start = [](std::atomic<bool>& flag) -> Task<> {
      flag = true;
      co_return;
    };
    std::thread other([&] { engine.spawn(stay(inside, spawned)); });
    while (!inside) std::this_thread::yield();
    if (round % 2 == 0) {
      engine.spawn(start(started));
      spawned = true;
    } else {
      spawned = true;  // about when the other thread leaves
      engine.spawn(start(started));
    }
    other.join();
    EXPECT_TRUE(started) << "round " << round;
  }
}

// Many waiters, one task: whoever is in the engine runs it for all.
TEST(EngineThreads, AllWaitForOneTask) {
  fake::reset();
  const auto below = fake::functions();
  Engine engine{below, 60};
  std::atomic<std::uint64_t> word{0};
  int result = 0;
  const auto body = [](const std::atomic<std::uint64_t>& until, int& out) -> Task<> {
    co_await Completion::of(until, 8);
    out = 42;
  };
  const Completion task = engine.spawn(body(word, result));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      word.fetch_add(1, std::memory_order_release);
      engine.wait(task, {.call = "test"});
      EXPECT_EQ(result, 42);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
