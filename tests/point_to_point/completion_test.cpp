// Every way to complete arrays that mix null, inactive persistent, active persistent, send, receive, collective and
// generalized requests over every kind of memory (MPI 5.0, section 3.7). Statuses, indices and counts are checked, and
// each received buffer as soon as its request is reported complete. It must not know Crosslane.
// --only <MPI procedure>: every case completes by it.
#include "support/communicators.h"
#include "support/plain_mpi.h"
#include "support/program.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

enum class Kind {
  null,
  inactive,
  send,
  receive,
  persistent_send,
  persistent_receive,
  allreduce,
  broadcast,
  barrier,
  generalized
};

// MPI 4.1 has queries of arrays.
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define CROSSLANE_TEST_ARRAY_QUERIES 1
#else
#define CROSSLANE_TEST_ARRAY_QUERIES 0
#endif

constexpr std::array ways{"MPI_Waitall",
                          "MPI_Waitany",
                          "MPI_Waitsome",
                          "MPI_Testall",
                          "MPI_Testany",
                          "MPI_Testsome",
                          "MPI_Wait",
                          "MPI_Test",
#if CROSSLANE_TEST_ARRAY_QUERIES
                          "MPI_Request_get_status_all",
                          "MPI_Request_get_status_any",
                          "MPI_Request_get_status_some"
#endif
};

constexpr int generalized_source = 41, generalized_tag = 42, generalized_bytes = 43;

int generalized_query(void*, MPI_Status* status) {
  MPI_Status_set_elements(status, MPI_BYTE, generalized_bytes);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = generalized_source;
  status->MPI_TAG = generalized_tag;
  return MPI_SUCCESS;
}
int generalized_free(void*) { return MPI_SUCCESS; }
int generalized_cancel(void*, int) { return MPI_SUCCESS; }

/// One request, and what must be true once it is complete.
struct Entry {
  Kind kind = Kind::null;
  std::string text = "null";
  std::vector<Memory> memory;       // kept until the end of the case
  std::vector<std::byte> expected;  // in memory.back(), once complete
  int source = MPI_ANY_SOURCE, tag = MPI_ANY_TAG, count = 0;
  bool complete = false;
  bool finishes_at_once = true;  // a generalized request that is completed before any completion call

  [[nodiscard]] bool active() const { return kind != Kind::null && kind != Kind::inactive; }
  [[nodiscard]] bool persistent() const {
    return kind == Kind::inactive || kind == Kind::persistent_send || kind == Kind::persistent_receive;
  }
  [[nodiscard]] bool receives() const { return kind == Kind::receive || kind == Kind::persistent_receive; }
};

class Rank {
 public:
  explicit Rank(Program& program) : program_(program) {}

  void run(int cases, const std::string& only) {
    const auto chosen = static_cast<std::size_t>(std::find(ways.begin(), ways.end(), only) - ways.begin());
    for (number_ = 0; number_ < cases; ++number_) {
      build();
      const auto drawn = program_.local().below(ways.size());
      const auto way = chosen < ways.size() ? chosen : drawn;
      CROSSLANE_STEP("case {}: way {}, {} requests", number_, way, entries_.size());
      complete(static_cast<int>(way));
      finish();
    }
    polite_barrier();
  }

 private:
  Entry& add(Kind kind, std::string text, MPI_Request request) {
    entries_.push_back(std::make_unique<Entry>());
    requests_.push_back(request);
    entries_.back()->kind = kind;
    entries_.back()->text = std::move(text);
    return *entries_.back();
  }

  Memory filled(std::uint64_t seed, std::size_t bytes) {
    Memory memory(program_.kind(), bytes);
    memory.write(pattern(seed, bytes));
    return memory;
  }

