// Short messages, most of 8 to 254 bytes: a few words may stand for a payload on the sender's GPU there, which every way to receive has
// to notice, on both sides of the length where that begins and ends. Random programs over every communicator, in each of which every byte,
// status and count is compared, and guards and gaps too. What a rank may be sent depends on what it received before, so each launch also
// draws how it begins: with host receives that are posted before its first GPU receive and completed after it, or with none.
//   --isendrecv 0: leave that call out, which MPICH 4.0 gets wrong by itself; --begin <n>: all ranks begin that way; --routes 1: with CROSSLANE_STATS=1, and then messages of such lengths must have gone directly.
// It must not know Crosslane.
#include "point_to_point/message.h"

#include "support/plain_mpi.h"
#include "support/sharing.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t least_token = 8, longest_token = 254;  // in bytes
constexpr std::size_t longest = 300;
constexpr int never_sent = 30000;

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
constexpr bool has_isendrecv = true;
#else
constexpr bool has_isendrecv = false;
#endif

#ifdef OMPI_MAJOR_VERSION
constexpr bool frees_failed_requests = true;  // persistent ones too
#else
constexpr bool frees_failed_requests = false;
constexpr bool receives_own_messages =
    false;  // MPICH 4.0's MPI_Recv waits forever for some messages to the rank itself
#endif

/// MPICH 5.0.2 takes some messages that do not fit for received, in host memory and with nothing preloaded.
bool loses_truncations() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  return std::string_view(version.data()).find("MPICH Version:      5") != std::string_view::npos;
}

int error_class(int result) {
  int value = MPI_SUCCESS;
  MPI_Error_class(result, &value);
  return value;
}

/// How a rank begins: what it has received, or posted, before it receives GPU memory for the first time.
enum class Begin {
  nothing,        ///< Nothing but what the test itself needs.
  blocking,       ///< Host receives that were over when their calls returned.
  other_lengths,  ///< Pending host receives with room for less or more.
  persistent,     ///< Persistent host receives, one of them started and pending.
  pending,        ///< Pending host receives of such lengths.
  pending_with_gaps,
  completed,  ///< Nonblocking host receives that have completed, or were cancelled.
  ways
};

// Each as MPI names it; `later` receives by a handle that was obtained long before.
enum class Way { recv, irecv, persistent, probe, iprobe, mprobe, mprobe_later, improbe, imrecv, imrecv_later, ways };

struct Outgoing {
  const Message* message;
  TypedBuffer buffer;
  std::vector<std::byte> contents;
  MPI_Request request = MPI_REQUEST_NULL;
  bool persistent = false;
};

struct Incoming {
  const Message* message;  // null: any of its group
  std::string group;
  int number;  // in the order of matching
  TypedBuffer buffer;
  Way way = Way::recv;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status{};
  bool told = true;  // the status
};

// One of an array of requests to complete together.
struct Item {
  MPI_Request* request;
  MPI_Status* status;  // null: ignored
  bool persistent;
};

