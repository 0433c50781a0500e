// Matching stays MPI's (MPI 5.0, section 3.5): a random schedule of sends, receives with wildcards, probes, matched
// probes and cancels over several communicators, with messages in host and GPU memory mixed. The schedule runs twice,
// first in host memory; what each receive got must be what a model of the matching rules says, and the same both times.
// It must not know Crosslane.
#include "support/communicators.h"
#include "support/program.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t channels = 4;  // communicators: indices into Communicators::links
constexpr int never_sent = 1000;

/// One message of the schedule. On one channel and from one source, messages are numbered in the order of sending.
struct Message {
  int from = 0, to = 0, tag = 0, sequence = 0;
  std::size_t bytes = 0;
  bool synchronous = false;
  std::uint64_t seed = 0;
};

enum class Way { recv, irecv, probe, iprobe, mprobe, improbe, imrecv, cancelled };

/// One receive, in the order of posting. `expected` is the message that the matching rules give it.
struct Receive {
  Way way = Way::recv;
  int source = 0, tag = 0;  // world ranks; wildcards possible
  std::size_t room = 0;
  const Message* expected = nullptr;
};

/// What a receive got; equal in both runs.
using Record = std::tuple<int, int, int, int>;  // source (world), tag, sequence, bytes

/// Messages and receives of one round on one channel to one rank. With `chaos`, receives take any message of any
/// source: then only the order from each source is determined.
struct Flow {
  std::vector<Message> messages;
  std::vector<Receive> receives;
  bool chaos = false;
};

Way draw_way(Random& random) {
  constexpr std::array ways{Way::recv,   Way::irecv,  Way::irecv,   Way::irecv, Way::probe,
                            Way::iprobe, Way::mprobe, Way::improbe, Way::imrecv};
  return random.pick(ways);
}

// Every receive, in the order of posting, takes the earliest message that it matches and no earlier one took. This is
// also what MPI's arrival order gives, since messages from one source arrive in order.
bool match(Flow& flow) {
  std::vector<bool> taken(flow.messages.size());
  for (auto& receive : flow.receives) {
    if (receive.way == Way::cancelled) continue;
    std::size_t i = 0;
    for (; i < flow.messages.size(); ++i) {
      const auto& message = flow.messages[i];
      if (!taken[i] && (receive.source == MPI_ANY_SOURCE || receive.source == message.from) &&
          (receive.tag == MPI_ANY_TAG || receive.tag == message.tag))
        break;
    }
    if (i == flow.messages.size()) return false;
    taken[i] = true;
    receive.expected = &flow.messages[i];
  }
  return true;
}

