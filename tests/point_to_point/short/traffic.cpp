// Cases of messages from any rank to any, over every communicator; see cases.h.
#include "point_to_point/short/cases.h"
#include "point_to_point/short/complete.h"
#include "point_to_point/short/draw.h"
#include "point_to_point/short/transfer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

// Which message each vague receive got: that of its source and tag, in the order of the source.
void assign(const Ring& ring, std::deque<Incoming>& receives, std::deque<Message>& messages) {
  std::map<std::pair<std::string, int>, int> next;  // of a group's source the least tag that may come
  for (auto& one : receives) {
    if (one.message != nullptr) continue;
    const auto found = std::ranges::find_if(messages, [&](const Message& message) {
      return message.to == ring.rank() && message.link.text == one.group && message.tag == one.status.MPI_TAG &&
             message.link.source == one.status.MPI_SOURCE;
    });
    if (found == messages.end()) {
      report_failure(fmt::format("case {}: a vague receive over {} got a message of source {}, tag {}",
                                 ring.case_number, one.group, one.status.MPI_SOURCE, one.status.MPI_TAG));
      if (one.way == Way::persistent) CROSSLANE_MPI(MPI_Request_free(&one.request));
      continue;
    }
    auto& least = next[{one.group, one.status.MPI_SOURCE}];
    CROSSLANE_CHECK(found->tag >= least, "case {}: message {} from {} overtook another, way {}", ring.case_number,
                    found->tag, found->from, static_cast<int>(one.way));
    least = found->tag + 1;
    one.message = &*found;
  }
}

}  // namespace

void traffic(Ring& ring) {
  auto& random = ring.shared();
  auto& local = ring.local();
  const bool vague = random.chance(40);  // some groups are received from any source with any tag
  const auto seed = random.next();
  std::deque<Message> messages;
  for (int i = 0, count = random.between(2, 24); i < count; ++i) {
    const int from = random.between(0, ring.size() - 1), to = random.between(0, ring.size() - 1);
    messages.push_back(draw_message(ring, random, from, to, i, vague));
  }
  ring.step(fmt::format("{} messages", messages.size()));
  const auto any_of = [&](const Message& message) {
    return vague && Random(mix(seed, std::hash<std::string>{}(message.link.text), message.to)).chance(60);
  };
  std::vector<Message*> mine;
  for (auto& message : messages)
    if (message.to == ring.rank()) mine.push_back(&message);
  local.shuffle(mine);
  std::deque<Incoming> receives;
  const auto receive_one = [&](Message& message, bool blocking) {
    const bool any = any_of(message);
    const auto room = longest + local.below(100);
    auto& one = any ? receives.emplace_back(ring, message.link.text, room) : receives.emplace_back(ring, message);
    one.receive(ring, message.link, blocking);
  };
  const auto before = local.below(mine.size() + 1);
  for (std::size_t i = 0; i < before; ++i) receive_one(*mine[i], false);
  ring.sleep();
  std::deque<Outgoing> sends;
  for (auto& message : messages)
    if (message.from == ring.rank()) sends.emplace_back(ring, message).start(local);
  ring.sleep();
  for (std::size_t i = before; i < mine.size(); ++i) receive_one(*mine[i], true);
  ring.step("completing");
  complete_all(local, receives, sends);
  ring.step("checking");
  assign(ring, receives, messages);
  for (auto& one : receives)
    if (one.message != nullptr) one.check(ring);
  polite_barrier();  // what was freed has arrived
  for (auto& one : sends) one.end(ring);
}

void one_way(Ring& ring) {
  auto& random = ring.shared();
  auto& local = ring.local();
  if (ring.size() == 1) return;
  const int from = random.between(0, ring.size() - 1);
  const int to = (from + random.between(1, ring.size() - 1)) % ring.size();
  std::deque<Message> messages;
  for (int i = 0, count = random.between(1, 30); i < count; ++i)
    messages.push_back(draw_message(ring, random, from, to, i, false));
  ring.step(fmt::format("{} messages from {} to {}", messages.size(), from, to));
  std::deque<Incoming> receives;
  std::deque<Outgoing> sends;
  for (auto& message : messages) {
    if (ring.rank() == from) {
      auto& one = sends.emplace_back(ring, message);
      const auto& buffer = one.buffer;
      const auto way = local.below(10);
      ring.sleep();
      if (way >= 6) {
        one.start(local);
        continue;
      }
      CROSSLANE_MPI((way < 4 ? MPI_Send : MPI_Ssend)(buffer.address(), buffer.count(), buffer.type(),
                                                     message.link.destination, message.tag, message.link.communicator));
      // It is free now: what is read later would be wrong.
      if (local.chance(50)) one.buffer.scramble(local.next());
    } else if (ring.rank() == to) {
      ring.sleep();
      auto& one = receives.emplace_back(ring, message);
      one.receive(ring, message.link, true);
      // A synchronous send may wait for more than to be matched.
      if (one.handle != MPI_MESSAGE_NULL) one.receive_matched();
    }
  }
  complete_all(local, receives, sends);
  for (auto& one : receives) one.check(ring);
  receives.clear();  // their memory goes while the sender may be busy
  polite_barrier();
  for (auto& one : sends) one.end(ring);
}

void blocking_sends(Ring& ring) {
  auto& random = ring.shared();
  auto& local = ring.local();
  std::deque<Message> messages;
  for (int i = 0, count = random.between(2, 16); i < count; ++i) {
    const int from = random.between(0, ring.size() - 1), to = random.between(0, ring.size() - 1);
    messages.push_back(draw_message(ring, random, from, to, i, false));
  }
  ring.step(fmt::format("{} blocking sends", messages.size()));
  std::vector<char> attached(messages.size() * (longest + MPI_BSEND_OVERHEAD + 64));
  CROSSLANE_MPI(MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size())));
  std::deque<Incoming> receives;
  for (auto& message : messages)
    if (message.to == ring.rank()) receives.emplace_back(ring, message).receive(ring, message.link, false);
  polite_barrier();
  std::deque<Outgoing> sends;
  std::vector<Item> items;
  for (auto& message : messages) {
    if (message.from != ring.rank()) continue;
    auto& one = sends.emplace_back(ring, message);
    const auto& buffer = one.buffer;
    const auto& link = message.link;
    static constexpr std::array blocking{MPI_Send, MPI_Ssend, MPI_Rsend, MPI_Bsend};
    static constexpr std::array started{MPI_Irsend, MPI_Ibsend};
    const auto way = local.below(blocking.size() + started.size());
    if (way < blocking.size()) {
      CROSSLANE_MPI(blocking.at(way)(buffer.address(), buffer.count(), buffer.type(), link.destination, message.tag,
                                     link.communicator));
      if (local.chance(50)) one.buffer.scramble(local.next());
    } else {
      CROSSLANE_MPI(started.at(way - blocking.size())(buffer.address(), buffer.count(), buffer.type(), link.destination,
                                                      message.tag, link.communicator, &one.request));
      items.push_back(item(one));
    }
  }
  ring.sleep();
  for (auto& one : receives) items.push_back(item(one));
  complete_all(local, std::move(items));
  for (auto& one : receives) one.check(ring);
  for (auto& one : sends) one.end(ring);
  polite_barrier();
  void* address = nullptr;
  int bytes = 0;
  CROSSLANE_MPI(MPI_Buffer_detach(&address, &bytes));
}

}  // namespace crosslane::tests