class Rank {
 public:
  Rank(Program& program, bool tokens_only)
      : program_(program),
        tokens_only_(tokens_only),
        left_((program.rank + program.size - 1) % program.size),
        right_((program.rank + 1) % program.size) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_));
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &returning_));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(returning_, MPI_ERRORS_RETURN));
    // Where MPI_Test raises a truncation is the MPI's choice: MPICH takes MPI_COMM_WORLD or SELF.
    CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    if (loses_truncations_ && program.rank == 0)
      fmt::print(stderr, "plain MPI is wrong here: it loses truncations of short messages; left out\n");
  }
  ~Rank() {
    for (auto& standing : standing_) MPI_Request_free(&standing.request);
    MPI_Comm_free(&communicator_);
    MPI_Comm_free(&returning_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(int cases, int begin) {
    draw_beginnings(begin);
    before_any_gpu_receive();
    first_gpu_receive();
    make_standing(6, false);
    const int until = program_.shared().between(0, cases / 2);
    for (case_ = 0; case_ < cases; ++case_) {
      if (case_ == until) complete_early();
      switch (program_.shared().below(17)) {
        case 0:
        case 1:
        case 2:
        case 3:
          traffic();
          break;
        case 4:
        case 5:
        case 6:
          one_way();
          break;
        case 7:
          blocking_sends();
          break;
        case 8:
        case 9:
          exchange();
          break;
        case 10:
        case 11:
          if (!loses_truncations_) truncation();
          break;
        case 12:
          cancelled();
          break;
        case 13:
          if (program_.shared().chance(50)) flood();
          break;
        case 14:
          freed_communicator();
          break;
        case 15:
          probed_past();
          break;
        default:
          standing();
      }
      step("the barrier after a case");
      polite_barrier();
    }
    if (until >= cases) complete_early();
  }

 private:
  void step(const std::string& what) const { CROSSLANE_STEP("case {}: {}", case_, what); }
  Random& local() { return program_.local(); }
  [[nodiscard]] bool now_and_then() { return local().chance(15); }
  /// The sender loses patience meanwhile.
  void sleep() {
    if (now_and_then()) std::this_thread::sleep_for(std::chrono::microseconds{local().between(100, 7000)});
  }

  std::size_t draw_bytes(Random& random) const {
    const auto dice = random.below(100);
    const auto near = random.pick(std::array<std::size_t, 8>{7, 8, 9, 16, 253, 254, 255, 256});
    const auto token = random.between(least_token, longest_token);
    const auto other = random.below(2) == 0 ? random.below(least_token) : random.between(longest_token + 1, longest);
    if (tokens_only_ || dice < 70) return token;
    return dice < 82 ? near : other;
  }

  /// With `bytes`, MPI_BYTE without gaps on both sides; the receiver may have room for more.
  Message draw(Random& random, int from, int to, int tag, bool bytes) {
    const bool even = bytes || random.chance(50);
    Message message(random, units_, communicators_, from, to, tag, {longest, longest}, even);
    const std::size_t wanted = draw_bytes(random);
    const Unit& unit = message.sent.unit();
    if (bytes || message.sent.units().size() * unit.size > wanted) message.sent = Layout(unit);
    if (bytes || message.received.extent() > 100000) message.received = Layout(unit);
    const auto element = message.sent.units().size() * unit.size;
    message.send_count = static_cast<int>(wanted / element);
    if (message.send_count == 0 && wanted >= least_token && element <= longest) message.send_count = 1;
    message.unit_count = static_cast<std::size_t>(message.send_count) * message.sent.units().size();
    const auto to_receive = message.received.units().size();
    message.receive_count = static_cast<int>((message.unit_count + to_receive - 1) / to_receive);
    if (random.chance(40)) message.receive_count += random.between(0, bytes ? 300 : 4);
    return message;
  }

  TypedBuffer buffer_in(MemoryKind kind, Layout& layout, int count) {
    const auto offset = static_cast<std::size_t>(layout.unit().alignment) * local().below(3);
    const bool absolute = local().chance(4) && count > 0;
    return {kind, std::move(layout), count, local().next(), offset, absolute};
  }
  Outgoing outgoing(Message& message) {
    Outgoing result{&message, buffer_in(program_.kind(), message.sent, message.send_count), message.contents()};
    result.buffer.load(result.contents);
    return result;
  }
  [[nodiscard]] TypedBuffer bytes_in(MemoryKind kind, std::size_t bytes) {
    return {kind, Layout(units_.bytes()), static_cast<int>(bytes), local().next(), local().below(9)};
  }

  // ---- How it begins.

  void draw_beginnings(int begin) {
    for (int rank = 0; rank < program_.size; ++rank) {
      const auto ways = static_cast<int>(Begin::ways);
      const int drawn = program_.shared().between(0, ways - 1 + 3);  // the first more often
      const int way = begin >= 0 ? begin : drawn;
      beginnings_.push_back(way < ways ? static_cast<Begin>(way) : Begin::nothing);
    }
  }

  struct Early {
    std::size_t room, bytes;
    std::uint64_t seed;
    bool gaps;
    std::optional<TypedBuffer> buffer;
    MPI_Request request = MPI_REQUEST_NULL;
    bool persistent = false;
  };
  static constexpr int early_tag = 20000;

  [[nodiscard]] std::vector<Early> draw_early(int rank) const {
    Random random(mix(program_.seed, rank, 4711));
    const Begin begin = beginnings_.at(static_cast<std::size_t>(rank));
    std::vector<Early> all;
    if (begin == Begin::nothing || begin == Begin::completed || begin == Begin::blocking) return all;
    for (int i = begin == Begin::persistent ? 1 : random.between(1, 6); i > 0; --i) {
      std::size_t room = random.between(least_token, longest_token);
      if (begin == Begin::other_lengths) room = random.chance(50) ? random.below(least_token) : room + longest_token;
      const std::size_t bytes = random.chance(50) ? room : random.between(std::min(room, least_token), room);
      all.push_back({room,
                     bytes,
                     random.next(),
                     begin == Begin::pending_with_gaps,
                     {},
                     MPI_REQUEST_NULL,
                     begin == Begin::persistent});
    }
    return all;
  }

  void before_any_gpu_receive() {
    const Begin begin = beginnings_.at(static_cast<std::size_t>(program_.rank));
    step(fmt::format("beginning {}", static_cast<int>(begin)));
    if (begin == Begin::persistent || local().chance(50)) make_standing(3, true);
    early_ = draw_early(program_.rank);
    for (std::size_t i = 0; i < early_.size(); ++i) {
      auto& one = early_[i];
      Layout layout(units_.bytes());
      if (one.gaps) layout = spread();
      one.buffer.emplace(MemoryKind::host, std::move(layout), static_cast<int>(one.room), local().next(), 0);
      auto& buffer = *one.buffer;
      const int tag = early_tag + static_cast<int>(i);
      const int source = local().chance(30) ? MPI_ANY_SOURCE : left_;
      CROSSLANE_MPI((one.persistent ? MPI_Recv_init : MPI_Irecv)(buffer.address(), buffer.count(), buffer.type(),
                                                                 source, tag, communicator_, &one.request));
      if (one.persistent) CROSSLANE_MPI(MPI_Start(&one.request));
    }
    // Every rank sends to its right what that one receives at once.
    constexpr int at_once = 19000;
    for (int i = 0; i < 3; ++i) {
      const std::size_t bytes = 20 + 40 * static_cast<std::size_t>(i);
      const auto contents = [&](int rank) { return pattern(mix(program_.seed, rank, i, 5), bytes); };
      const auto count = static_cast<int>(bytes);
      auto out = bytes_in(program_.kind(), bytes);
      out.load(contents(program_.rank));
      MPI_Request send = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Isend(out.address(), out.count(), out.type(), right_, at_once + i, communicator_, &send));
      auto in = bytes_in(MemoryKind::host, bytes);
      MPI_Message handle = MPI_MESSAGE_NULL;
      if (begin == Begin::completed) {
        MPI_Request receive = MPI_REQUEST_NULL, vain = MPI_REQUEST_NULL;
        std::array<char, 100> memory{};
        CROSSLANE_MPI(MPI_Irecv(in.address(), count, MPI_BYTE, left_, at_once + i, communicator_, &receive));
        CROSSLANE_MPI(MPI_Irecv(memory.data(), 100, MPI_BYTE, left_, never_sent, communicator_, &vain));
        CROSSLANE_MPI(MPI_Cancel(&vain));
        polite_wait(vain);
        polite_wait(receive);
      } else if (i == 0) {
        CROSSLANE_MPI(MPI_Recv(in.address(), count, MPI_BYTE, left_, at_once + i, communicator_, MPI_STATUS_IGNORE));
      } else {
        CROSSLANE_MPI(MPI_Mprobe(left_, at_once + i, communicator_, &handle, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Mrecv(in.address(), count, MPI_BYTE, &handle, MPI_STATUS_IGNORE));
      }
      in.check_received(contents(left_), "before the first GPU receive");
      polite_wait(send);
    }
  }

  // Nobody sends what was awaited early until the receivers may have begun to take something else for it.
  void first_gpu_receive() {
    step("the first receive into GPU memory");
    for (int i = 0; i < 2; ++i) {
      const auto contents = [&](int rank) { return pattern(mix(program_.seed, rank, i, 6), 64); };
      const bool gpu = program_.device() != nullptr && program_.memory() != "host";
      auto out = bytes_in(program_.kind(), 64);
      auto in = bytes_in(gpu ? MemoryKind::device : MemoryKind::host, 64);
      out.load(contents(program_.rank));
      std::vector<MPI_Request> requests(2, MPI_REQUEST_NULL);
      const int source = i == 0 && local().chance(50) ? left_ : MPI_ANY_SOURCE;
      CROSSLANE_MPI(MPI_Irecv(in.address(), in.count(), in.type(), source, i, communicator_, &requests[0]));
      CROSSLANE_MPI(MPI_Isend(out.address(), out.count(), out.type(), right_, i, communicator_, &requests[1]));
      polite_waitall(requests);
      in.check_received(contents(left_), "the first GPU receive");
    }
    polite_barrier();
  }

  void complete_early() {
    step("completing what was posted before the first GPU receive");
    std::vector<std::pair<TypedBuffer, MPI_Request>> sends;
    auto theirs = draw_early(right_);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      auto out = bytes_in(program_.kind(), theirs[i].bytes);
      out.load(pattern(theirs[i].seed, theirs[i].bytes));
      sends.emplace_back(std::move(out), MPI_REQUEST_NULL);
      auto& [buffer, request] = sends.back();
      CROSSLANE_MPI((local().chance(30) ? MPI_Issend : MPI_Isend)(buffer.address(), buffer.count(), buffer.type(),
                                                                  right_, early_tag + static_cast<int>(i),
                                                                  communicator_, &request));
    }
    for (auto& one : early_) {
      MPI_Status status;
      complete(local(), one.request, &status, one.persistent);
      one.buffer->check_received(pattern(one.seed, one.bytes), "posted before the first GPU receive");
      check_bytes(status, one.bytes, "posted before the first GPU receive");
      if (one.persistent) CROSSLANE_MPI(MPI_Request_free(&one.request));
    }
    for (auto& [buffer, request] : sends) polite_wait(request);
    early_.clear();
  }

  static void check_bytes(const MPI_Status& status, std::size_t bytes, const std::string& what) {
    int received = -1;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_BYTE, &received));
    CROSSLANE_CHECK(received == static_cast<int>(bytes), "{}: the status tells {} bytes, expected {}", what, received,
                    bytes);
  }

  // Bytes that lie apart.
  Layout spread() {
    for (;;) {
      auto layout = Layout::random(local(), units_.bytes(), 16);
      if (layout.units().size() == 1 && layout.extent() > 1 && layout.extent() < 100) return layout;
    }
  }

  // ---- Persistent receives that are started again and again, some made before the first GPU receive.

  struct Standing {
    TypedBuffer buffer;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  static constexpr int standing_tag = 21000;
  static constexpr std::array<std::size_t, 6> rooms{254, 300, 100, 254, 16, 400};

  void make_standing(std::size_t until, bool on_host) {
    while (standing_.size() < until) {
      const auto at = standing_.size();
      auto& one = standing_.emplace_back(
          Standing{bytes_in(on_host ? MemoryKind::host : program_.kind(), rooms.at(at)), MPI_REQUEST_NULL});
      CROSSLANE_MPI(MPI_Recv_init(one.buffer.address(), one.buffer.count(), one.buffer.type(),
                                  local().chance(30) ? MPI_ANY_SOURCE : left_, standing_tag + static_cast<int>(at),
                                  communicator_, &one.request));
    }
  }

  void standing() {
    for (int turn = program_.shared().between(1, 3); turn > 0; --turn) {
      step("persistent receives, started again");
      std::vector<std::size_t> bytes;
      for (const std::size_t room : rooms) bytes.push_back(std::min(room, draw_bytes(program_.shared())));
      const auto seed = program_.shared().next();
      const bool at_once = local().chance(50);
      std::array<bool, rooms.size()> finished{};
      std::vector<MPI_Request> requests;
      if (at_once) {
        for (auto& one : standing_) requests.push_back(one.request);
        CROSSLANE_MPI(MPI_Startall(static_cast<int>(requests.size()), requests.data()));
        for (std::size_t i = 0; i < requests.size(); ++i) standing_[i].request = requests[i];
      }
      std::deque<std::pair<TypedBuffer, MPI_Request>> sends;
      for (std::size_t i = 0; i < rooms.size(); ++i) {
        auto& [out, request] = sends.emplace_back(bytes_in(program_.kind(), bytes[i]), MPI_REQUEST_NULL);
        out.load(pattern(mix(seed, program_.rank, i), bytes[i]));
        CROSSLANE_MPI((local().chance(30) ? MPI_Issend : MPI_Isend)(out.address(), out.count(), out.type(), right_,
                                                                    standing_tag + static_cast<int>(i), communicator_,
                                                                    &request));
      }
      sleep();
      // Probed before they are started: the message is no longer in MPI then.
      if (!at_once && local().chance(50))
        CROSSLANE_MPI(MPI_Probe(left_, standing_tag, communicator_, MPI_STATUS_IGNORE));
      for (std::size_t i = 0; i < standing_.size(); ++i) {
        auto& one = standing_[i];
        if (!at_once) CROSSLANE_MPI(MPI_Start(&one.request));
        if (at_once || local().chance(50)) continue;
        finish_standing(one, i, bytes[i], seed);
        finished.at(i) = true;
      }
      for (std::size_t i = 0; i < standing_.size(); ++i)
        if (!finished.at(i)) finish_standing(standing_[i], i, bytes[i], seed);
      for (auto& [buffer, request] : sends) polite_wait(request);
    }
  }

  void finish_standing(Standing& one, std::size_t at, std::size_t bytes, std::uint64_t seed) {
    MPI_Status status;
    complete(local(), one.request, &status, true);
    check_bytes(status, bytes, "a persistent receive");
    CROSSLANE_CHECK(status.MPI_SOURCE == left_ && status.MPI_TAG == standing_tag + static_cast<int>(at),
                    "a persistent receive: source {}, tag {}", status.MPI_SOURCE, status.MPI_TAG);
    one.buffer.check_received(pattern(mix(seed, left_, at), bytes), fmt::format("persistent receive {}", at));
    one.buffer.scramble(local().next());
  }

  // ---- Receiving by every way.

  Incoming incoming(Message* message, std::string group, std::size_t room) {
    return {message, std::move(group), 0,
            message == nullptr ? bytes_in(program_.kind(), room)
                               : buffer_in(program_.kind(), message->received, message->receive_count)};
  }

  /// Begins, and by some ways ends, one receive.
  void receive(Incoming& one, const Link& link, bool blocking) {
    one.way = blocking ? static_cast<Way>(local().below(static_cast<std::uint64_t>(Way::ways)))
                       : (local().chance(70) ? Way::irecv : Way::persistent);
    const bool any = one.message == nullptr;
    const int source = any || local().chance(30) ? MPI_ANY_SOURCE : link.source;
    const int tag = any ? MPI_ANY_TAG : one.message->tag;
    one.told = any || local().chance(75);
    one.number = posted_++;
    step(fmt::format("receiving by way {} from {} with tag {} over {}{}", static_cast<int>(one.way), source, tag,
                     link.text, any ? ", any message" : ""));
    const auto comm = link.communicator;
    const auto& buffer = one.buffer;
    MPI_Status probed{};
    MPI_Status* const status = one.told ? &one.status : MPI_STATUS_IGNORE;
    int flag = 0;
    switch (one.way) {
      case Way::recv:
        CROSSLANE_MPI(MPI_Recv(buffer.address(), buffer.count(), buffer.type(), source, tag, comm, status));
        break;
      case Way::irecv:
        CROSSLANE_MPI(MPI_Irecv(buffer.address(), buffer.count(), buffer.type(), source, tag, comm, &one.request));
        break;
      case Way::persistent:
        CROSSLANE_MPI(MPI_Recv_init(buffer.address(), buffer.count(), buffer.type(), source, tag, comm, &one.request));
        CROSSLANE_MPI(MPI_Start(&one.request));
        break;
      case Way::probe:
      case Way::iprobe:
        if (one.way == Way::probe)
          CROSSLANE_MPI(MPI_Probe(source, tag, comm, &probed));
        else
          for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Iprobe(source, tag, comm, &flag, &probed));
        CROSSLANE_MPI(
            MPI_Recv(buffer.address(), buffer.count(), buffer.type(), probed.MPI_SOURCE, probed.MPI_TAG, comm, status));
        break;
      case Way::mprobe:
      case Way::mprobe_later:
      case Way::imrecv_later:
        CROSSLANE_MPI(MPI_Mprobe(source, tag, comm, &one.handle, &probed));
        break;
      case Way::improbe:
      case Way::imrecv:
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Improbe(source, tag, comm, &flag, &one.handle, &probed));
        break;
      case Way::ways:
        break;
    }
    if (one.message != nullptr && one.way >= Way::probe) check_bytes(probed, one.message->contents().size(), "a probe");
    if (one.way == Way::mprobe || one.way == Way::improbe || one.way == Way::imrecv) receive_matched(one);
  }

  void receive_matched(Incoming& one) {
    const auto& buffer = one.buffer;
    if (one.way == Way::imrecv || one.way == Way::imrecv_later)
      CROSSLANE_MPI(MPI_Imrecv(buffer.address(), buffer.count(), buffer.type(), &one.handle, &one.request));
    else
      CROSSLANE_MPI(MPI_Mrecv(buffer.address(), buffer.count(), buffer.type(), &one.handle,
                              one.told ? &one.status : MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(one.handle == MPI_MESSAGE_NULL, "a matched receive leaves its message");
  }

  void check(Incoming& one) {
    if (one.way == Way::persistent) CROSSLANE_MPI(MPI_Request_free(&one.request));
    const auto what =
        fmt::format("case {}, received by way {}: {}", case_, static_cast<int>(one.way), one.message->text());
    if (one.told) one.message->check_status(one.status, one.buffer, what);
    one.buffer.check_received(one.message->contents(), what);
  }

  // ---- Completing in arrays.

  void complete_all(std::vector<Item> items) {
    local().shuffle(items);
    while (!items.empty()) {
      const auto some = local().between<std::size_t>(1, items.size());
      std::vector<Item> part(items.end() - static_cast<std::ptrdiff_t>(some), items.end());
      items.resize(items.size() - some);
      if (some == 1 || local().chance(30)) {
        for (auto& item : part)
          complete(local(), *item.request, item.status == nullptr ? MPI_STATUS_IGNORE : item.status, item.persistent);
      } else {
        complete_array(part);
      }
    }
  }

  void complete_array(std::vector<Item>& part) {
    std::vector<MPI_Request> requests;
    for (const auto& item : part) requests.push_back(*item.request);
    const bool ignored = std::ranges::all_of(part, [](const Item& item) { return item.status == nullptr; });
    const auto count = static_cast<int>(part.size());
    std::vector<MPI_Status> statuses(part.size());
    std::vector<int> indices(part.size());
    MPI_Status* const all = ignored ? MPI_STATUSES_IGNORE : statuses.data();
    int done = 0, flag = 0;
    const auto tell = [&](int index, const MPI_Status& status) {
      auto& item = part.at(static_cast<std::size_t>(index));
      if (item.status != nullptr) *item.status = status;
    };
    const auto way = local().below(6);
    if (way <= 1) {
      if (way == 0)
        CROSSLANE_MPI(MPI_Waitall(count, requests.data(), all));
      else
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Testall(count, requests.data(), &flag, all));
      for (int i = 0; i < count && !ignored; ++i) tell(i, statuses.at(static_cast<std::size_t>(i)));
    } else if (way <= 3) {
      while (done < count) {
        int index = MPI_UNDEFINED;
        MPI_Status status;
        flag = 1;
        if (way == 2)
          CROSSLANE_MPI(MPI_Waitany(count, requests.data(), &index, &status));
        else
          CROSSLANE_MPI(MPI_Testany(count, requests.data(), &index, &flag, &status));
        if (flag == 0) {
          sched_yield();
          continue;
        }
        if (index == MPI_UNDEFINED) break;
        tell(index, status);
        ++done;
      }
      CROSSLANE_CHECK_EQUAL(done, count);
    } else {
      while (done < count) {
        int some = 0;
        if (way == 4)
          CROSSLANE_MPI(MPI_Waitsome(count, requests.data(), &some, indices.data(), all));
        else
          CROSSLANE_MPI(MPI_Testsome(count, requests.data(), &some, indices.data(), all));
        if (some == MPI_UNDEFINED) break;
        for (int i = 0; i < some && !ignored; ++i)
          tell(indices.at(static_cast<std::size_t>(i)), statuses.at(static_cast<std::size_t>(i)));
        done += some;
        if (some == 0) sched_yield();
      }
      CROSSLANE_CHECK_EQUAL(done, count);
    }
    for (std::size_t i = 0; i < part.size(); ++i) *part[i].request = requests[i];
  }

  // ---- The cases.

  // Sends of every rank to any, begun by calls that do not wait; receives partly posted before, and by every way after.
  void traffic() {
    auto& random = program_.shared();
    const bool vague = random.chance(40);  // some groups are received from any source with any tag
    const auto seed = random.next();
    std::deque<Message> messages;
    for (int i = 0, count = random.between(2, 24); i < count; ++i) {
      const int from = random.between(0, program_.size - 1), to = random.between(0, program_.size - 1);
      messages.push_back(draw(random, from, to, i, vague));
    }
    step(fmt::format("{} messages", messages.size()));
    const auto any_of = [&](const Message& message) {
      return vague && Random(mix(seed, std::hash<std::string>{}(message.link.text), message.to)).chance(60);
    };
    std::vector<Message*> mine;
    for (auto& message : messages)
      if (message.to == program_.rank) mine.push_back(&message);
    local().shuffle(mine);
    std::deque<Incoming> receives;
    const auto receive_one = [&](Message* message, bool blocking) {
      const bool any = any_of(*message);
      receives.push_back(incoming(any ? nullptr : message, message->link.text, longest + local().below(100)));
      receive(receives.back(), message->link, blocking);
    };
    const auto before = local().below(mine.size() + 1);
    for (std::size_t i = 0; i < before; ++i) receive_one(mine[i], false);
    sleep();
    std::deque<Outgoing> sends;
    for (auto& message : messages)
      if (message.from == program_.rank) start(sends.emplace_back(outgoing(message)));
    sleep();
    for (std::size_t i = before; i < mine.size(); ++i) receive_one(mine[i], true);
    step("completing");
    complete_all(receives, sends);
    step("checking");
    assign(receives, messages);
    for (auto& one : receives)
      if (one.message != nullptr) check(one);
    polite_barrier();  // what was freed has arrived
    for (auto& one : sends) end(one);
  }

  void start(Outgoing& one) {
    const auto& buffer = one.buffer;
    const Message& message = *one.message;
    const auto way = local().below(10);
    if (way >= 8) {
      CROSSLANE_MPI((way == 8 ? MPI_Send_init : MPI_Ssend_init)(buffer.address(), buffer.count(), buffer.type(),
                                                                message.link.destination, message.tag,
                                                                message.link.communicator, &one.request));
      one.persistent = true;
      CROSSLANE_MPI(MPI_Start(&one.request));
      return;
    }
    CROSSLANE_MPI((way < 2 ? MPI_Issend : MPI_Isend)(buffer.address(), buffer.count(), buffer.type(),
                                                     message.link.destination, message.tag, message.link.communicator,
                                                     &one.request));
    // MPICH 4.0 forgets what it sends to the rank itself if that is freed.
    const bool to_itself = message.from == message.to;
    if (way == 7 && local().chance(50) && !to_itself) CROSSLANE_MPI(MPI_Request_free(&one.request));
  }

  void end(Outgoing& one) const {
    if (one.persistent) CROSSLANE_MPI(MPI_Request_free(&one.request));
    one.buffer.check_unchanged(fmt::format("case {}: a buffer that was sent", case_));
  }

  // Which message each vague receive got: that of its source and tag, in the order of the source.
  void assign(std::deque<Incoming>& receives, std::deque<Message>& messages) {
    std::map<std::pair<std::string, int>, int> next;  // of a group's source the least tag that may come
    for (auto& one : receives) {
      if (one.message != nullptr) continue;
      const auto found = std::ranges::find_if(messages, [&](const Message& message) {
        return message.to == program_.rank && message.link.text == one.group && message.tag == one.status.MPI_TAG &&
               message.link.source == one.status.MPI_SOURCE;
      });
      if (found == messages.end()) {
        report_failure(fmt::format("case {}: a vague receive over {} got a message of source {}, tag {}", case_,
                                   one.group, one.status.MPI_SOURCE, one.status.MPI_TAG));
        if (one.way == Way::persistent) CROSSLANE_MPI(MPI_Request_free(&one.request));
        continue;
      }
      auto& least = next[{one.group, one.status.MPI_SOURCE}];
      CROSSLANE_CHECK(found->tag >= least, "case {}: message {} from {} overtook another, way {}", case_, found->tag,
                      found->from, static_cast<int>(one.way));
      least = found->tag + 1;
      one.message = &*found;
    }
  }

  // One rank sends by calls that wait, another receives in that order.
  void one_way() {
    auto& random = program_.shared();
    if (program_.size == 1) return;
    const int from = random.between(0, program_.size - 1);
    const int to = (from + random.between(1, program_.size - 1)) % program_.size;
    std::deque<Message> messages;
    for (int i = 0, count = random.between(1, 30); i < count; ++i) messages.push_back(draw(random, from, to, i, false));
    step(fmt::format("{} messages from {} to {}", messages.size(), from, to));
    if (program_.rank == from) {
      std::deque<Outgoing> sends;
      for (auto& message : messages) {
        auto& one = sends.emplace_back(outgoing(message));
        const auto& buffer = one.buffer;
        const auto way = local().below(10);
        sleep();
        if (way >= 6) {
          start(one);
          continue;
        }
        CROSSLANE_MPI((way < 4 ? MPI_Send : MPI_Ssend)(buffer.address(), buffer.count(), buffer.type(),
                                                       message.link.destination, message.tag,
                                                       message.link.communicator));
        // It is free now: what is read later would be wrong.
        if (local().chance(50)) one.buffer.scramble(local().next());
      }
      std::vector<Item> items;
      for (auto& one : sends)
        if (one.request != MPI_REQUEST_NULL) items.push_back({&one.request, nullptr, one.persistent});
      complete_all(std::move(items));
      polite_barrier();
      for (auto& one : sends) end(one);
      return;
    }
    if (program_.rank == to) {
      std::deque<Incoming> receives;
      for (auto& message : messages) {
        sleep();
        receives.push_back(incoming(&message, message.link.text, 0));
        receive(receives.back(), message.link, true);
        // A synchronous send may wait for more than to be matched.
        if (receives.back().handle != MPI_MESSAGE_NULL) receive_matched(receives.back());
      }
      std::vector<Item> items;
      for (auto& one : receives) {
        if (one.handle != MPI_MESSAGE_NULL) receive_matched(one);
        if (one.request != MPI_REQUEST_NULL)
          items.push_back({&one.request, one.told ? &one.status : nullptr, one.way == Way::persistent});
      }
      complete_all(std::move(items));
      for (auto& one : receives) check(one);
    }
    polite_barrier();
  }

  // All receives are posted, so every mode may be used, and no call waits for long.
  void blocking_sends() {
    auto& random = program_.shared();
    std::deque<Message> messages;
    for (int i = 0, count = random.between(2, 16); i < count; ++i) {
      const int from = random.between(0, program_.size - 1), to = random.between(0, program_.size - 1);
      messages.push_back(draw(random, from, to, i, false));
    }
    step(fmt::format("{} blocking sends", messages.size()));
    std::vector<char> attached(messages.size() * (longest + MPI_BSEND_OVERHEAD + 64));
    CROSSLANE_MPI(MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size())));
    std::deque<Incoming> receives;
    for (auto& message : messages) {
      if (message.to != program_.rank) continue;
      receives.push_back(incoming(&message, message.link.text, 0));
      receive(receives.back(), message.link, false);
    }
    polite_barrier();
    std::deque<Outgoing> sends;
    std::vector<Item> items;
    for (auto& message : messages) {
      if (message.from != program_.rank) continue;
      auto& one = sends.emplace_back(outgoing(message));
      const auto& buffer = one.buffer;
      const auto& link = message.link;
      static constexpr std::array blocking{MPI_Send, MPI_Ssend, MPI_Rsend, MPI_Bsend};
      static constexpr std::array started{MPI_Irsend, MPI_Ibsend};
      const auto way = local().below(blocking.size() + started.size());
      if (way < blocking.size()) {
        CROSSLANE_MPI(blocking.at(way)(buffer.address(), buffer.count(), buffer.type(), link.destination, message.tag,
                                       link.communicator));
        if (local().chance(50)) one.buffer.scramble(local().next());
      } else {
        CROSSLANE_MPI(started.at(way - blocking.size())(buffer.address(), buffer.count(), buffer.type(),
                                                        link.destination, message.tag, link.communicator,
                                                        &one.request));
        items.push_back({&one.request, nullptr, false});
      }
    }
    sleep();
    for (auto& one : receives)
      items.push_back({&one.request, one.told ? &one.status : nullptr, one.way == Way::persistent});
    complete_all(std::move(items));
    for (auto& one : receives) check(one);
    for (auto& one : sends) end(one);
    polite_barrier();
    void* address = nullptr;
    int bytes = 0;
    CROSSLANE_MPI(MPI_Buffer_detach(&address, &bytes));
  }

  void complete_all(std::deque<Incoming>& receives, std::deque<Outgoing>& sends) {
    std::vector<Item> items;
    for (auto& one : receives) {
      if (one.handle != MPI_MESSAGE_NULL) receive_matched(one);
      if (one.request != MPI_REQUEST_NULL)
        items.push_back({&one.request, one.told ? &one.status : nullptr, one.way == Way::persistent});
    }
    for (auto& one : sends)
      if (one.request != MPI_REQUEST_NULL) items.push_back({&one.request, nullptr, one.persistent});
    complete_all(std::move(items));
  }

  // A probe finds a longer message behind short ones, which are received afterwards, by every way and in any order.
  void probed_past() {
    auto& random = program_.shared();
    const int count = random.between(1, 6);
    std::deque<Message> messages;
    for (int from = 0; from < program_.size; ++from) {
      for (int tag = 0; tag <= count; ++tag) {
        const bool last = tag == count;
        auto& message = messages.emplace_back(draw(random, from, (from + 1) % program_.size, tag, last));
        message.link = {communicator_, from, message.to, "a duplicate"};
        if (!last) continue;
        message.unit_count = random.between(longest_token + 1, longest);  // one byte each
        message.send_count = message.receive_count = static_cast<int>(message.unit_count);
      }
    }
    step(fmt::format("a probe past {} messages", count));
    std::deque<Outgoing> sends;
    std::vector<Message*> mine;
    for (auto& message : messages) {
      if (message.from == program_.rank) start(sends.emplace_back(outgoing(message)));
      if (message.to == program_.rank) mine.push_back(&message);
    }
    sleep();
    MPI_Status status;
    CROSSLANE_MPI(MPI_Probe(local().chance(30) ? MPI_ANY_SOURCE : left_, count, communicator_, &status));
    check_bytes(status, mine.back()->unit_count, "a probe past others");
    local().shuffle(mine);
    std::deque<Incoming> receives;
    for (auto* const message : mine) {
      receives.push_back(incoming(message, message->link.text, 0));
      receive(receives.back(), message->link, local().chance(50));
    }
    complete_all(receives, sends);
    for (auto& one : receives) check(one);
    polite_barrier();
    for (auto& one : sends) end(one);
  }

  // Every rank sends to its right and receives from its left in one call.
  void exchange() {
    auto& random = program_.shared();
    const auto way = random.below(has_isendrecv && program_.option("isendrecv", 1) != 0 ? 4 : 2);
    const bool replaces = way % 2 == 1;
    std::deque<Message> messages;
    const auto bytes = draw_bytes(random);
    for (int from = 0; from < program_.size; ++from)
      messages.push_back(draw(random, from, (from + 1) % program_.size, from, replaces));
    step(fmt::format("an exchange, way {}", way));
    auto& out = messages[static_cast<std::size_t>(program_.rank)];
    auto& in = messages[static_cast<std::size_t>(left_)];
    const int source = local().chance(30) ? MPI_ANY_SOURCE : left_;
    const auto comm = communicator_;
    MPI_Status status{};
    [[maybe_unused]] MPI_Request request = MPI_REQUEST_NULL;
    sleep();
    if (!replaces) {
      auto sent = outgoing(out);
      auto received = incoming(&in, "", 0);
      const auto &from = sent.buffer, &to = received.buffer;
      received.told = way != 0 || local().chance(70);
      if (way == 0)
        CROSSLANE_MPI(MPI_Sendrecv(from.address(), from.count(), from.type(), right_, out.tag, to.address(), to.count(),
                                   to.type(), source, in.tag, comm, received.told ? &status : MPI_STATUS_IGNORE));
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
      if (way == 2) {
        CROSSLANE_MPI(MPI_Isendrecv(from.address(), from.count(), from.type(), right_, out.tag, to.address(),
                                    to.count(), to.type(), source, in.tag, comm, &request));
        complete(local(), request, &status);
      }
#endif
      in.link.source = left_;  // on this communicator
      received.status = status;
      check(received);
      end(sent);
      return;
    }
    auto memory = bytes_in(program_.kind(), bytes);
    memory.load(pattern(mix(out.seed, 3), bytes));
    const bool told = local().chance(70);
    if (way == 1)
      CROSSLANE_MPI(MPI_Sendrecv_replace(memory.address(), memory.count(), memory.type(), right_, out.tag, source,
                                         in.tag, comm, told ? &status : MPI_STATUS_IGNORE));
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
    if (way == 3) {
      CROSSLANE_MPI(MPI_Isendrecv_replace(memory.address(), memory.count(), memory.type(), right_, out.tag, source,
                                          in.tag, comm, &request));
      complete(local(), request, told ? &status : MPI_STATUS_IGNORE);
    }
#endif
    memory.check_received(pattern(mix(in.seed, 3), bytes), "an exchange that replaces");
    if (told) check_bytes(status, bytes, "an exchange that replaces");
  }

  // Some receives are too short; messages of the same tag that follow are whole.
  void truncation() {
    auto& random = program_.shared();
    struct Cut {
      std::size_t bytes, room;
      std::uint64_t seed;
    };
    std::vector<Cut> cuts;
    for (int i = random.between(1, 5); i > 0; --i) {
      Cut cut{std::max<std::size_t>(draw_bytes(random), 1), 0, random.next()};
      cut.room = random.chance(40) ? cut.bytes + random.below(20) : random.below(cut.bytes);
      cuts.push_back(cut);
    }
    step(fmt::format("{} messages, some of them truncated", cuts.size()));
    constexpr int tag = 5;
    std::deque<std::pair<TypedBuffer, MPI_Request>> sends;
    for (const auto& cut : cuts) {
      auto& [out, request] = sends.emplace_back(bytes_in(program_.kind(), cut.bytes), MPI_REQUEST_NULL);
      out.load(pattern(mix(cut.seed, program_.rank), cut.bytes));
      CROSSLANE_MPI((local().chance(30) ? MPI_Issend : MPI_Isend)(out.address(), out.count(), out.type(), right_, tag,
                                                                  returning_, &request));
    }
    for (const auto& cut : cuts) {
      const bool fits = cut.bytes <= cut.room;
      sleep();
      auto in = bytes_in(program_.kind(), cut.room);
      const auto way = local().below(8);
      const auto what = fmt::format("way {}: {} bytes into {} in {}", way, cut.bytes, cut.room, in.text());
      MPI_Status status{};
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Message handle = MPI_MESSAGE_NULL;
      int result = MPI_SUCCESS;
      const int source = local().chance(30) ? MPI_ANY_SOURCE : left_;
      const int any_tag = local().chance(30) ? MPI_ANY_TAG : tag;
      const int room = in.count();
      if (way == 4 || way == 5) {
        CROSSLANE_MPI(MPI_Mprobe(source, any_tag, returning_, &handle, &status));
        check_bytes(status, cut.bytes, "a probe of what may be cut");
      } else if (way == 6) {
        CROSSLANE_MPI(MPI_Probe(source, any_tag, returning_, &status));
        check_bytes(status, cut.bytes, "a probe of what may be cut");
      }
      switch (way) {
        case 0:
        case 6:
          result = MPI_Recv(in.address(), room, in.type(), source, any_tag, returning_, &status);
          break;
        case 1:
          result = MPI_Recv(in.address(), room, in.type(), source, any_tag, returning_, MPI_STATUS_IGNORE);
          break;
        case 4:
          result = MPI_Mrecv(in.address(), room, in.type(), &handle, &status);
          break;
        case 5:
          CROSSLANE_MPI(MPI_Imrecv(in.address(), room, in.type(), &handle, &request));
          result = MPI_Wait(&request, &status);
          break;
        case 7:
          CROSSLANE_MPI(MPI_Recv_init(in.address(), room, in.type(), source, any_tag, returning_, &request));
          CROSSLANE_MPI(MPI_Start(&request));
          result = MPI_Wait(&request, &status);
          CROSSLANE_CHECK(request != MPI_REQUEST_NULL || (!fits && frees_failed_requests),
                          "{}: the persistent request is null", what);
          if (request != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&request));
          break;
        default:
          CROSSLANE_MPI(MPI_Irecv(in.address(), room, in.type(), source, any_tag, returning_, &request));
          if (way == 2) {
            result = MPI_Wait(&request, &status);
          } else {
            for (int flag = 0; flag == 0 && result == MPI_SUCCESS; sched_yield())
              result = MPI_Test(&request, &flag, &status);
          }
      }
      CROSSLANE_CHECK(error_class(result) == (fits ? MPI_SUCCESS : MPI_ERR_TRUNCATE), "{}: {}", what,
                      describe_mpi_error(result));
      CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "{}: the request is not null", what);
      if (!fits) continue;  // any bytes of the buffer may have been written; its guards are looked at
      in.check_received(pattern(mix(cut.seed, left_), cut.bytes), what);
      if (way != 1) check_bytes(status, cut.bytes, what);
    }
    for (auto& [buffer, request] : sends) polite_wait(request);
  }

  void cancelled() {
    step("cancelling");
    auto first = bytes_in(program_.kind(), 100), second = bytes_in(program_.kind(), 300);
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    CROSSLANE_MPI(MPI_Irecv(first.address(), 100, MPI_BYTE, left_, never_sent, communicator_, requests.data()));
    CROSSLANE_MPI(
        MPI_Recv_init(second.address(), 300, MPI_BYTE, MPI_ANY_SOURCE, never_sent, communicator_, &requests[1]));
    CROSSLANE_MPI(MPI_Start(&requests[1]));
    for (auto& request : requests) {
      MPI_Status status;
      int flag = 0;
      CROSSLANE_MPI(MPI_Cancel(&request));
      polite_wait(request, &status);
      CROSSLANE_MPI(MPI_Test_cancelled(&status, &flag));
      CROSSLANE_CHECK(flag != 0, "a receive that nothing matches was not cancelled");
    }
    CROSSLANE_MPI(MPI_Request_free(&requests[1]));
    first.check_unchanged("a cancelled receive");
    second.check_unchanged("a cancelled persistent receive");
    // A cancelled send is received unless it was indeed cancelled, of which the receiver is told.
    const auto bytes = draw_bytes(program_.shared());
    const auto seed = program_.shared().next();
    auto out = bytes_in(program_.kind(), bytes), in = bytes_in(program_.kind(), bytes);
    out.load(pattern(mix(seed, program_.rank), bytes));
    MPI_Request send = MPI_REQUEST_NULL;
    MPI_Status status;
    int mine = 0, theirs = 0;
    CROSSLANE_MPI(MPI_Isend(out.address(), out.count(), out.type(), right_, 7, communicator_, &send));
    CROSSLANE_MPI(MPI_Cancel(&send));
    polite_wait(send, &status);
    CROSSLANE_MPI(MPI_Test_cancelled(&status, &mine));
    std::vector<MPI_Request> telling(2, MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Irecv(&theirs, 1, MPI_INT, left_, 8, communicators_.control(), &telling[0]));
    CROSSLANE_MPI(MPI_Isend(&mine, 1, MPI_INT, right_, 8, communicators_.control(), &telling[1]));
    polite_waitall(telling);
    if (theirs == 0) {
      CROSSLANE_MPI(MPI_Recv(in.address(), in.count(), in.type(), left_, 7, communicator_, &status));
      in.check_received(pattern(mix(seed, left_), bytes), "a send that could not be cancelled");
      check_bytes(status, bytes, "a send that could not be cancelled");
    }
  }

  // More messages under way than anything is likely to keep an account of, received in any order.
  void flood() {
    auto& random = program_.shared();
    const std::size_t count = random.between<std::size_t>(260, 420);
    const auto seed = random.next();
    const bool posted_first = random.chance(30);
    const bool synchronous = random.chance(30);
    constexpr std::size_t apart = 320;
    step(fmt::format("{} messages at once", count));
    std::vector<std::size_t> bytes, order;
    for (std::size_t i = 0; i < count; ++i) {
      bytes.push_back(draw_bytes(random));
      order.push_back(i);
    }
    local().shuffle(order);
    const auto noise = local().next();
    auto image = pattern(noise, count * apart), to_send = image;
    for (std::size_t i = 0; i < count; ++i) {
      const auto out = pattern(mix(seed, program_.rank, i), bytes[i]), in = pattern(mix(seed, left_, i), bytes[i]);
      std::ranges::copy(out, to_send.begin() + static_cast<std::ptrdiff_t>(i * apart));
      std::ranges::copy(in, image.begin() + static_cast<std::ptrdiff_t>(i * apart));
    }
    Memory sent(program_.kind(), count * apart), received(program_.kind(), count * apart);
    sent.write(to_send);
    received.write(pattern(noise, count * apart));
    std::vector<MPI_Request> sends(count, MPI_REQUEST_NULL), receives(count, MPI_REQUEST_NULL);
    const auto post = [&](std::size_t i, int source) {
      CROSSLANE_MPI(MPI_Irecv(received.as<char>() + i * apart, static_cast<int>(bytes[i]), MPI_BYTE, source,
                              static_cast<int>(i), communicator_, &receives[i]));
    };
    if (posted_first)
      for (const std::size_t i : order) post(i, left_);
    for (std::size_t i = 0; i < count; ++i)
      CROSSLANE_MPI((synchronous ? MPI_Issend : MPI_Isend)(sent.as<char>() + i * apart, static_cast<int>(bytes[i]),
                                                           MPI_BYTE, right_, static_cast<int>(i), communicator_,
                                                           &sends[i]));
    sleep();
    polite_barrier();
    if (!posted_first) {
      for (const std::size_t i : order) {
        const auto way = local().below(4);
        const int n = static_cast<int>(bytes[i]), tag = static_cast<int>(i);
        void* const at = received.as<char>() + i * apart;
        MPI_Message handle = MPI_MESSAGE_NULL;
        if (way == 0) {
          CROSSLANE_MPI(MPI_Recv(at, n, MPI_BYTE, left_, tag, communicator_, MPI_STATUS_IGNORE));
        } else if (way == 1) {
          CROSSLANE_MPI(MPI_Mprobe(left_, tag, communicator_, &handle, MPI_STATUS_IGNORE));
          CROSSLANE_MPI(MPI_Imrecv(at, n, MPI_BYTE, &handle, &receives[i]));
        } else {
          post(i, MPI_ANY_SOURCE);
        }
      }
    }
    if (local().chance(50))
      CROSSLANE_MPI(MPI_Waitall(static_cast<int>(count), receives.data(), MPI_STATUSES_IGNORE));
    else
      polite_waitall(receives);
    polite_waitall(sends);
    const auto now = received.read();
    for (std::size_t i = 0; i < count; ++i) {
      const auto from = static_cast<std::ptrdiff_t>(i * apart);
      CROSSLANE_CHECK(std::equal(now.begin() + from, now.begin() + from + apart, image.begin() + from),
                      "case {}: message {} of {}, {} bytes from {} into {} memory", case_, i, count, bytes[i], left_,
                      name(received.kind()));
    }
    CROSSLANE_CHECK(sent.read() == to_send, "case {}: sends changed their buffer", case_);
  }

  // Messages outlive the handle of their communicator; another may have its value.
  void freed_communicator() {
    step("a communicator that is freed while messages are under way");
    const auto bytes = draw_bytes(program_.shared());
    const auto seed = program_.shared().next();
    std::deque<TypedBuffer> out, in;
    std::vector<MPI_Request> requests;
    for (int i = 0; i < 3; ++i) {
      MPI_Comm comm = MPI_COMM_NULL;
      CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
      auto& to_send = out.emplace_back(bytes_in(program_.kind(), bytes));
      auto& to_receive = in.emplace_back(bytes_in(program_.kind(), bytes));
      to_send.load(pattern(mix(seed, program_.rank, i), bytes));
      MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
      const bool late = local().chance(50);
      if (!late)
        CROSSLANE_MPI(MPI_Irecv(to_receive.address(), to_receive.count(), to_receive.type(), left_, 1, comm, &receive));
      CROSSLANE_MPI(MPI_Isend(to_send.address(), to_send.count(), to_send.type(), right_, 1, comm, &send));
      if (late) {
        if (local().chance(50)) CROSSLANE_MPI(MPI_Probe(left_, 1, comm, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Irecv(to_receive.address(), to_receive.count(), to_receive.type(), left_, 1, comm, &receive));
      }
      CROSSLANE_MPI(MPI_Comm_free(&comm));
      requests.push_back(send);
      requests.push_back(receive);
    }
    polite_waitall(requests);
    for (int i = 0; i < 3; ++i)
      in[static_cast<std::size_t>(i)].check_received(pattern(mix(seed, left_, i), bytes), "over a freed communicator");
  }

  Program& program_;
  const bool tokens_only_;
  const bool loses_truncations_ = loses_truncations();
  int left_, right_;
  Units units_;
  Communicators communicators_;
  MPI_Comm communicator_ = MPI_COMM_NULL, returning_ = MPI_COMM_NULL;
  std::vector<Begin> beginnings_;
  std::vector<Early> early_;
  std::deque<Standing> standing_;
  int case_ = -1;
  int posted_ = 0;
};

