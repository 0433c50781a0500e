// Every collective in every form, with random arguments in random memory, against plain MPI on host copies.
// Options beside Program's: --only <MPI procedure>, --form <blocking|nonblocking|persistent>, --cases <number a
// procedure>, --first <case>, --rounds <starts of each persistent operation>, --seconds <limit>.
#include "collectives/collective.h"
#include "collectives/completion.h"
#include "support/plain_mpi.h"
#include "support/program.h"

#include <sched.h>

#include <array>
#include <chrono>

using namespace crosslane::tests;

namespace {

struct Procedure {
  const Collective* collective;
  EntryPoint plain, large;
};

std::vector<Procedure> procedures(const std::string& only, const std::string& form_name) {
  constexpr std::array<std::pair<const char*, Form>, 3> forms{
      {{"blocking", Form::blocking}, {"nonblocking", Form::nonblocking}, {"persistent", Form::persistent}}};
  std::vector<Procedure> result;
  for (const auto& collective : collectives()) {
    for (const auto& [form_text, form] : forms) {
      if (!form_name.empty() && form_name != form_text) continue;
      Procedure procedure{&collective, EntryPoint::find(collective.name, form, false),
                          EntryPoint::find(collective.name, form, true)};
      auto standard_name = procedure.plain.name;
      if (standard_name.starts_with("MPIX_")) standard_name.erase(3, 1);
      if (only.empty() || only == standard_name) result.push_back(std::move(procedure));
    }
  }
  return result;
}

// An inter-communicator for one call alone: ranks that take no part in a rooted collective do not count it in either MPI,
// so that the next one on the same inter-communicator takes wrong messages.
class PrivateInter {
 public:
  explicit PrivateInter(Call& call) : call_(call), before_(call.comm) {
    if (call.group->kind == Group::Kind::inter) CROSSLANE_MPI(MPI_Comm_dup(call.group->comm, &call.comm));
  }
  ~PrivateInter() {
    if (call_.comm != before_) MPI_Comm_free(&call_.comm);
    call_.comm = before_;
  }
  PrivateInter(const PrivateInter&) = delete;
  PrivateInter& operator=(const PrivateInter&) = delete;

 private:
  Call& call_;
  MPI_Comm before_;
};

/// One call under way.
struct Running {
  Call call;
  const Procedure* procedure;
  const EntryPoint* entry;
  MPI_Request request = MPI_REQUEST_NULL;
};

class Test {
 public:
  Test(Program& program, Groups& groups, Reductions& reductions)
      : program_(program), groups_(groups), reductions_(reductions) {}

  void run_case(const std::vector<Procedure>& all, const Procedure& first, std::uint64_t seed) {
    Random common(mix(seed)), mine(mix(seed, program_.rank + 1));
    const Form form = first.plain.form;
    std::vector<Running> running;
    const auto calls = form == Form::blocking ? 1 : common.between(1, form == Form::nonblocking ? 5 : 3);
    for (int i = 0; i < calls; ++i) {
      const Procedure* procedure = i == 0 ? &first : &common.pick(all);
      if (procedure->plain.form != form || procedure->plain.address == nullptr) procedure = &first;
      running.push_back(prepare(*procedure, mix(seed, i, 99), mine));
    }
    CROSSLANE_STEP("{}", describe(running));
    std::vector<std::unique_ptr<PrivateInter>> own;
    for (auto& one : running) own.push_back(std::make_unique<PrivateInter>(one.call));
    refer(running);
    switch (form) {
      case Form::blocking:
        blocking(running.front(), mine);
        break;
      case Form::nonblocking:
        nonblocking(running, mine);
        break;
      case Form::persistent:
        persistent(running, rounds(common.between(1, 3)), mine);
        break;
    }
  }

 private:
  Running prepare(const Procedure& procedure, std::uint64_t seed, Random& mine) {
    // Ranks of different communicators draw differently from here on: each call has numbers of its own.
    Random common(mix(seed));
    Running running;
    running.procedure = &procedure;
    const Defects defects = defects_of(procedure.collective->name);
    running.entry = procedure.large.address != nullptr && common.chance(40) ? &procedure.large : &procedure.plain;
    const auto& kinds = procedure.collective->kinds;
    const auto kind =
        kinds.size() > 1 && groups_.has(kinds[1]) && common.chance(35) && !defects.inter ? kinds[1] : kinds[0];
    auto& call = running.call;
    call.group = &groups_.pick(common, kind);
    while ((defects.alone && kind == Group::Kind::intra && call.group->has_lonely_rank) ||
           (defects.directed && call.group->directed))
      call.group = &groups_.pick(common, kind);
    call.comm = call.group->comm;
    const bool persistent = procedure.plain.form == Form::persistent;
    if (procedure.collective->reduces)
      call.reduction =
          reductions_.pick(common, !defects.user_defined && !(persistent && defects.user_defined_persistent));
    const Base& base = common.pick(bases());
    const Traffic traffic(common, base, call.group->sizes[0] + call.group->sizes[1], procedure.collective->same_counts);
    const Draw draw{mine, program_};
    procedure.collective->build(call, common, draw, base, traffic);
    // MPICH takes two null buffers for aliased ones, and looks at a reduction's buffers where they are not significant;
    // Open MPI refuses null where there is no neighbour.
    const bool never_null = call.reduction || kind == Group::Kind::topology;
    if (call.receive.address() == nullptr && (never_null || call.send.address() == nullptr))
      call.receive.give_memory(draw);
    if (call.send.address() == nullptr && never_null) call.send.give_memory(draw);
    call.text = fmt::format("{} on {} root {}", running.entry->name, call.group->text, call.root);
    if (call.reduction)
      call.text += ", " + call.reduction->text;
    else
      call.text += fmt::format(", {} to {}", call.send.text(), call.receive.text());
    return running;
  }