  // All ranks post the same messages between all ranks and the same collectives; the rest is each rank's own.
  void build() {
    entries_.clear();
    requests_.clear();
    Random random(mix(program_.seed, number_, 5));
    CROSSLANE_STEP("case {}: posting", number_);
    const int messages = random.between(0, 5);
    for (int i = 0; i < messages; ++i) {
      const int from = random.between(0, program_.size - 1), to = random.between(0, program_.size - 1);
      const int tag = 8 * number_ + i;  // its own: from MPI_ANY_SOURCE, a later case's message could be the first
      const auto bytes = random.bytes(std::size_t{1} << 20);
      const auto room = bytes + random.below(64);
      const bool persistent_send = random.chance(30), persistent_receive = random.chance(30), any = random.chance(30);
      const auto seed = random.next();
      const auto link = random.pick(communicators_.links(from, to));
      if (to == program_.rank) receive(link, tag, bytes, room, seed, persistent_receive, any);
      if (from == program_.rank) send(link, tag, bytes, seed, persistent_send);
    }
    for (auto left = random.below(3); left > 0; --left) collective(random);
    auto& local = program_.local();
    for (auto left = local.below(3); left > 0; --left) add(Kind::null, "null", MPI_REQUEST_NULL);
    for (auto left = local.below(3); left > 0; --left) inactive();
    for (auto left = local.below(3); left > 0; --left) generalized();
    // One order for both arrays.
    for (std::size_t i = entries_.size(); i > 1; --i) {
      const auto j = local.below(i);
      std::swap(entries_[i - 1], entries_[j]);
      std::swap(requests_[i - 1], requests_[j]);
    }
  }

  void send(const Link& link, int tag, std::size_t bytes, std::uint64_t seed, bool persistent) {
    auto memory = filled(seed, bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(bytes);
    if (persistent) {
      CROSSLANE_MPI(MPI_Send_init(memory.data(), count, MPI_BYTE, link.destination, tag, link.communicator, &request));
      CROSSLANE_MPI(MPI_Start(&request));
    } else if (program_.local().chance(50)) {
      CROSSLANE_MPI(MPI_Isend(memory.data(), count, MPI_BYTE, link.destination, tag, link.communicator, &request));
    } else {
      CROSSLANE_MPI(MPI_Issend(memory.data(), count, MPI_BYTE, link.destination, tag, link.communicator, &request));
    }
    auto& entry = add(persistent ? Kind::persistent_send : Kind::send,
                      fmt::format("send of {} bytes over {}", bytes, link.text), request);
    entry.expected = pattern(seed, bytes);
    entry.memory.push_back(std::move(memory));
  }

  void receive(const Link& link, int tag, std::size_t bytes, std::size_t room, std::uint64_t seed, bool persistent,
               bool any) {
    auto memory = filled(~seed, room);
    MPI_Request request = MPI_REQUEST_NULL;
    const int count = static_cast<int>(room), source = any ? MPI_ANY_SOURCE : link.source;
    if (persistent) {
      CROSSLANE_MPI(MPI_Recv_init(memory.data(), count, MPI_BYTE, source, tag, link.communicator, &request));
      CROSSLANE_MPI(MPI_Start(&request));
    } else {
      CROSSLANE_MPI(MPI_Irecv(memory.data(), count, MPI_BYTE, source, tag, link.communicator, &request));
    }
    auto& entry = add(persistent ? Kind::persistent_receive : Kind::receive,
                      fmt::format("receive of {} bytes in room for {} over {}", bytes, room, link.text), request);
    entry.expected = pattern(~seed, room);
    const auto sent = pattern(seed, bytes);
    std::copy(sent.begin(), sent.end(), entry.expected.begin());
    entry.memory.push_back(std::move(memory));
    entry.source = link.source;
    entry.tag = tag;
    entry.count = static_cast<int>(bytes);
  }

  void collective(Random& random) {
    const auto elements = random.bytes(std::size_t{1} << 18) / sizeof(int);
    const auto kind = random.below(3);
    const int root = random.between(0, program_.size - 1);
    const auto seed = random.next();
    MPI_Request request = MPI_REQUEST_NULL;
    const auto communicator = communicators_.duplicate();
    if (kind == 0) {
      CROSSLANE_MPI(MPI_Ibarrier(communicator, &request));
      add(Kind::barrier, "barrier", request);
    } else if (kind == 1) {
      auto memory = filled(program_.rank == root ? seed : ~seed, elements * sizeof(int));
      CROSSLANE_MPI(MPI_Ibcast(memory.data(), static_cast<int>(elements), MPI_INT, root, communicator, &request));
      auto& entry = add(Kind::broadcast, fmt::format("broadcast of {} ints from {}", elements, root), request);
      entry.expected = pattern(seed, elements * sizeof(int));
      entry.memory.push_back(std::move(memory));
    } else {
      std::vector<int> mine(elements), sums(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        mine[i] = static_cast<int>((seed + i) % 1000) * (program_.rank + 1);
        sums[i] = static_cast<int>((seed + i) % 1000) * (program_.size * (program_.size + 1) / 2);
      }
      Memory in(program_.kind(), elements * sizeof(int)), out(program_.kind(), elements * sizeof(int));
      in.fill(mine);
      CROSSLANE_MPI(
          MPI_Iallreduce(in.data(), out.data(), static_cast<int>(elements), MPI_INT, MPI_SUM, communicator, &request));
      auto& entry = add(Kind::allreduce, fmt::format("sum of {} ints", elements), request);
      const auto bytes = std::as_bytes(std::span(sums));
      entry.expected.assign(bytes.begin(), bytes.end());
      entry.memory.push_back(std::move(in));
      entry.memory.push_back(std::move(out));
    }
  }

  void inactive() {
    auto memory = filled(1, 100);
    MPI_Request request = MPI_REQUEST_NULL;
    if (program_.local().chance(50))
      CROSSLANE_MPI(MPI_Recv_init(memory.data(), 100, MPI_BYTE, 0, 7, MPI_COMM_SELF, &request));
    else
      CROSSLANE_MPI(MPI_Send_init(memory.data(), 100, MPI_BYTE, 0, 7, MPI_COMM_SELF, &request));
    auto& entry = add(Kind::inactive, "inactive", request);
    entry.expected = pattern(1, 100);
    entry.memory.push_back(std::move(memory));
  }

  void generalized() {
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Grequest_start(generalized_query, generalized_free, generalized_cancel, nullptr, &request));
    auto& entry = add(Kind::generalized, "generalized", request);
    entry.source = generalized_source;
    entry.tag = generalized_tag;
    entry.count = generalized_bytes;
    entry.finishes_at_once = program_.local().chance(60);
    if (entry.finishes_at_once) CROSSLANE_MPI(MPI_Grequest_complete(request));
  }

