// A session that lives longer than MPI_Init to MPI_Finalize (MPI 5.0, section 11.3): messages of GPU memory, and of host memory, on its
// communicator and on those made from it, under way while MPI_Init and MPI_Finalize come. Two ranks. Skipped where the MPI has no sessions.
// --memory host: none of it on GPUs.
// It must not know Crosslane.
#include "support/check.h"
#include "support/memory.h"

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)  // Open MPI 5 calls itself 3.1

constexpr std::array counts{1000, 300'000};  // ints: one is short enough for any MPI to send it before it is received

struct Communicator {
  MPI_Comm comm = MPI_COMM_NULL;
  std::string name;
  int peer = 0;
};

// A message under way with each neighbour, to be completed later.
struct UnderWay {
  Communicator on;
  int tag = 0, count = 0;
  Memory out, in;
  std::vector<MPI_Request> requests;
};

class Beside {
 public:
  Beside(MemoryKind sent, int rank) : sent_(sent), rank_(rank) {}

  void run(MPI_Session session) {
    MPI_Comm comm = MPI_COMM_NULL;
    from_session(session, "crosslane.beside", &comm);
    add("the session's", comm);
    make("MPI_Comm_dup", [&](MPI_Comm* made) { return MPI_Comm_dup(comm, made); });
    make("MPI_Comm_split", [&](MPI_Comm* made) { return MPI_Comm_split(comm, 0, rank_, made); });
    for (const auto& one : communicators_) receive_early(one);

    CROSSLANE_STEP("MPI_Init");
    CROSSLANE_MPI(MPI_Init(nullptr, nullptr));
    meet();
    for (auto& each : under_way_) send(each);
    complete("a receive from before MPI_Init");
    make_more(comm);
    for (const auto& one : communicators_) {
      exchange(one);
      match(one);
    }
    for (const auto& one : communicators_) {
      send_early(one);
      send_and_free(one);
      receive_early(one);
      prepare(one);
    }

    CROSSLANE_STEP("MPI_Finalize");
    CROSSLANE_MPI(MPI_Finalize());
    for (auto& each : under_way_) {
      if (each.tag == sent_early || each.tag == freed) receive(each);
      if (each.tag == received_early) send(each);
      if (each.tag == prepared)
        CROSSLANE_MPI(MPI_Startall(static_cast<int>(each.requests.size()), each.requests.data()));
    }
    complete("a message from before MPI_Finalize");
    from_session(session, "crosslane.behind", &comm);
    add("one made after MPI_Finalize", comm);
    for (const auto& one : communicators_) exchange(one);

    int mine = failures();
    CROSSLANE_MPI(MPI_Allreduce(&mine, &failures_, 1, MPI_INT, MPI_SUM, comm));
    for (auto& one : communicators_) MPI_Comm_free(&one.comm);
  }

  /// Of all ranks.
  [[nodiscard]] int failed() const { return failures_; }

 private:
  enum Tag { sent_early = 10, freed, received_early, prepared, matched, exchanged };

  static void from_session(MPI_Session session, const char* tag, MPI_Comm* comm) {
    MPI_Group group = MPI_GROUP_NULL;
    CROSSLANE_MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    CROSSLANE_MPI(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm));
    MPI_Group_free(&group);
  }

  void add(std::string name, MPI_Comm comm) {
    int inter = 0;
    CROSSLANE_MPI(MPI_Comm_test_inter(comm, &inter));
    communicators_.push_back({comm, std::move(name), inter != 0 ? 0 : 1 - rank_});
  }

  void make(const char* name, const std::function<int(MPI_Comm*)>& maker) {
    CROSSLANE_STEP("{}", name);
    MPI_Comm made = MPI_COMM_NULL;
    CROSSLANE_MPI(maker(&made));
    add(name, made);
  }

  // While MPI_COMM_WORLD is there; of the later ones some from the earlier ones.
  void make_more(MPI_Comm comm) {
    make("MPI_Comm_idup", [&](MPI_Comm* made) {
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Comm_idup(comm, made, &request));
      return MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    make("MPI_Comm_create_group", [&](MPI_Comm* made) {
      MPI_Group group = MPI_GROUP_NULL;
      CROSSLANE_MPI(MPI_Comm_group(communicators_.back().comm, &group));
      const int code = MPI_Comm_create_group(communicators_.back().comm, group, 3, made);
      MPI_Group_free(&group);
      return code;
    });
    make("MPI_Cart_create", [&](MPI_Comm* made) {
      const int sizes[] = {2}, periods[] = {0};
      return MPI_Cart_create(comm, 1, sizes, periods, 0, made);
    });
    make("MPI_Intercomm_create", [&](MPI_Comm* made) {
      MPI_Comm half = MPI_COMM_NULL;
      CROSSLANE_MPI(MPI_Comm_split(comm, rank_, 0, &half));
      const int code = MPI_Intercomm_create(half, 0, comm, 1 - rank_, 4, made);
      MPI_Comm_free(&half);
      return code;
    });
    make("MPI_Intercomm_create_from_groups", [&](MPI_Comm* made) {
      MPI_Group both = MPI_GROUP_NULL, mine = MPI_GROUP_NULL, theirs = MPI_GROUP_NULL;
      CROSSLANE_MPI(MPI_Comm_group(comm, &both));
      CROSSLANE_MPI(MPI_Group_incl(both, 1, &rank_, &mine));
      CROSSLANE_MPI(MPI_Group_excl(both, 1, &rank_, &theirs));
      const int code = MPI_Intercomm_create_from_groups(mine, 0, theirs, 0, "crosslane.across", MPI_INFO_NULL,
                                                        MPI_ERRORS_ARE_FATAL, made);
      for (MPI_Group* const group : {&both, &mine, &theirs}) MPI_Group_free(group);
      return code;
    });
    make("MPI_Intercomm_merge",
         [&](MPI_Comm* made) { return MPI_Intercomm_merge(communicators_.back().comm, rank_, made); });
  }

  // GPU memory goes between the ranks of MPI_COMM_WORLD, so that they know what they can do.
  void meet() {
    CROSSLANE_STEP("messages in MPI_COMM_WORLD");
    for (int i = 0; i < 4; ++i) exchange({MPI_COMM_WORLD, "MPI_COMM_WORLD", 1 - rank_});
  }

  std::vector<int> contents(int rank, const UnderWay& of) const {
    return std::vector<int>(static_cast<std::size_t>(of.count), 100 * of.tag + rank + 1);
  }

  UnderWay& begin(const Communicator& on, Tag tag, int count, MemoryKind received) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(int);
    auto& begun = under_way_.emplace_back(UnderWay{on, tag, count, Memory(sent_, bytes), Memory(received, bytes), {}});
    begun.out.fill(contents(rank_, begun));
    begun.in.fill(std::vector<int>(static_cast<std::size_t>(count), -1));
    return begun;
  }

  // One into each kind of memory.
  template <class Body>
  void for_each_kind(const Communicator& on, const Body& body) {
    for (const int count : counts) {
      for (const MemoryKind received : {MemoryKind::host, sent_}) {
        CROSSLANE_STEP("{} ints into {} memory on {}", count, name(received), on.name);
        body(count, received);
      }
    }
  }

  static void send(UnderWay& one) {
    MPI_Request* const request = &one.requests.emplace_back(MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Isend(one.out.data(), one.count, MPI_INT, one.on.peer, one.tag, one.on.comm, request));
  }
  static void receive(UnderWay& one) {
    MPI_Request* const request = &one.requests.emplace_back(MPI_REQUEST_NULL);
    CROSSLANE_MPI(MPI_Irecv(one.in.data(), one.count, MPI_INT, one.on.peer, one.tag, one.on.comm, request));
  }

  void send_early(const Communicator& on) {
    for_each_kind(on, [&](int count, MemoryKind received) { send(begin(on, sent_early, count, received)); });
  }
  // MPI_Finalize is not to wait for these, whose receiver comes behind it.
  void send_and_free(const Communicator& on) {
    for_each_kind(on, [&](int count, MemoryKind received) {
      auto& one = begin(on, freed, count, received);
      send(one);
      CROSSLANE_MPI(MPI_Request_free(&one.requests.back()));
      one.requests.clear();
    });
  }
  void receive_early(const Communicator& on) {
    for_each_kind(on, [&](int count, MemoryKind received) { receive(begin(on, received_early, count, received)); });
  }
  void prepare(const Communicator& on) {
    for_each_kind(on, [&](int count, MemoryKind received) {
      auto& one = begin(on, prepared, count, received);
      one.requests.assign(2, MPI_REQUEST_NULL);
      CROSSLANE_MPI(MPI_Recv_init(one.in.data(), count, MPI_INT, on.peer, prepared, on.comm, &one.requests[0]));
      CROSSLANE_MPI(MPI_Send_init(one.out.data(), count, MPI_INT, on.peer, prepared, on.comm, &one.requests[1]));
    });
  }
  void match(const Communicator& on) {
    for_each_kind(on, [&](int count, MemoryKind received) {
      auto& one = begin(on, matched, count, received);
      send(one);
      MPI_Message message = MPI_MESSAGE_NULL;
      CROSSLANE_MPI(MPI_Mprobe(on.peer, matched, on.comm, &message, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Imrecv(one.in.data(), count, MPI_INT, &message, &one.requests.emplace_back(MPI_REQUEST_NULL)));
    });
  }

  void exchange(const Communicator& on) {
    for_each_kind(on, [&](int count, MemoryKind received) {
      const auto& one = begin(on, exchanged, count, received);
      MPI_Status status;
      CROSSLANE_MPI(MPI_Sendrecv(one.out.data(), count, MPI_INT, on.peer, exchanged, one.in.data(), count, MPI_INT,
                                 on.peer, exchanged, on.comm, &status));
      check(one, status, "MPI_Sendrecv");
      under_way_.pop_back();
    });
  }

  void complete(const char* what) {
    for (auto& one : under_way_) {
      CROSSLANE_STEP("{}: {} ints on {}", what, one.count, one.on.name);
      for (auto& request : one.requests) {
        MPI_Status status;
        CROSSLANE_MPI(MPI_Wait(&request, &status));
        if (&request == received_by(one)) check(one, status, what);
        if (one.tag == prepared) CROSSLANE_MPI(MPI_Request_free(&request));
      }
    }
    under_way_.clear();
  }
  static const MPI_Request* received_by(const UnderWay& one) {
    return one.tag == received_early || one.tag == prepared ? &one.requests.front() : &one.requests.back();
  }

  void check(const UnderWay& one, const MPI_Status& status, const char* what) const {
    int got = -1;
    CROSSLANE_MPI(MPI_Get_count(&status, MPI_INT, &got));
    CROSSLANE_CHECK_EQUAL(got, one.count);
    CROSSLANE_CHECK(one.in.values<int>() == contents(1 - rank_, one), "{} on {}", what, one.on.name);
  }

  const MemoryKind sent_;
  const int rank_;
  std::vector<Communicator> communicators_;
  std::deque<UnderWay> under_way_;
  int failures_ = 0;
};

int run(bool on_gpu) {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) return 1;
  CROSSLANE_MPI(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  int rank = 0, all = 0;
  CROSSLANE_MPI(MPI_Group_rank(group, &rank));
  MPI_Group_free(&group);
  describe_process("lifecycle_sessions_beside", rank, 0);
  {
    const Watchdog watchdog(60);
    const std::optional<Device> device = on_gpu ? std::optional<Device>(std::in_place, rank) : std::nullopt;
    Beside beside(on_gpu ? MemoryKind::device : MemoryKind::host, rank);
    beside.run(session);
    all = beside.failed();
  }
  CROSSLANE_MPI(MPI_Session_finalize(&session));
  if (rank == 0) static_cast<void>(std::fprintf(stderr, "lifecycle_sessions_beside: %d checks failed\n", all));
  return all == 0 ? 0 : 1;
}

#else

int run(bool /*on_gpu*/) {
  static_cast<void>(std::fprintf(stderr, "lifecycle_sessions_beside: skipped, this MPI has no sessions\n"));
  return 77;
}

#endif

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) { return crosslane::tests::run(argc < 3 || std::string_view(argv[2]) != "host"); }