Flow draw_flow(Random& random, int to, const std::vector<int>& sources) {
  Flow flow;
  flow.chaos = random.chance(25);
  std::map<int, int> sequences;
  const int count = random.between(0, 6);
  for (int i = 0; i < count; ++i) {
    Message message;
    message.from = random.pick(sources);
    message.to = to;
    // Outside chaos, a tag says who sent: a receive from any source with a given tag is then determined.
    message.tag = flow.chaos ? random.between(0, 2) : message.from * 4 + random.between(0, 2);
    message.sequence = sequences[message.from]++;
    message.bytes = random.bytes(std::size_t{1} << 19) + 2 * sizeof(int);
    message.synchronous = random.chance(20);
    message.seed = random.next();
    flow.messages.push_back(message);
  }
  std::size_t longest = 0;
  for (const auto& message : flow.messages) longest = std::max(longest, message.bytes);
  // Receives for the messages in another order, each as precise or vague as is determined.
  std::vector<int> order(flow.messages.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  if (random.chance(50)) random.shuffle(order);
  const bool any_tag_allowed = random.chance(50);
  for (const int i : order) {
    const auto& message = flow.messages[static_cast<std::size_t>(i)];
    Receive receive{draw_way(random), message.from, message.tag, longest + random.below(100), nullptr};
    if (flow.chaos)
      receive.source = MPI_ANY_SOURCE, receive.tag = MPI_ANY_TAG;
    else if (any_tag_allowed && random.chance(40))
      receive.tag = MPI_ANY_TAG;
    else if (random.chance(40))
      receive.source = MPI_ANY_SOURCE;
    flow.receives.push_back(receive);
    if (random.chance(10))
      flow.receives.push_back(
          {Way::cancelled, random.chance(50) ? MPI_ANY_SOURCE : message.from, never_sent, 100, nullptr});
  }
  // A vague receive may take what a precise one needs: then order receives as messages, precise.
  if (!match(flow)) {
    flow.receives.clear();
    for (const auto& message : flow.messages)
      flow.receives.push_back({draw_way(random), message.from, message.tag, longest, nullptr});
    match(flow);
  }
  return flow;
}

class Rank {
 public:
  explicit Rank(Program& program) : program_(program) {}

  /// Runs the schedule once; the records of all receives of this rank, in order.
  std::vector<Record> run(int rounds) {
    records_.clear();
    for (round_ = 0; round_ < rounds; ++round_) {
      Random random(mix(program_.seed, round_, 99));
      draw_round(random);
      post_sends_and_some_receives();
      complete();
    }
    CROSSLANE_STEP("the barrier after all rounds");
    polite_barrier();
    return records_;
  }

 private:
  struct Sent {
    Memory memory;
    MPI_Request request;
    std::vector<std::byte> expected;
  };
  struct Posted {
    const Flow* flow;
    const Receive* receive;
    Link link;
    Memory memory;
    std::size_t channel, position;  // of the receive in its flow
    MPI_Request request = MPI_REQUEST_NULL;
  };

  // Channel c between two ranks is their link c, where there is one; all sources of a receiver use one communicator.
  [[nodiscard]] std::optional<Link> link(std::size_t channel, int from, int to) const {
    static constexpr std::array<const char*, channels> names{"MPI_COMM_WORLD", "a duplicate", "a reversed split",
                                                             "an intercommunicator"};
    for (const auto& one : communicators_.links(from, to))
      if (one.text == names.at(channel)) return one;
    return std::nullopt;
  }

  void draw_round(Random& random) {
    flows_.assign(channels * static_cast<std::size_t>(program_.size), {});
    for (std::size_t channel = 0; channel < channels; ++channel) {
      for (int to = 0; to < program_.size; ++to) {
        std::vector<int> sources;
        for (int from = 0; from < program_.size; ++from)
          if (link(channel, from, to)) sources.push_back(from);
        const auto seed = random.next();
        if (sources.empty()) continue;
        Random own(seed);
        auto& flow = flows_[index(channel, to)] = draw_flow(own, to, sources);
        match(flow);  // again: the messages have moved
      }
    }
  }
  [[nodiscard]] std::size_t index(std::size_t channel, int to) const {
    return channel * static_cast<std::size_t>(program_.size) + static_cast<std::size_t>(to);
  }

  // Sends never block, and blocking receives come after all of this rank's sends: every awaited message will come. From
  // round to round the flows of a channel would mix, so each round ends in a barrier.
  void post_sends_and_some_receives() {
    CROSSLANE_STEP("round {}: posting", round_);
    auto& random = program_.local();
    struct Next {
      std::size_t channel;
      int to;
      std::size_t position;
    };
    std::vector<Next> flows;
    for (std::size_t channel = 0; channel < channels; ++channel)
      for (int to = 0; to < program_.size; ++to) flows.push_back({channel, to, 0});
    // This rank's part of every flow, each in order, the flows interleaved at random.
    while (!flows.empty()) {
      const auto at = random.below(flows.size());
      auto& next = flows[at];
      const auto& messages = flows_[index(next.channel, next.to)].messages;
      while (next.position < messages.size() && messages[next.position].from != program_.rank) ++next.position;
      if (next.position == messages.size()) {
        flows.erase(flows.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      send(next.channel, messages[next.position++]);
    }
  }

  void send(std::size_t channel, const Message& message) {
    auto contents = pattern(message.seed, message.bytes);
    const std::array<int, 2> head{message.from, message.sequence};
    std::memcpy(contents.data(), head.data(), sizeof head);
    Memory memory(program_.kind(), message.bytes);
    memory.write(contents);
    const auto over = *link(channel, message.from, message.to);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI((message.synchronous ? MPI_Issend : MPI_Isend)(memory.data(), static_cast<int>(message.bytes),
                                                                 MPI_BYTE, over.destination, message.tag,
                                                                 over.communicator, &request));
    sent_.push_back({std::move(memory), request, std::move(contents)});
  }

  void complete() {
    // Receives of one channel in order; channels interleaved at random.
    std::vector<std::pair<std::size_t, std::size_t>> positions;
    for (std::size_t channel = 0; channel < channels; ++channel) positions.emplace_back(channel, 0);
    std::vector<std::map<std::size_t, Record>> records(channels);  // by the order of posting
    posted_.clear();
    while (!positions.empty()) {
      const auto at = program_.local().below(positions.size());
      auto& [channel, position] = positions[at];
      const auto& flow = flows_[index(channel, program_.rank)];
      if (position == flow.receives.size()) {
        positions.erase(positions.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const auto& receive = flow.receives[position];
      CROSSLANE_STEP("round {}: receive {} of channel {}, way {}, source {}, tag {}{}", round_, position, channel,
                     static_cast<int>(receive.way), receive.source, receive.tag, flow.chaos ? ", any message" : "");
      start(channel, position++, records[channel]);
    }
    CROSSLANE_STEP("round {}: completing {} receives", round_, posted_.size());
    std::vector<std::size_t> order(posted_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    program_.local().shuffle(order);
    for (const auto i : order) {
      auto& posted = posted_[i];
      MPI_Status status;
      polite_wait(posted.request, &status);
      records[posted.channel][posted.position] = check(posted, status);
    }
    CROSSLANE_STEP("round {}: completing {} sends", round_, sent_.size());
    for (auto& one : sent_) {
      polite_wait(one.request);
      CROSSLANE_CHECK(one.memory.read() == one.expected, "a send changed its buffer");
    }
    sent_.clear();
    for (std::size_t channel = 0; channel < channels; ++channel) {
      std::vector<Record> flow;
      std::map<int, int> next;  // by source
      for (const auto& [position, record] : records[channel]) {
        const auto [source, tag, sequence, bytes] = record;
        if (flows_[index(channel, program_.rank)].chaos)
          CROSSLANE_CHECK(sequence == next[source]++, "message {} from {} overtook another", sequence, source);
        flow.push_back(record);
      }
      if (flows_[index(channel, program_.rank)].chaos) std::sort(flow.begin(), flow.end());
      records_.insert(records_.end(), flow.begin(), flow.end());
    }
    posted_.clear();
    polite_barrier();
  }

  void start(std::size_t channel, std::size_t position, std::map<std::size_t, Record>& records) {
    const auto& flow = flows_[index(channel, program_.rank)];
    const auto& receive = flow.receives[position];
    const auto any =
        link(channel, receive.expected != nullptr ? receive.expected->from : flow.messages.front().from, program_.rank);
    Posted posted{&flow, &receive, *any, Memory(program_.kind(), receive.room), channel, position, MPI_REQUEST_NULL};
    posted.memory.write(std::vector<std::byte>(receive.room, std::byte{0x33}));
    const int source =
        receive.source == MPI_ANY_SOURCE ? MPI_ANY_SOURCE : link(channel, receive.source, program_.rank)->source;
    const auto communicator = posted.link.communicator;
    const int room = static_cast<int>(receive.room);
    void* const data = posted.memory.data();
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0;
    switch (receive.way) {
      case Way::recv:
        CROSSLANE_MPI(MPI_Recv(data, room, MPI_BYTE, source, receive.tag, communicator, &status));
        break;
      case Way::irecv:
        CROSSLANE_MPI(MPI_Irecv(data, room, MPI_BYTE, source, receive.tag, communicator, &posted.request));
        break;
      case Way::probe:
      case Way::iprobe:
        if (receive.way == Way::probe)
          CROSSLANE_MPI(MPI_Probe(source, receive.tag, communicator, &status));
        else
          for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Iprobe(source, receive.tag, communicator, &flag, &status));
        CROSSLANE_MPI(MPI_Recv(data, room, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, communicator, &status));
        break;
      case Way::mprobe:
        CROSSLANE_MPI(MPI_Mprobe(source, receive.tag, communicator, &message, &status));
        CROSSLANE_MPI(MPI_Mrecv(data, room, MPI_BYTE, &message, &status));
        break;
      case Way::improbe:
      case Way::imrecv:
        for (; flag == 0; sched_yield())
          CROSSLANE_MPI(MPI_Improbe(source, receive.tag, communicator, &flag, &message, &status));
        if (receive.way == Way::improbe)
          CROSSLANE_MPI(MPI_Mrecv(data, room, MPI_BYTE, &message, &status));
        else
          CROSSLANE_MPI(MPI_Imrecv(data, room, MPI_BYTE, &message, &posted.request));
        break;
      case Way::cancelled:
        CROSSLANE_MPI(MPI_Irecv(data, room, MPI_BYTE, source, receive.tag, communicator, &posted.request));
        CROSSLANE_MPI(MPI_Cancel(&posted.request));
        polite_wait(posted.request, &status);
        CROSSLANE_MPI(MPI_Test_cancelled(&status, &flag));
        CROSSLANE_CHECK(flag != 0, "a receive that nothing matches was not cancelled");
        CROSSLANE_CHECK(posted.memory.read() == std::vector<std::byte>(receive.room, std::byte{0x33}),
                        "a cancelled receive was written");
        return;
    }
    if (posted.request == MPI_REQUEST_NULL)
      records[position] = check(posted, status);
    else
      posted_.push_back(std::move(posted));
  }

  // The contents name their message; it must be the one that matching says, at the right place in its source's order.
  Record check(const Posted& posted, const MPI_Status& status) {
    int bytes = 0;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    const auto contents = posted.memory.read();
    std::array<int, 2> head{-1, -1};
    std::memcpy(head.data(), contents.data(), std::min(contents.size(), sizeof head));
    const auto found = std::find_if(posted.flow->messages.begin(), posted.flow->messages.end(),
                                    [&](const Message& one) { return one.from == head[0] && one.sequence == head[1]; });
    if (found == posted.flow->messages.end()) {
      report_failure(fmt::format("a receive got no message of its flow: source {}, tag {}, {} bytes", status.MPI_SOURCE,
                                 status.MPI_TAG, bytes));
      return {-1, status.MPI_TAG, -1, bytes};
    }
    CROSSLANE_CHECK(status.MPI_TAG == found->tag && static_cast<std::size_t>(bytes) == found->bytes,
                    "the status says tag {}, {} bytes of a message with tag {}, {} bytes", status.MPI_TAG, bytes,
                    found->tag, found->bytes);
    auto expected = pattern(found->seed, found->bytes);
    std::memcpy(expected.data(), head.data(), sizeof head);
    expected.resize(contents.size(), std::byte{0x33});
    CROSSLANE_CHECK(contents == expected, "the contents of message {} from {}", found->sequence, found->from);
    if (!posted.flow->chaos) {
      CROSSLANE_CHECK(&*found == posted.receive->expected,
                      "matched message {} from {} (tag {}), expected {} from {} (tag {})", found->sequence, found->from,
                      found->tag, posted.receive->expected->sequence, posted.receive->expected->from,
                      posted.receive->expected->tag);
      CROSSLANE_CHECK(status.MPI_SOURCE == posted.link.source, "the status says source {}, expected {}",
                      status.MPI_SOURCE, posted.link.source);
    }
    return {found->from, found->tag, found->sequence, bytes};
  }

  Program& program_;
  Communicators communicators_;
  int round_ = 0;
  std::vector<Flow> flows_;
  std::vector<Sent> sent_;
  std::vector<Posted> posted_;
  std::vector<Record> records_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_matching");
  {
    const auto rounds = static_cast<int>(program.option("cases", 40));
    const auto memory = program.memory();
    Rank rank(program);
    program.set_memory("host");
    const auto on_the_host = rank.run(rounds);
    program.set_memory(memory);
    const auto with_gpu = rank.run(rounds);
    CROSSLANE_CHECK(on_the_host.size() == with_gpu.size(), "{} and {} receives", on_the_host.size(), with_gpu.size());
    for (std::size_t i = 0; i < std::min(on_the_host.size(), with_gpu.size()); ++i)
      CROSSLANE_CHECK(on_the_host[i] == with_gpu[i], "receive {} differs from the run in host memory", i);
  }
  return program.finish();
}
