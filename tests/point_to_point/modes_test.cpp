// Every way to send against every way to receive, with random datatypes, sizes and kinds of memory on both sides
// (MPI 5.0, sections 3.4 to 3.10). Each case is one message, or a few over persistent requests; sends stay pending over
// later cases. It must not know Crosslane: the same program passes over a plain MPI in host memory.
// --only <MPI procedure>: only cases that call it.
#include "point_to_point/message.h"
#include "support/plain_mpi.h"
#include "support/sharing.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <limits>
#include <list>
#include <optional>
#include <utility>

namespace crosslane::tests {
namespace {

enum class Send {
  send,
  ssend,
  bsend,
  rsend,
  isend,
  issend,
  ibsend,
  irsend,
  send_init,
  ssend_init,
  bsend_init,
  rsend_init,
  sendrecv,
  isend_freed
};
constexpr std::array<const char*, 14> send_names{"Send",       "Ssend",      "Bsend",    "Rsend",       "Isend",
                                                 "Issend",     "Ibsend",     "Irsend",   "Send_init",   "Ssend_init",
                                                 "Bsend_init", "Rsend_init", "Sendrecv", "Isend, freed"};
enum class Receive {
  recv,
  irecv,
  recv_init,
  mprobe_mrecv,
  mprobe_imrecv,
  improbe_mrecv,
  improbe_imrecv,
  probe_recv,
  iprobe_recv,
  sendrecv,
  irecv_freed
};
constexpr std::array<const char*, 11> receive_names{
    "Recv",        "Irecv",        "Recv_init", "Mprobe, Mrecv", "Mprobe, Imrecv", "Improbe, Mrecv", "Improbe, Imrecv",
    "Probe, Recv", "Iprobe, Recv", "Sendrecv",  "Irecv, freed"};

template <class Mode>
bool is_one_of(Mode mode, std::initializer_list<Mode> modes) {
  for (const auto one : modes)
    if (one == mode) return true;
  return false;
}

/// The ways that call one procedure; none at all of one side: any.
struct Only {
  std::vector<Send> sends;
  std::vector<Receive> receives;
};

Only ways_of(const std::string& procedure) {
  if (procedure.empty()) return {};
  if (procedure == "MPI_Start" || procedure == "MPI_Startall")
    return {{Send::send_init, Send::ssend_init, Send::bsend_init, Send::rsend_init}, {Receive::recv_init}};
  if (procedure == "MPI_Request_free") return {{Send::isend_freed}, {Receive::irecv_freed}};
  // Names are of the procedures that the way calls, separated by commas.
  const auto called_by = [&](const std::string& names) {
    return (", " + names + ",").find(", " + procedure.substr(4) + ",") != std::string::npos;
  };
  Only only;
  for (std::size_t i = 0; i < send_names.size(); ++i)
    if (called_by(send_names.at(i))) only.sends.push_back(static_cast<Send>(i));
  for (std::size_t i = 0; i < receive_names.size(); ++i)
    if (called_by(receive_names.at(i))) only.receives.push_back(static_cast<Receive>(i));
  if (only.sends.empty() && only.receives.empty()) {
    fmt::print(stderr, "point_to_point_modes: no case calls {}\n", procedure);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return only;
}

bool persistent(Send mode) {
  return is_one_of(mode, {Send::send_init, Send::ssend_init, Send::bsend_init, Send::rsend_init});
}
bool synchronous(Send mode) { return is_one_of(mode, {Send::ssend, Send::issend, Send::ssend_init}); }
bool buffered(Send mode) { return is_one_of(mode, {Send::bsend, Send::ibsend, Send::bsend_init}); }
bool ready(Send mode) { return is_one_of(mode, {Send::rsend, Send::irsend, Send::rsend_init}); }
bool blocking(Send mode) { return is_one_of(mode, {Send::send, Send::ssend, Send::rsend, Send::sendrecv}); }

/// The memory of MPI_Bsend; detached (which waits for delivery) and attached again when it could be full.
class BufferedSends {
 public:
  explicit BufferedSends(MemoryKind kind) : memory_(kind, std::size_t{8} << 20) { attach(); }
  ~BufferedSends() { detach(); }
  BufferedSends(const BufferedSends&) = delete;
  BufferedSends& operator=(const BufferedSends&) = delete;
  static constexpr std::size_t most_bytes = std::size_t{1} << 18;

  void reserve(std::size_t bytes) {
    // Far more than MPI_Pack_size gives for these datatypes, and the MPI's own overhead.
    const auto needed = 2 * bytes + MPI_BSEND_OVERHEAD + 4096;
    if (used_ + needed > memory_.size()) {
      detach();
      attach();
    }
    used_ += needed;
  }

 private:
  void attach() {
    used_ = 0;
    CROSSLANE_MPI(MPI_Buffer_attach(memory_.data(), static_cast<int>(memory_.size())));
  }
  void detach() {
    void* memory = nullptr;
    int bytes = 0;
    CROSSLANE_MPI(MPI_Buffer_detach(&memory, &bytes));
    CROSSLANE_CHECK(memory == memory_.data(), "MPI_Buffer_detach gave another buffer");
  }
  Memory memory_;
  std::size_t used_ = 0;
};

struct Case {
  Message message;
  Send send;
  Receive receive;
  int rounds;
  bool any_source, any_tag;
  int number;

  [[nodiscard]] std::string text() const {
    return fmt::format("case {}: {} to {}, {} rounds, {}", number, send_names.at(static_cast<std::size_t>(send)),
                       receive_names.at(static_cast<std::size_t>(receive)), rounds, message.text());
  }
  [[nodiscard]] int source() const { return any_source ? MPI_ANY_SOURCE : message.link.source; }
  [[nodiscard]] int tag() const { return any_tag ? MPI_ANY_TAG : message.tag; }
};

/// What the plain MPI of this machine cannot do.
struct Defects {
  bool bsend_init_once = plain_mpi_buffered_sends_start_once();  // asked before a buffer is attached
  std::vector<std::size_t> taken_for_truncated = plain_mpi_lengths_taken_for_truncated();
};

Case draw_case(Random& random, const Units& units, const Communicators& communicators, int ranks, int number,
               const Only& only, const Defects& defects, std::size_t in_pieces) {
  const int from = random.between(0, ranks - 1);
  int to = random.chance(8) ? from : random.between(0, ranks - 1);
  auto send = static_cast<Send>(random.below(send_names.size()));
  auto receive = static_cast<Receive>(random.below(receive_names.size()));
  if (!only.sends.empty() || !only.receives.empty()) {
    if (!only.sends.empty()) send = random.pick(only.sends);
    // A ready send needs a receive of another kind, and one to self may need another send: neither here.
    if (!only.receives.empty() && (only.sends.empty() || random.chance(50))) {
      receive = random.pick(only.receives);
      if (only.sends.empty()) send = random.chance(50) ? Send::isend : Send::send;
    }
    if (to == from) to = (from + 1) % ranks;
  }
  const bool posted_first = is_one_of(receive, {Receive::irecv, Receive::recv_init, Receive::irecv_freed});
  if (ready(send) && !posted_first) receive = random.chance(50) ? Receive::irecv : Receive::recv_init;
  if (from == to) {
    // One rank does both: the send must not block, and the receive is posted first where it can be.
    if (blocking(send) || ready(send)) send = random.chance(50) ? Send::isend : Send::issend;
    if (receive == Receive::sendrecv) receive = Receive::recv;
  }
  int rounds = receive == Receive::irecv_freed || send == Send::isend_freed ? 1 : random.between(1, 3);
  if (defects.bsend_init_once && send == Send::bsend_init) rounds = 1;
  // Three rounds of 16 MiB tell no more than one of them.
  std::size_t most = rounds == 1 ? std::size_t{16} << 20 : std::size_t{1} << 20;
  // MPICH 4.0 loses all but the first fragment of a longer message into a receive whose request was freed.
  if (receive == Receive::irecv_freed) most = 4096;
  if (buffered(send)) most = std::min(most, BufferedSends::most_bytes);
#ifdef MPICH_VERSION
  const bool plain = buffered(send);  // MPICH 4.0 sends a wrong length where a buffered send has gaps
#else
  const bool plain = false;
#endif
  // Never both: from another sender, a later case's message may be the first to arrive.
  const auto wildcard = random.below(100);
  Message message(random, units, communicators, from, to, number, {most, in_pieces}, plain);
  const auto& wrong = defects.taken_for_truncated;
  const auto bytes = message.unit_count * message.sent.unit().size;
  // What tells that such a receive is over is what has come, which so few bytes of the buffer may be like before.
  constexpr std::size_t telling = 8;
  if (receive == Receive::irecv_freed && bytes < telling) receive = Receive::irecv;
  if (synchronous(send) && std::find(wrong.begin(), wrong.end(), bytes) != wrong.end()) message.receive_without_gaps();
  return {std::move(message), send, receive, rounds, wildcard < 15, wildcard >= 85, number};
}

/// A send that is complete when its request is; its buffer must not be touched before, and must not change.
struct Pending {
  std::string text;
  TypedBuffer buffer;
  MPI_Request request;

  void finish(Random& random) {
    CROSSLANE_STEP("completing the send of {}", text);
    MPI_Status status;
    complete(random, request, &status);
    CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "{}: a completed send's request is not null", text);
    buffer.check_unchanged(text);
  }
};

class Rank {
 public:
  explicit Rank(Program& program)
      : program_(program),
        only_(ways_of(program.text_option("only", ""))),
        in_pieces_(program.device() == nullptr ? std::numeric_limits<std::size_t>::max()
                                               : static_cast<std::size_t>(program.option(
                                                     "in-pieces", static_cast<std::int64_t>(std::min<std::size_t>(
                                                                      longest_in_pieces(), std::int64_t{1} << 40))))) {}

