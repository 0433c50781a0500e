// Sends that wait (MPI_Send, MPI_Ssend, MPI_Rsend, MPI_Sendrecv) of messages from a few bytes to megabytes, met by every
// kind of receive, probe and completion, with GPU memory on either side, holes in either buffer, and messages of 255
// bytes among them. Even ranks send, odd ones receive. It must not know Crosslane.
#include "support/program.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::array<std::size_t, 9> sizes{4, 1016, 1020, 1024, 5000, 70000, 300000, 1200000, 5000004};
enum class Way {
  recv,
  wait,
  test,
  waitall,
  testall,
  waitany,
  testany,
  waitsome,
  testsome,
  queried,
  cancelled,
  persistent,
  persistent_late,
  probe,
  iprobe,
  mprobe,
  improbe,
  imrecv,
  probe_any,
  freed,
  last
};

class Rank {
 public:
  explicit Rank(Program& program) : program_(program), peer_(program.rank ^ 1), sends_(program.rank % 2 == 0) {
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CROSSLANE_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  }
  ~Rank() { MPI_Comm_free(&comm_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(int cases) {
    for (round_ = 0; round_ < cases; ++round_) {
      auto& random = program_.shared();
      bytes_ = random.pick(sizes) / sizeof(int) * sizeof(int);
      if (random.chance(25)) bytes_ = 4 * (random.between(1, 100000));
      const auto mode = random.below(3);
      const auto way = static_cast<Way>(random.below(static_cast<std::uint64_t>(Way::last)));
      const bool holes_here = random.chance(30), holes_there = random.chance(40);
      CROSSLANE_STEP("case {}: {} bytes, mode {}, way {}, holes {} {}", round_, bytes_, mode, static_cast<int>(way),
                     holes_here, holes_there);
      if (sends_) {
        send(mode, holes_here);
      } else {
        receive(way, mode == 2, holes_there);
      }
      if (random.chance(20)) exchange(random.chance(50));
      if (random.chance(20)) order_of_tags();
      if (random.chance(20)) header_length();
      if (random.chance(25)) truncated();
      if (random.chance(10)) freed_and_left();
    }
  }

 private:
  [[nodiscard]] std::vector<std::byte> data(int from, int number = 0) const {
    return pattern(mix(program_.seed, round_, from, number), bytes_);
  }
  [[nodiscard]] int ints() const { return static_cast<int>(bytes_ / sizeof(int)); }

  // The packed bytes spread over every second int, or as they are; the rest is `fill`.
  static std::vector<std::byte> spread(const std::vector<std::byte>& packed, bool holes,
                                       std::byte fill = std::byte{0x33}) {
    if (!holes) return packed;
    std::vector<std::byte> all(packed.size() * 2, fill);
    for (std::size_t at = 0; at < packed.size(); at += sizeof(int))
      std::memcpy(all.data() + 2 * at, packed.data() + at, std::min(sizeof(int), packed.size() - at));
    return all;
  }
  [[nodiscard]] static MPI_Datatype type(bool holes) {
    MPI_Datatype made = MPI_DATATYPE_NULL, resized = MPI_DATATYPE_NULL;
    if (holes) {
      CROSSLANE_MPI(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &resized));
      CROSSLANE_MPI(MPI_Type_commit(&resized));
      return resized;
    }
    CROSSLANE_MPI(MPI_Type_dup(MPI_INT, &made));
    return made;
  }

  void send(std::uint64_t mode, bool holes) {
    Memory memory(program_.kind(), bytes_ * (holes ? 2 : 1));
    memory.write(spread(data(program_.rank), holes));
    MPI_Datatype element = type(holes);
    if (mode == 2) CROSSLANE_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, peer_, 99, comm_, MPI_STATUS_IGNORE));  // it is posted
    const auto call = mode == 0 ? MPI_Send : mode == 1 ? MPI_Ssend : MPI_Rsend;
    CROSSLANE_MPI(call(memory.data(), ints(), element, peer_, 1, comm_));
    memory.write(std::vector<std::byte>(memory.size(), std::byte{0x77}));  // the buffer is free again
    CROSSLANE_MPI(MPI_Type_free(&element));
  }

  void posted(bool ready) {
    if (ready) CROSSLANE_MPI(MPI_Send(nullptr, 0, MPI_BYTE, peer_, 99, comm_));
  }

  void check_status(const MPI_Status& status, const char* what) {
    int count = -1;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_INT, &count));
    CROSSLANE_CHECK(count == ints() && status.MPI_SOURCE == peer_ && status.MPI_TAG == 1,
                    "{}: {} ints from {} with tag {}", what, count, status.MPI_SOURCE, status.MPI_TAG);
  }

  void receive(Way way, bool ready, bool holes) {
    // A ready send needs its receive: probes would come too early.
    if (ready && (way == Way::recv || way >= Way::persistent_late)) way = Way::wait;
    const std::size_t extra = program_.local().chance(50) ? 0 : 40;
    Memory memory(program_.kind(), (bytes_ + extra) * (holes ? 2 : 1));
    const std::vector<std::byte> before(memory.size(), std::byte{0x33});
    memory.write(before);
    MPI_Datatype element = type(holes);
    const int room = static_cast<int>((bytes_ + extra) / sizeof(int));
    const int source = program_.local().chance(30) ? MPI_ANY_SOURCE : peer_;
    const int tag = program_.local().chance(30) && !ready ? MPI_ANY_TAG : 1;
    MPI_Status status;
    std::memset(&status, 0, sizeof status);
    bool told = true;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::array<MPI_Status, 2> statuses;
    const int at = program_.local().between(0, 1);
    MPI_Request& request = requests[static_cast<std::size_t>(at)];
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0, index = -1, indices[2] = {-1, -1};
    const auto irecv = [&] {
      CROSSLANE_MPI(MPI_Irecv(memory.data(), room, element, source, tag, comm_, &request));
      posted(ready);
    };
    switch (way) {
      case Way::recv:
        told = program_.local().chance(60);
        CROSSLANE_MPI(MPI_Recv(memory.data(), room, element, source, tag, comm_, told ? &status : MPI_STATUS_IGNORE));
        break;
      case Way::wait:
        irecv();
        CROSSLANE_MPI(MPI_Wait(&request, &status));
        break;
      case Way::test:
        irecv();
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Test(&request, &flag, &status));
        break;
      case Way::waitall:
        irecv();
        CROSSLANE_MPI(MPI_Waitall(2, requests.data(), statuses.data()));
        status = statuses[static_cast<std::size_t>(at)];
        break;
      case Way::testall:
        irecv();
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Testall(2, requests.data(), &flag, statuses.data()));
        status = statuses[static_cast<std::size_t>(at)];
        break;
      case Way::waitany:
        irecv();
        CROSSLANE_MPI(MPI_Waitany(2, requests.data(), &index, &status));
        CROSSLANE_CHECK_EQUAL(index, at);
        break;
      case Way::testany:
        irecv();
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Testany(2, requests.data(), &index, &flag, &status));
        CROSSLANE_CHECK_EQUAL(index, at);
        break;
      case Way::waitsome:
        irecv();
        CROSSLANE_MPI(MPI_Waitsome(2, requests.data(), &flag, indices, statuses.data()));
        CROSSLANE_CHECK(flag == 1 && indices[0] == at, "MPI_Waitsome: {} done, the first is {}", flag, indices[0]);
        status = statuses[0];
        break;
      case Way::testsome:
        irecv();
        for (; flag == 0; sched_yield())
          CROSSLANE_MPI(MPI_Testsome(2, requests.data(), &flag, indices, statuses.data()));
        CROSSLANE_CHECK(flag == 1 && indices[0] == at, "MPI_Testsome: {} done, the first is {}", flag, indices[0]);
        status = statuses[0];
        break;
      case Way::queried:
      case Way::cancelled:
        irecv();
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &status));
        check_status(status, "MPI_Request_get_status");
        if (way == Way::cancelled) CROSSLANE_MPI(MPI_Cancel(&request));
        CROSSLANE_MPI(MPI_Wait(&request, &status));
        CROSSLANE_MPI(MPI_Test_cancelled(&status, &flag));
        CROSSLANE_CHECK(flag == 0, "a receive that was complete was cancelled");
        break;
      case Way::persistent:
      case Way::persistent_late:
        CROSSLANE_MPI(MPI_Recv_init(memory.data(), room, element, source, tag, comm_, &request));
        if (way == Way::persistent_late) CROSSLANE_MPI(MPI_Probe(source, tag, comm_, MPI_STATUS_IGNORE));
        CROSSLANE_MPI(MPI_Start(&request));
        posted(ready);
        CROSSLANE_MPI(MPI_Wait(&request, &status));
        CROSSLANE_CHECK(request != MPI_REQUEST_NULL, "a persistent request is null");
        CROSSLANE_MPI(MPI_Request_free(&request));
        break;
      case Way::probe:
      case Way::probe_any:
      case Way::iprobe:
        if (way == Way::iprobe)
          for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Iprobe(source, tag, comm_, &flag, &status));
        else
          CROSSLANE_MPI(MPI_Probe(source, tag, comm_, &status));
        check_status(status, "a probe");
        if (way == Way::probe_any)
          CROSSLANE_MPI(MPI_Recv(memory.data(), room, element, MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &status));
        else
          CROSSLANE_MPI(MPI_Recv(memory.data(), ints(), element, status.MPI_SOURCE, status.MPI_TAG, comm_, &status));
        break;
      case Way::mprobe:
        CROSSLANE_MPI(MPI_Mprobe(source, tag, comm_, &message, &status));
        check_status(status, "MPI_Mprobe");
        CROSSLANE_MPI(MPI_Mrecv(memory.data(), room, element, &message, &status));
        CROSSLANE_CHECK(message == MPI_MESSAGE_NULL, "a received message is not null");
        break;
      case Way::improbe:
      case Way::imrecv:
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Improbe(source, tag, comm_, &flag, &message, &status));
        check_status(status, "MPI_Improbe");
        if (way == Way::improbe) {
          CROSSLANE_MPI(MPI_Mrecv(memory.data(), room, element, &message, &status));
        } else {
          CROSSLANE_MPI(MPI_Imrecv(memory.data(), room, element, &message, &request));
          CROSSLANE_MPI(MPI_Wait(&request, &status));
        }
        break;
      case Way::freed:
      case Way::last:
        CROSSLANE_MPI(MPI_Irecv(memory.data(), room, element, source, tag, comm_, &request));
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &status));
        CROSSLANE_MPI(MPI_Request_free(&request));
        break;
    }
    CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "a completed request is not null");
    if (told) check_status(status, "the status");
    auto expected = spread(data(peer_), holes);
    expected.resize(memory.size(), std::byte{0x33});
    CROSSLANE_CHECK(memory.read() == expected, "{} bytes in {} memory{}", bytes_, name(memory.kind()),
                    holes ? " with holes" : "");
    CROSSLANE_MPI(MPI_Type_free(&element));
  }

  // Both at once, each rank with memory of its own choice.
  void exchange(bool replace) {
    CROSSLANE_STEP("case {}: exchange of {} bytes{}", round_, bytes_, replace ? ", in place" : "");
    Memory out(program_.kind(), bytes_), in(program_.kind(), bytes_);
    out.write(data(program_.rank, 2));
    MPI_Status status;
    if (replace) {
      CROSSLANE_MPI(MPI_Sendrecv_replace(out.data(), ints(), MPI_INT, peer_, 1, peer_, 1, comm_, &status));
      CROSSLANE_CHECK(out.read() == data(peer_, 2), "MPI_Sendrecv_replace in {} memory", name(out.kind()));
    } else {
      CROSSLANE_MPI(MPI_Sendrecv(out.data(), ints(), MPI_INT, peer_, 1, in.data(), ints(), MPI_INT, peer_, MPI_ANY_TAG,
                                 comm_, &status));
      CROSSLANE_CHECK(in.read() == data(peer_, 2), "MPI_Sendrecv in {} memory", name(in.kind()));
      CROSSLANE_CHECK(out.read() == data(program_.rank, 2), "MPI_Sendrecv wrote to what it sends");
    }
    check_status(status, "an exchange");
  }

  // A probe for the second message must not let it overtake the first.
  void order_of_tags() {
    CROSSLANE_STEP("case {}: order of tags, {} bytes", round_, bytes_);
    if (sends_) {
      Memory first(program_.kind(), 255), second(program_.kind(), bytes_);
      first.write(pattern(mix(program_.seed, round_), 255));
      second.write(data(program_.rank, 3));
      std::array<MPI_Request, 2> requests{};
      CROSSLANE_MPI(MPI_Isend(first.data(), 7, MPI_BYTE, peer_, 5, comm_, &requests[0]));
      CROSSLANE_MPI(MPI_Isend(first.data(), 255, MPI_BYTE, peer_, 6, comm_, &requests[1]));
      CROSSLANE_MPI(MPI_Send(second.data(), ints(), MPI_INT, peer_, 1, comm_));
      CROSSLANE_MPI(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE));
      return;
    }
    MPI_Status status;
    CROSSLANE_MPI(MPI_Probe(peer_, 1, comm_, &status));
    check_status(status, "MPI_Probe past other messages");
    Memory memory(program_.kind(), std::max<std::size_t>(bytes_, 255));
    int count = 0;
    CROSSLANE_MPI(MPI_Recv(memory.data(), 255, MPI_BYTE, peer_, MPI_ANY_TAG, comm_, &status));
    MPI_Get_count(&status, MPI_BYTE, &count);
    CROSSLANE_CHECK(status.MPI_TAG == 5 && count == 7, "the first of three: tag {}, {} bytes", status.MPI_TAG, count);
    CROSSLANE_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &count, &status));
    CROSSLANE_CHECK(count != 0 && status.MPI_TAG == 6, "the next of three has tag {}", status.MPI_TAG);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(memory.data(), 255, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &request));
    CROSSLANE_MPI(MPI_Wait(&request, &status));
    MPI_Get_count(&status, MPI_BYTE, &count);
    CROSSLANE_CHECK(status.MPI_TAG == 6 && count == 255, "the second of three: tag {}, {} bytes", status.MPI_TAG,
                    count);
    CROSSLANE_CHECK(memory.read(0, 255) == pattern(mix(program_.seed, round_), 255), "255 bytes that were probed");
    CROSSLANE_MPI(MPI_Recv(memory.data(), ints(), MPI_INT, peer_, MPI_ANY_TAG, comm_, &status));
    check_status(status, "the third of three");
    CROSSLANE_CHECK(memory.read(0, bytes_) == data(peer_, 3), "the third of three");
  }

  // Ordinary messages of an unusual length, with and without probes before.
  void header_length() {
    CROSSLANE_STEP("case {}: messages of 255 bytes", round_);
    constexpr int length = 255;
    for (int i = 0; i < 6; ++i) {
      const auto contents = pattern(mix(program_.seed, round_, i), length);
      Memory memory(program_.kind(), length);
      if (sends_) {
        memory.write(contents);
        CROSSLANE_MPI((i % 2 == 0 ? MPI_Send : MPI_Ssend)(memory.data(), length, MPI_BYTE, peer_, i, comm_));
        continue;
      }
      MPI_Status status;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Request request = MPI_REQUEST_NULL;
      int count = 0;
      if (i == 1 || i == 2) CROSSLANE_MPI(MPI_Probe(MPI_ANY_SOURCE, i, comm_, &status));
      if (i >= 3) {
        CROSSLANE_MPI(MPI_Mprobe(peer_, MPI_ANY_TAG, comm_, &message, &status));
        MPI_Get_count(&status, MPI_BYTE, &count);
        CROSSLANE_CHECK_EQUAL(count, length);
      }
      switch (i) {
        case 3:
          CROSSLANE_MPI(MPI_Mrecv(memory.data(), length, MPI_BYTE, &message, &status));
          break;
        case 4:
          CROSSLANE_MPI(MPI_Imrecv(memory.data(), length, MPI_BYTE, &message, &request));
          for (int flag = 0; flag == 0;) CROSSLANE_MPI(MPI_Test(&request, &flag, &status));
          break;
        case 5: {
          const int result = MPI_Mrecv(memory.data(), length - 1, MPI_BYTE, &message, &status);
          int error = MPI_SUCCESS;
          MPI_Error_class(result, &error);
          CROSSLANE_CHECK_EQUAL(error, MPI_ERR_TRUNCATE);
          continue;
        }
        case 2:
          CROSSLANE_MPI(MPI_Irecv(memory.data(), length, MPI_BYTE, peer_, i, comm_, &request));
          CROSSLANE_MPI(MPI_Waitall(1, &request, &status));
          break;
        default:
          CROSSLANE_MPI(MPI_Recv(memory.data(), length, MPI_BYTE, peer_, i, comm_, &status));
          break;
      }
      MPI_Get_count(&status, MPI_BYTE, &count);
      CROSSLANE_CHECK(count == length && status.MPI_TAG == i, "message {}: {} bytes, tag {}", i, count, status.MPI_TAG);
      CROSSLANE_CHECK(memory.read() == contents, "message {} of 255 bytes", i);
    }
  }

  // The error, and what comes after. Never longer than what every MPI cuts rightly by itself.
  void truncated() {
    const auto length = static_cast<int>(std::min<std::size_t>(bytes_, 3500));
    const int room = program_.shared().between(0, std::max(length - 1, 0));
    const auto way = program_.shared().below(5);
    const bool probed = program_.shared().chance(30);
    CROSSLANE_STEP("case {}: {} bytes into {}, way {}{}", round_, length, room, way, probed ? ", probed" : "");
    if (length < 2) return;
    const auto contents = data(sends_ ? program_.rank : peer_, 4);
    if (sends_) {
      Memory memory(program_.kind(), static_cast<std::size_t>(length));
      memory.write({contents.begin(), contents.begin() + length});
      CROSSLANE_MPI(MPI_Send(memory.data(), length, MPI_BYTE, peer_, 1, comm_));
      CROSSLANE_MPI(MPI_Send(memory.data(), length, MPI_BYTE, peer_, 1, comm_));
      return;
    }
    Memory small(program_.kind(), static_cast<std::size_t>(room)),
        whole(program_.kind(), static_cast<std::size_t>(length));
    if (probed) CROSSLANE_MPI(MPI_Probe(peer_, 1, comm_, MPI_STATUS_IGNORE));
    int result = MPI_SUCCESS;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    if (way >= 2) CROSSLANE_MPI(MPI_Irecv(small.data(), room, MPI_BYTE, peer_, 1, comm_, &request));
    switch (way) {
      case 0:
      case 1:
        result = MPI_Recv(small.data(), room, MPI_BYTE, peer_, 1, comm_, way == 0 ? &status : MPI_STATUS_IGNORE);
        break;
      case 2:
        result = MPI_Wait(&request, &status);
        break;
      case 3:
        for (int flag = 0; flag == 0 && result == MPI_SUCCESS; sched_yield())
          result = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        break;
      default:
        result = MPI_Waitall(1, &request, &status);
        if (result == MPI_ERR_IN_STATUS) result = status.MPI_ERROR;
        break;
    }
    int error = MPI_SUCCESS;
    MPI_Error_class(result, &error);
    CROSSLANE_CHECK(error == MPI_ERR_TRUNCATE, "{} bytes into {}: class {}", length, room, error);
    CROSSLANE_CHECK(request == MPI_REQUEST_NULL, "the failed receive's request is not null");
    CROSSLANE_MPI(MPI_Recv(whole.data(), length, MPI_BYTE, peer_, 1, comm_, MPI_STATUS_IGNORE));
    CROSSLANE_CHECK(whole.read() == std::vector<std::byte>(contents.begin(), contents.begin() + length),
                    "the message after a truncated one");
  }

  // A receive whose request was freed is complete when a later message says so.
  void freed_and_left() {
    CROSSLANE_STEP("case {}: a freed receive of {} bytes", round_, bytes_);
    Memory memory(program_.kind(), bytes_);
    int ping = 0;
    if (sends_) {
      memory.write(data(program_.rank, 6));
      CROSSLANE_MPI(MPI_Send(memory.data(), ints(), MPI_INT, peer_, 1, comm_));
      CROSSLANE_MPI(MPI_Recv(&ping, 1, MPI_INT, peer_, 2, comm_, MPI_STATUS_IGNORE));
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Irecv(memory.data(), ints(), MPI_INT, peer_, 1, comm_, &request));
    CROSSLANE_MPI(MPI_Request_free(&request));
    int flag = 0;
    const auto expected = data(peer_, 6);
    // Any completion call may be the one that sees it through.
    MPI_Request none = MPI_REQUEST_NULL;
    for (int tries = 0; memory.read() != expected && tries < 1000000; ++tries) {
      CROSSLANE_MPI(MPI_Iprobe(peer_, 77, comm_, &flag, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Test(&none, &flag, MPI_STATUS_IGNORE));
    }
    CROSSLANE_CHECK(memory.read() == expected, "a freed receive never got its {} bytes", bytes_);
    CROSSLANE_MPI(MPI_Send(&ping, 1, MPI_INT, peer_, 2, comm_));
  }

  Program& program_;
  int peer_;
  bool sends_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int round_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_waiting");
  Rank(program).run(static_cast<int>(program.option("cases", 60)));
  return program.finish();
}