  [[nodiscard]] int rounds(int drawn) const {
    if (plain_mpi().persistent_collectives_read_too_early) return 1;
    return static_cast<int>(program_.option("rounds", drawn));
  }

  static std::string describe(const std::vector<Running>& running) {
    std::string text;
    for (const auto& one : running) text += (text.empty() ? "" : "; ") + one.call.text;
    return text;
  }

  // Plain MPI on the host copies, by nonblocking calls: spinning in blocking ones is slow where ranks share cores.
  static void refer(std::vector<Running>& running) {
    for (auto& one : running) {
      const auto entry = EntryPoint::find(one.procedure->collective->name, Form::nonblocking, false);
      MPI_Request request = MPI_REQUEST_NULL;
      const PrivateInter own(one.call);
      CROSSLANE_MPI(one.procedure->collective->issue(one.call, entry, true, &request));
      polite_wait(request);
    }
  }

  // Ranks arrive at different times.
  static void linger(Random& mine) {
    if (!mine.chance(30)) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(mine.below(2000));
    while (std::chrono::steady_clock::now() < end) sched_yield();
  }

  static void issue(Running& one, Random& mine) {
    linger(mine);
    CROSSLANE_MPI(one.procedure->collective->issue(one.call, *one.entry, false, &one.request));
  }

  static void release_types(Running& one, Random& mine) {
    if (one.call.reduction || !mine.chance(40)) return;
    one.call.send.release_types();
    one.call.receive.release_types();
  }

  static void blocking(Running& one, Random& mine) {
    issue(one, mine);
    one.call.check(one.call.text);
  }

  static void complete(std::vector<Running>& running, Random& mine) {
    std::vector<MPI_Request> requests;
    for (const auto& one : running) requests.push_back(one.request);
    std::vector<std::size_t> order(running.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    mine.shuffle(order);
    std::vector<MPI_Request> shuffled;
    for (const auto i : order) shuffled.push_back(requests[i]);
    complete_in_random_order(shuffled, mine, running.front().procedure->plain.form == Form::persistent);
    for (std::size_t i = 0; i < order.size(); ++i) running[order[i]].request = shuffled[i];
    for (auto& one : running) one.call.check(one.call.text);
  }

  static void nonblocking(std::vector<Running>& running, Random& mine) {
    for (auto& one : running) {
      issue(one, mine);
      release_types(one, mine);
    }
    complete(running, mine);
    for (const auto& one : running) CROSSLANE_CHECK(one.request == MPI_REQUEST_NULL, "a completed request is not null");
  }

  static void persistent(std::vector<Running>& running, int rounds, Random& mine) {
    for (auto& one : running) {
      issue(one, mine);
    }
    for (int round = 0; round < rounds; ++round) {
      if (round > 0) {
        for (auto& one : running) {
          one.call.send.refill(mine);
          one.call.receive.refill(mine);
        }
        refer(running);
      }
      // Collectives of one communicator are started in the same order on all ranks: an array only of one.
      for (auto& one : running) {
        linger(mine);
        if (mine.chance(30))
          CROSSLANE_MPI(MPI_Startall(1, &one.request));
        else
          CROSSLANE_MPI(MPI_Start(&one.request));
      }
      complete(running, mine);
    }
    for (auto& one : running) CROSSLANE_MPI(MPI_Request_free(&one.request));
  }

  Program& program_;
  Groups& groups_;
  Reductions& reductions_;
};

// Rank 0's clock decides for all.
bool time_is_up(const Program& program, std::chrono::steady_clock::time_point end, bool limited) {
  if (!limited) return false;
  int over = program.rank == 0 && std::chrono::steady_clock::now() > end ? 1 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  CROSSLANE_MPI(MPI_Ibcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD, &request));
  polite_wait(request);
  return over != 0;
}

}  // namespace

int main(int argc, char** argv) {
  Program program(argc, argv, "collectives");
  const auto only = program.text_option("only", ""), form = program.text_option("form", "");
  const auto all = procedures(only, form);
  const auto cases = program.option("cases", 6), seconds = program.option("seconds", 0);
  const auto first_case = program.option("first", 0);
  if (all.empty()) {
    fmt::print(stderr, "collectives: no collective is called {} or has a form {}\n", only, form);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::int64_t calls = 0, absent = 0;
  {
    Groups groups(program.shared());
    Reductions reductions;
    Test test(program, groups, reductions);
    bool over = false;
    for (std::int64_t i = first_case; i < cases && !over; ++i) {
      for (std::size_t j = 0; j < all.size() && !over; ++j) {
        if (all[j].plain.address == nullptr) {
          ++absent;
          continue;
        }
        test.run_case(all, all[j], mix(program.seed, i, std::hash<std::string>{}(all[j].plain.name)));
        ++calls;
        over = time_is_up(program, end, seconds > 0);
      }
    }
  }
  if (program.rank == 0)
    fmt::print(stderr, "collectives: {} cases, {} of procedures that this MPI lacks\n", calls, absent);
  const int status = program.finish();
  return status == 0 && calls == 0 ? 77 : status;
}