  void run(int cases) {
    for (int number = 0; number < cases; ++number) {
      Random random(mix(program_.seed, number));
      Case one = draw_case(random, units_, communicators_, program_.size, number, only_, defects_, in_pieces_);
      CROSSLANE_STEP("{}", one.text());
      if (one.message.from == program_.rank && one.message.to == program_.rank)
        to_self(one);
      else if (one.message.from == program_.rank)
        send(one);
      else if (one.message.to == program_.rank)
        receive(one);
      if (pending_.size() > 6) finish_one();
    }
    while (!pending_.empty()) finish_one();
    CROSSLANE_STEP("the barrier after all cases");
    polite_barrier();
    for (const auto& buffer : freed_) buffer.check_unchanged("a send buffer whose request was freed");
  }

 private:
  void finish_one() {
    auto one = std::next(pending_.begin(), static_cast<std::ptrdiff_t>(program_.local().below(pending_.size())));
    one->finish(program_.local());
    pending_.erase(one);
  }

  void send(Case& one) {
    auto buffer = one.message.send_buffer(program_);
    CROSSLANE_STEP("{}; sends {}", one.text(), buffer.text());
    auto request = prepare(one, buffer);
    for (int round = 0; round < one.rounds; ++round) {
      buffer.load(one.message.contents(round));
      if (ready(one.send)) await(communicators_, one.message.to, one.number);
      if (buffered(one.send)) buffered_.reserve(buffer.bytes());
      start(one, buffer, request);
      if (one.send == Send::isend_freed) {
        CROSSLANE_MPI(MPI_Request_free(&request));
        freed_.push_back(std::move(buffer));
        return;
      }
      if (persistent(one.send)) {
        complete(program_.local(), request, MPI_STATUS_IGNORE, true);
        CROSSLANE_CHECK(request != MPI_REQUEST_NULL, "{}: completion freed a persistent request", one.text());
      } else if (request != MPI_REQUEST_NULL) {
        if (round == one.rounds - 1) {
          pending_.push_back({one.text(), std::move(buffer), request});
          return;
        }
        complete(program_.local(), request);
      }
      buffer.check_unchanged(one.text());
    }
    if (request != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  // The request of a persistent send, else null.
  MPI_Request prepare(const Case& one, const TypedBuffer& buffer) const {
    MPI_Request request = MPI_REQUEST_NULL;
    const auto init = [&](auto function) {
      CROSSLANE_MPI(function(buffer.address(), buffer.count(), buffer.type(), one.message.link.destination,
                             one.message.tag, one.message.link.communicator, &request));
    };
    if (one.send == Send::send_init) init(MPI_Send_init);
    if (one.send == Send::ssend_init) init(MPI_Ssend_init);
    if (one.send == Send::bsend_init) init(MPI_Bsend_init);
    if (one.send == Send::rsend_init) init(MPI_Rsend_init);
    return request;
  }

  void start(const Case& one, const TypedBuffer& buffer, MPI_Request& request) {
    const auto& link = one.message.link;
    const auto block = [&](auto function) {
      CROSSLANE_MPI(function(buffer.address(), buffer.count(), buffer.type(), link.destination, one.message.tag,
                             link.communicator));
    };
    const auto post = [&](auto function) {
      CROSSLANE_MPI(function(buffer.address(), buffer.count(), buffer.type(), link.destination, one.message.tag,
                             link.communicator, &request));
    };
    switch (one.send) {
      case Send::send:
        block(MPI_Send);
        break;
      case Send::ssend:
        block(MPI_Ssend);
        break;
      case Send::bsend:
        block(MPI_Bsend);
        break;
      case Send::rsend:
        block(MPI_Rsend);
        break;
      case Send::isend:
      case Send::isend_freed:
        post(MPI_Isend);
        break;
      case Send::issend:
        post(MPI_Issend);
        break;
      case Send::ibsend:
        post(MPI_Ibsend);
        break;
      case Send::irsend:
        post(MPI_Irsend);
        break;
      case Send::sendrecv:
        CROSSLANE_MPI(MPI_Sendrecv(buffer.address(), buffer.count(), buffer.type(), link.destination, one.message.tag,
                                   nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, link.communicator, MPI_STATUS_IGNORE));
        break;
      default:
        if (program_.local().chance(50))
          CROSSLANE_MPI(MPI_Start(&request));
        else
          CROSSLANE_MPI(MPI_Startall(1, &request));
        break;
    }
  }

  void receive(Case& one) {
    auto buffer = one.message.receive_buffer(program_);
    CROSSLANE_STEP("{}; receives {}", one.text(), buffer.text());
    MPI_Request request = MPI_REQUEST_NULL;
    for (int round = 0; round < one.rounds; ++round) {
      post(one, buffer, request, round);
      if (ready(one.send)) tell(communicators_, one.message.from, one.number);
      take(one, buffer, request, round);
    }
    if (request != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  // What a receive does before the message needs to be sent.
  void post(const Case& one, TypedBuffer& buffer, MPI_Request& request, int round) {
    const auto communicator = one.message.link.communicator;
    if (is_one_of(one.receive, {Receive::irecv, Receive::irecv_freed}))
      CROSSLANE_MPI(
          MPI_Irecv(buffer.address(), buffer.count(), buffer.type(), one.source(), one.tag(), communicator, &request));
    if (one.receive != Receive::recv_init) return;
    if (round == 0)
      CROSSLANE_MPI(MPI_Recv_init(buffer.address(), buffer.count(), buffer.type(), one.source(), one.tag(),
                                  communicator, &request));
    CROSSLANE_MPI(MPI_Start(&request));
  }

  void take(const Case& one, TypedBuffer& buffer, MPI_Request& request, int round) {
    MPI_Status status;
    bool has_status = false;
    const auto choose_status = [&] { return (has_status = program_.local().chance(80)) ? &status : MPI_STATUS_IGNORE; };
    const auto recv = [&](int source, int tag) {
      CROSSLANE_MPI(MPI_Recv(buffer.address(), buffer.count(), buffer.type(), source, tag,
                             one.message.link.communicator, choose_status()));
    };
    switch (one.receive) {
      case Receive::recv:
        recv(one.source(), one.tag());
        break;
      case Receive::irecv:
        complete(program_.local(), request, choose_status());
        CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "{}: a completed receive's request is not null", one.text());
        break;
      case Receive::recv_init:
        complete(program_.local(), request, choose_status(), true);
        CROSSLANE_CHECK(request != MPI_REQUEST_NULL, "{}: completion freed a persistent request", one.text());
        break;
      case Receive::irecv_freed:
        CROSSLANE_MPI(MPI_Request_free(&request));
        await_contents(one, buffer);
        break;
      case Receive::sendrecv:
        CROSSLANE_MPI(MPI_Sendrecv(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, buffer.address(), buffer.count(),
                                   buffer.type(), one.source(), one.tag(), one.message.link.communicator,
                                   choose_status()));
        break;
      case Receive::probe_recv:
      case Receive::iprobe_recv: {
        probe(one, buffer, status, nullptr);
        recv(status.MPI_SOURCE, status.MPI_TAG);
        break;
      }
      default:
        matched(one, buffer, choose_status());
        break;
    }
    if (has_status) one.message.check_status(status, buffer, one.text());
    buffer.check_received(one.message.contents(round), one.text());
  }

  // Probes for the case's message; extracts it into `message` if that is not null.
  void probe(const Case& one, const TypedBuffer& buffer, MPI_Status& status, MPI_Message* message) const {
    const auto communicator = one.message.link.communicator;
    int flag = 0;
    switch (one.receive) {
      case Receive::probe_recv:
        CROSSLANE_MPI(MPI_Probe(one.source(), one.tag(), communicator, &status));
        break;
      case Receive::iprobe_recv:
        for (; flag == 0; sched_yield())
          CROSSLANE_MPI(MPI_Iprobe(one.source(), one.tag(), communicator, &flag, &status));
        break;
      case Receive::mprobe_mrecv:
      case Receive::mprobe_imrecv:
        CROSSLANE_MPI(MPI_Mprobe(one.source(), one.tag(), communicator, message, &status));
        break;
      default:
        for (; flag == 0; sched_yield())
          CROSSLANE_MPI(MPI_Improbe(one.source(), one.tag(), communicator, &flag, message, &status));
        break;
    }
    one.message.check_status(status, buffer, "the probe of " + one.text());
  }

  void matched(const Case& one, const TypedBuffer& buffer, MPI_Status* status) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status probed;
    probe(one, buffer, probed, &message);
    if (is_one_of(one.receive, {Receive::mprobe_mrecv, Receive::improbe_mrecv})) {
      CROSSLANE_MPI(MPI_Mrecv(buffer.address(), buffer.count(), buffer.type(), &message, status));
    } else {
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Imrecv(buffer.address(), buffer.count(), buffer.type(), &message, &request));
      complete(program_.local(), request, status);
    }
    CROSSLANE_CHECK(message == MPI_MESSAGE_NULL, "{}: a received message's handle is not null", one.text());
  }

  static constexpr int never_sent = 32767;  // a probe that finds a message need not progress others

  // The request was freed: nothing but the contents tells that the message has arrived. The watchdog bounds the wait.
  void await_contents(const Case& one, const TypedBuffer& buffer) const {
    MPI_Request none = MPI_REQUEST_NULL;
    for (int flag = 0; !buffer.would_match(one.message.contents()); sched_yield()) {
      CROSSLANE_MPI(MPI_Iprobe(MPI_ANY_SOURCE, never_sent, communicators_.control(), &flag, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Test(&none, &flag, MPI_STATUS_IGNORE));
    }
  }

  void to_self(Case& one) {
    auto out = one.message.send_buffer(program_);
    auto in = one.message.receive_buffer(program_);
    auto sent = prepare(one, out);
    MPI_Request received = MPI_REQUEST_NULL;
    for (int round = 0; round < one.rounds; ++round) {
      out.load(one.message.contents(round));
      if (buffered(one.send)) buffered_.reserve(out.bytes());
      const bool receive_first = program_.local().chance(50);
      if (receive_first) post(one, in, received, round);
      start(one, out, sent);
      if (!receive_first) post(one, in, received, round);
      take(one, in, received, round);
      if (one.send == Send::isend_freed)
        CROSSLANE_MPI(MPI_Request_free(&sent));
      else if (sent != MPI_REQUEST_NULL)
        complete(program_.local(), sent, MPI_STATUS_IGNORE, persistent(one.send));
      out.check_unchanged(one.text());
    }
    if (one.send == Send::isend_freed) freed_.push_back(std::move(out));
    for (MPI_Request* request : {&sent, &received})
      if (*request != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(request));
  }

  Program& program_;
  Only only_;
  Units units_;
  Communicators communicators_;
  const Defects defects_;
  const std::size_t in_pieces_;  // the longest message with gaps
  BufferedSends buffered_{program_.device() == nullptr ? MemoryKind::host : MemoryKind::device};
  std::list<Pending> pending_;
  std::list<TypedBuffer> freed_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_modes");
  Rank(program).run(static_cast<int>(program.option("cases", 400)));
  return program.finish();
}