  // The generalized requests that were left open; until then nothing may say that all are complete.
  void complete_generalized() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      auto& entry = *entries_[i];
      if (entry.kind != Kind::generalized || entry.finishes_at_once) continue;
      int flag = 0;
      CROSSLANE_MPI(MPI_Request_get_status(requests_[i], &flag, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(flag == 0, "an open generalized request is reported complete");
      CROSSLANE_MPI(MPI_Test(&requests_[i], &flag, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(flag == 0, "MPI_Test completes an open generalized request");
      CROSSLANE_MPI(MPI_Testall(size(), requests_.data(), &flag, MPI_STATUSES_IGNORE));
      CROSSLANE_CHECK(flag == 0, "MPI_Testall completes an open generalized request");
      entry.finishes_at_once = true;
      CROSSLANE_MPI(MPI_Grequest_complete(requests_[i]));
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(entries_.size()); }
  [[nodiscard]] int left() const {
    return static_cast<int>(
        std::count_if(entries_.begin(), entries_.end(), [](const auto& e) { return e->active() && !e->complete; }));
  }

  static void check_empty(const MPI_Status& status, const char* what) {
    int count = -1, cancelled = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    MPI_Test_cancelled(&status, &cancelled);
    CROSSLANE_CHECK(
        status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG && count == 0 && cancelled == 0,
        "the empty status of {}: source {}, tag {}, count {}, cancelled {}", what, status.MPI_SOURCE, status.MPI_TAG,
        count, cancelled);
  }

  // Request `index` was reported complete; `status` is null where statuses were ignored.
  void reported(int index, const MPI_Status* status) {
    auto& entry = *entries_.at(static_cast<std::size_t>(index));
    CROSSLANE_CHECK(entry.active() && !entry.complete, "{} is reported complete (again)", entry.text);
    entry.complete = true;
    const auto request = requests_[static_cast<std::size_t>(index)];
    CROSSLANE_CHECK((request != MPI_REQUEST_NULL) == entry.persistent(), "the request after completion: {}",
                    entry.text);
    if (!entry.memory.empty())
      CROSSLANE_CHECK(entry.memory.back().read() == entry.expected, "contents when reported complete: {} in {} memory",
                      entry.text, name(entry.memory.back().kind()));
    if (status == nullptr || !(entry.receives() || entry.kind == Kind::generalized)) return;
    int count = -1;
    CROSSLANE_MPI(MPI_Get_count(status, MPI_BYTE, &count));
    CROSSLANE_CHECK(status->MPI_SOURCE == entry.source && status->MPI_TAG == entry.tag && count == entry.count,
                    "{}: source {}, tag {}, count {}; expected {}, {}, {}", entry.text, status->MPI_SOURCE,
                    status->MPI_TAG, count, entry.source, entry.tag, entry.count);
  }

  void reported_all(const MPI_Status* statuses) {
    for (int i = 0; i < size(); ++i) {
      const auto& entry = *entries_[static_cast<std::size_t>(i)];
      const MPI_Status* status = statuses == nullptr ? nullptr : statuses + i;
      if (entry.active() && !entry.complete)
        reported(i, status);
      else if (status != nullptr)
        check_empty(*status, "a null or inactive request among others");
    }
  }

  void complete(int way) {
    const bool with_statuses = program_.local().chance(75);
    std::vector<MPI_Status> statuses(entries_.size() + 1);
    MPI_Status one;
    MPI_Status* const many = with_statuses ? statuses.data() : MPI_STATUSES_IGNORE;
    MPI_Status* const single = with_statuses ? &one : MPI_STATUS_IGNORE;
    const MPI_Status* const seen = with_statuses ? &one : nullptr;
    std::vector<int> indices(entries_.size() + 1);
    int flag = 0, index = 0, count = 0;
    complete_generalized();
    switch (way) {
      case 0:
        CROSSLANE_MPI(MPI_Waitall(size(), requests_.data(), many));
        reported_all(with_statuses ? statuses.data() : nullptr);
        break;
      case 1:
        while (left() > 0) {
          CROSSLANE_MPI(MPI_Waitany(size(), requests_.data(), &index, single));
          reported(index, seen);
        }
        break;
      case 2:
        while (left() > 0) {
          CROSSLANE_MPI(MPI_Waitsome(size(), requests_.data(), &count, indices.data(), many));
          CROSSLANE_CHECK(count > 0, "MPI_Waitsome gives {} of {} requests", count, left());
          report_some(count, indices, with_statuses ? statuses.data() : nullptr);
        }
        break;
      case 3:
        for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Testall(size(), requests_.data(), &flag, many));
        reported_all(with_statuses ? statuses.data() : nullptr);
        break;
      case 4:
        for (; left() > 0; sched_yield()) {
          CROSSLANE_MPI(MPI_Testany(size(), requests_.data(), &index, &flag, single));
          if (flag != 0)
            reported(index, seen);
          else
            CROSSLANE_CHECK_EQUAL(index, MPI_UNDEFINED);
        }
        break;
      case 5:
        for (; left() > 0; sched_yield()) {
          CROSSLANE_MPI(MPI_Testsome(size(), requests_.data(), &count, indices.data(), many));
          report_some(count, indices, with_statuses ? statuses.data() : nullptr);
        }
        break;
      case 6:
      case 7:
        one_by_one(way == 6);
        break;
      default:
        queried(way);
        break;
    }
    CROSSLANE_CHECK_EQUAL(left(), 0);
    nothing_left();
  }

  // Queries complete nothing, but what they report is there; then everything is completed by MPI_Waitall.
  void queried([[maybe_unused]] int way) {
#if CROSSLANE_TEST_ARRAY_QUERIES
    std::vector<MPI_Status> statuses(entries_.size() + 1);
    std::vector<int> indices(entries_.size() + 1);
    const bool inactive_by_query =
        plain_mpi().query_ends_persistent &&
        std::any_of(entries_.begin(), entries_.end(), [](const auto& e) { return e->active() && e->persistent(); });
    int flag = 0, index = 0, count = 0;
    while (flag == 0 && left() > 0 && !inactive_by_query) {
      if (way == 8) {
        CROSSLANE_MPI(MPI_Request_get_status_all(size(), requests_.data(), &flag, statuses.data()));
        for (int i = 0; flag != 0 && i < size(); ++i) seen(i, statuses[static_cast<std::size_t>(i)]);
      } else if (way == 9) {
        CROSSLANE_MPI(MPI_Request_get_status_any(size(), requests_.data(), &index, &flag, statuses.data()));
        if (flag != 0 && index != MPI_UNDEFINED) seen(index, statuses.front());
      } else {
        CROSSLANE_MPI(MPI_Request_get_status_some(size(), requests_.data(), &count, indices.data(), statuses.data()));
        flag = count;
        for (int i = 0; i < count; ++i)
          seen(indices[static_cast<std::size_t>(i)], statuses[static_cast<std::size_t>(i)]);
      }
      sched_yield();
    }
    CROSSLANE_MPI(MPI_Waitall(size(), requests_.data(), statuses.data()));
    reported_all(statuses.data());
#endif
  }

  // What a query says of a request: it stays, but its data is there, and its status is the one that completion gives.
  void seen(int index, const MPI_Status& status) {
    const auto at = static_cast<std::size_t>(index);
    const auto& entry = *entries_.at(at);
    if (!entry.active()) return;
    CROSSLANE_CHECK(requests_[at] != MPI_REQUEST_NULL, "a query freed the request of {}", entry.text);
    if (!entry.memory.empty())
      CROSSLANE_CHECK(entry.memory.back().read() == entry.expected, "contents when a query reports {} in {} memory",
                      entry.text, name(entry.memory.back().kind()));
    if (entry.receives())
      CROSSLANE_CHECK(status.MPI_SOURCE == entry.source && status.MPI_TAG == entry.tag,
                      "a query of {}: source {}, tag {}", entry.text, status.MPI_SOURCE, status.MPI_TAG);
  }

  void report_some(int count, const std::vector<int>& indices, const MPI_Status* statuses) {
    CROSSLANE_CHECK(count != MPI_UNDEFINED, "some gives MPI_UNDEFINED while {} requests are active", left());
    for (int i = 0; i < count; ++i)
      reported(indices[static_cast<std::size_t>(i)], statuses == nullptr ? nullptr : statuses + i);
  }

  void one_by_one(bool wait) {
    std::vector<int> order(entries_.size());
    std::iota(order.begin(), order.end(), 0);
    program_.local().shuffle(order);
    for (const int i : order) {
      auto& request = requests_[static_cast<std::size_t>(i)];
      MPI_Status status;
      if (wait)
        CROSSLANE_MPI(MPI_Wait(&request, &status));
      else
        polite_wait(request, &status);
      if (entries_[static_cast<std::size_t>(i)]->active())
        reported(i, &status);
      else
        check_empty(status, "a null or inactive request alone");
    }
  }

  // Null and inactive requests only.
  void nothing_left() {
    MPI_Status status;
    std::vector<MPI_Status> statuses(entries_.size() + 1);
    std::vector<int> indices(entries_.size() + 1);
    int index = 0, flag = 0, count = 0;
    CROSSLANE_MPI(MPI_Waitany(size(), requests_.data(), &index, &status));
    CROSSLANE_CHECK_EQUAL(index, MPI_UNDEFINED);
    check_empty(status, "MPI_Waitany of nothing");
    CROSSLANE_MPI(MPI_Testany(size(), requests_.data(), &index, &flag, &status));
    CROSSLANE_CHECK(flag != 0 && index == MPI_UNDEFINED, "MPI_Testany of nothing: flag {}, index {}", flag, index);
    check_empty(status, "MPI_Testany of nothing");
    CROSSLANE_MPI(MPI_Waitsome(size(), requests_.data(), &count, indices.data(), statuses.data()));
    CROSSLANE_CHECK_EQUAL(count, MPI_UNDEFINED);
    CROSSLANE_MPI(MPI_Testsome(size(), requests_.data(), &count, indices.data(), MPI_STATUSES_IGNORE));
    CROSSLANE_CHECK_EQUAL(count, MPI_UNDEFINED);
    CROSSLANE_MPI(MPI_Testall(size(), requests_.data(), &flag, statuses.data()));
    CROSSLANE_CHECK(flag != 0, "MPI_Testall of nothing");
    CROSSLANE_MPI(MPI_Waitall(size(), requests_.data(), statuses.data()));
    for (int i = 0; i < size(); ++i) check_empty(statuses[static_cast<std::size_t>(i)], "MPI_Waitall of nothing");
  }

  void finish() {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto& entry = *entries_[i];
      if (!entry.memory.empty())
        CROSSLANE_CHECK(entry.memory.back().read() == entry.expected, "contents at the end: {}", entry.text);
      if (requests_[i] != MPI_REQUEST_NULL) CROSSLANE_MPI(MPI_Request_free(&requests_[i]));
    }
  }

  Program& program_;
  Communicators communicators_;
  int number_ = 0;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<MPI_Request> requests_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_completion");
  Rank(program).run(static_cast<int>(program.option("cases", 200)), program.text_option("only", ""));
  return program.finish();
}