// Standard error goes to a file while one lives.
class Captured {
 public:
  Captured() : file_(std::tmpfile()), kept_(dup(STDERR_FILENO)) { dup2(fileno(file_), STDERR_FILENO); }
  /// Ends it; what was written meanwhile.
  std::string end() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    std::rewind(file_);
    std::string text;
    for (int byte = std::fgetc(file_); byte != EOF; byte = std::fgetc(file_)) text.push_back(static_cast<char>(byte));
    std::fclose(file_);
    return text;
  }

 private:
  std::FILE* file_;
  int kept_;
};

// All calls by this route, of the table of CROSSLANE_STATS.
int calls_by_route(const std::string& text, int rank, const std::string& wanted) {
  const auto who = fmt::format("[rank {}] info: calls with GPU memory", rank);
  std::istringstream lines(text.substr(std::min(text.find(who), text.size())));
  std::string line, call, route;
  std::getline(lines, line);
  int all = 0;
  while (std::getline(lines, line) && line.starts_with("  ")) {
    std::istringstream words(line);
    int calls = 0;
    if (words >> call >> route >> calls && route == wanted) all += calls;
  }
  return all;
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_short");
  const bool routes = program.option("routes", 0) != 0;
  Rank(program, routes)
      .run(static_cast<int>(program.option("cases", 30)), static_cast<int>(program.option("begin", -1)));
  if (!routes) return program.finish();
  // Short copies are not worth a turn, nor does a rank alone send to anybody.
  const bool none = take_turns(MPI_COMM_WORLD) || program.size == 1;
  std::optional<Captured> captured;
  const int status = program.finish([&] { captured.emplace(); });
  const auto told = captured->end();
  const auto direct = calls_by_route(told, program.rank, "direct");
  CROSSLANE_CHECK(none ? direct == 0 : direct > 0, "{} calls with such messages went directly:\n{}", direct, told);
  return failures() > 0 ? 1 : status;
}
