// See job.h.
#include "direct/job.h"

#include "support/linger.h"
#include "support/sharing.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace crosslane::tests {

namespace {

// Whether a rank sends something else to each other one.
bool personal(Kind kind) {
  return kind == Kind::alltoall || kind == Kind::scatter || kind == Kind::reduce_scatter_block;
}

bool gathers(Kind kind) { return kind == Kind::allgather || kind == Kind::alltoall || kind == Kind::gather; }

bool sends(const Case& what, int rank) {
  if (what.kind == Kind::broadcast) return false;
  if (what.kind == Kind::scatter) return rank == what.root;
  const bool in_place =
      what.in_place && (rank == what.root || (what.kind != Kind::reduce && what.kind != Kind::gather));
  return !in_place;
}

bool receives(const Case& what, int rank) {
  if (what.kind == Kind::reduce || what.kind == Kind::gather) return rank == what.root;
  if (what.kind == Kind::scatter) return !(what.in_place && rank == what.root);
  if (what.kind == Kind::exscan) return rank > 0 || what.in_place;
  return true;
}

std::vector<std::byte> part_of(const std::vector<std::byte>& whole, std::size_t block, std::size_t bytes) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(block * bytes);
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
}

Buffer buffer(const Program& program, const Case& what, const Manners& manners, Random& local, std::size_t units,
              std::size_t block_units) {
  const Base& base = what.element->base;
  const bool combines = combining(what.kind);
  const bool may_derive = !combines && block_units > 0 && block_units * base.extent <= manners.most_derived;
  const bool derived = local.chance(manners.derived) && may_derive;
  constexpr int most_in_type = 48;
  Type type = derived ? random_type(local, base, random_divisor(local, static_cast<int>(block_units), most_in_type))
                      : base_type_of(base);
  if (static_cast<std::int64_t>(units) / type.elements() > type.most) type = base_type_of(base);
  // Elements are aligned as the language wants it; bytes that are only moved may lie anywhere.
  const std::size_t offset = combines ? what.element->alignment * local.below(5) : local.below(33);
  const MemoryKind kind = manners.kind(local);
  const bool elsewhere = manners.other != nullptr && local.chance(30);
  if (elsewhere) manners.other->make_current();
  Buffer made(kind, base, std::move(type), units, offset, local.next());
  if (elsewhere) program.device()->make_current();
  return made;
}

}  // namespace

std::string Case::text() const {
  return fmt::format("{} of {} {} ({} bytes){}{}, root {}", kind_names.at(static_cast<std::size_t>(kind)), units,
                     element->base.name, bytes(), combining(kind) ? ", " + op_name : std::string{},
                     in_place ? ", in place" : "", root);
}

void leave_to_mpi(Case& what) {
  what.whole = true;
#if CROSSLANE_TEST_MPI_MPICH
  // MPICH 4.0.2 crashes by itself in longer ones whose root is not 0, and cannot scatter what has gaps.
  if (what.kind == Kind::reduce) what.in_place = false;
  if (!combining(what.kind) && has_gaps(*what.element)) what.element = &elements().front();
#endif
  if (!what.element->exact && what.op == MPI_PROD) std::tie(what.op_name, what.op) = what.element->ops[0];
}

std::size_t Case::sent_bytes() const {
  if (combining(kind)) return bytes();
  int size = 0;
  MPI_Type_size(element->base.type, &size);
  return units * static_cast<std::size_t>(size);
}

Manners on_the_gpu() {
  return {.kind = [](Random&) { return MemoryKind::device; }};
}

Case sum_of_ints(std::size_t units, std::uint64_t seed, int repeats) {
  const Element* ints = nullptr;
  for (const Element& element : elements())
    if (element.base.type == MPI_INT) ints = &element;
  Case what{.kind = Kind::allreduce, .element = ints, .op = MPI_SUM, .op_name = "sum", .units = units};
  what.repeats = repeats;
  what.seed = seed;
  return what;
}

std::int64_t direct_calls(Kind kind, const char* algorithm) {
  return direct_calls(std::string(kind_names.at(static_cast<std::size_t>(kind))), algorithm);
}

Job::Job(const Program& program, MPI_Comm communicator, std::string name)
    : program_(program), communicator_(communicator), name_(std::move(name)) {
  MPI_Comm_size(communicator_, &size_);
  MPI_Comm_rank(communicator_, &me_);
  in_turns_ = take_turns(communicator_);
}

std::vector<int> Job::world_ranks() const {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Comm_group(communicator_, &group);
  std::vector<int> ranks(static_cast<std::size_t>(size_)), there(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Group_translate_ranks(group, size_, ranks.data(), world, there.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return there;
}

bool Job::on_one_node() const {
  const auto node = static_cast<int>(program_.option("node", 0));
  const auto ranks = world_ranks();
  return node == 0 || std::ranges::all_of(ranks, [&](int rank) { return rank / node == ranks.front() / node; });
}

bool Job::goes_direct(const Case& what) const {
  if (!in_turns_) return true;
  if (what.kind == Kind::allreduce && program_.option("driven", 0) != 0) return true;
  const bool drivable = what.kind == Kind::allreduce || what.kind == Kind::reduce || what.kind == Kind::broadcast;
  return drivable && what.sent_bytes() >= direct_in_turns_from;
}

void Job::warm_up() const {
  // One shows the window, the next maps those of others; a barrier after each: all ranks are past it.
  for (int step = 0; step < 2; ++step) {
    CROSSLANE_STEP("{}: preparing, call {}", name_, step);
    Memory one(MemoryKind::device, sizeof(int));
    one.fill(std::vector<int>{me_});
    CROSSLANE_MPI(MPI_Allreduce(MPI_IN_PLACE, one.data(), 1, MPI_INT, MPI_SUM, communicator_));
    CROSSLANE_CHECK_EQUAL(one.values<int>().front(), size_ * (size_ - 1) / 2);
    polite_barrier(communicator_);
  }
}

std::vector<std::byte> Job::contribution(const Case& what, int rank) const {
  std::vector<std::byte> data(what.bytes() * (personal(what.kind) ? static_cast<std::size_t>(size_) : 1));
  Random random(mix(what.seed, rank, 5));
  what.element->fill(random, data, what.whole);
  return data;
}

std::vector<std::byte> Job::combined(const Case& what, int ranks, int block) const {
  std::vector<std::byte> result;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto theirs = part_of(contribution(what, rank), static_cast<std::size_t>(block), what.bytes());
    if (rank == 0) {
      result = theirs;
      continue;
    }
    for (std::size_t at = 0; at < theirs.size(); at += what.element->base.extent)
      what.element->combine(what.op, &result[at], &theirs[at]);
  }
  return result;
}

std::vector<std::byte> Job::expected(const Case& what) const {
  std::vector<std::byte> result;
  switch (what.kind) {
    case Kind::allreduce:
    case Kind::reduce:
      return combined(what, size_, 0);
    case Kind::reduce_scatter_block:
      return combined(what, size_, me_);
    case Kind::scan:
      return combined(what, me_ + 1, 0);
    case Kind::exscan:
      return me_ == 0 ? contribution(what, 0) : combined(what, me_, 0);  // in place rank 0 keeps what it has
    case Kind::broadcast:
      return contribution(what, what.root);
    case Kind::scatter:
      return part_of(contribution(what, what.root), static_cast<std::size_t>(me_), what.bytes());
    default:
      for (int rank = 0; rank < size_; ++rank) {
        const auto block = static_cast<std::size_t>(what.kind == Kind::alltoall ? me_ : 0);
        const auto theirs = part_of(contribution(what, rank), block, what.bytes());
        result.insert(result.end(), theirs.begin(), theirs.end());
      }
      return result;
  }
}

Job::Arguments Job::arguments(const Run& run) const {
  const Case& what = run.what;
  const MPI_Datatype type = what.element->base.type;
  const int count = static_cast<int>(what.units);
  Arguments all{run.send ? run.send->address() : nullptr,
                run.send ? run.send->count_of(what.units) : count,
                run.send ? run.send->type() : type,
                run.receive ? run.receive->address() : nullptr,
                run.receive ? run.receive->count_of(what.units) : count,
                run.receive ? run.receive->type() : type};
  const bool rooted = what.kind == Kind::reduce || what.kind == Kind::gather || what.kind == Kind::scatter;
  const bool in_place = what.in_place && (!rooted || me_ == what.root);
  if (in_place && what.kind == Kind::scatter) all.receive = MPI_IN_PLACE;
  if (in_place && what.kind != Kind::scatter) all.send = MPI_IN_PLACE;
  return all;
}

void Job::call(const Run& run, Form form, MPI_Request* request) const {
  static int unlike = 0x5a5a5a5a;  // a nonblocking call may look at it later
  const int before = unlike;
  constexpr std::array<const char*, 10> procedures{
      "Allreduce", "Reduce", "Bcast",   "Allgather", "Reduce_scatter_block",
      "Alltoall",  "Gather", "Scatter", "Scan",      "Exscan"};
  const Case& what = run.what;
  const EntryPoint entry = EntryPoint::find(procedures.at(static_cast<std::size_t>(what.kind)), form, false);
  const MPI_Comm comm = communicator_;
  const int root = what.root;
  auto [send, send_count, send_type, receive, receive_count, receive_type] = arguments(run);
  // Not significant where there is none, but MPICH refuses a null pointer on rank 0 of an exclusive scan.
  if (what.kind == Kind::exscan && receive == nullptr) receive = &unlike;
  const int count = static_cast<int>(what.units);
  const MPI_Datatype type = what.element->base.type;
  switch (what.kind) {
    case Kind::allreduce:
    case Kind::scan:
    case Kind::exscan:
    case Kind::reduce_scatter_block:
      CROSSLANE_MPI(entry(request, send, receive, count, type, what.op, comm));
      break;
    case Kind::reduce:
      CROSSLANE_MPI(entry(request, send, receive, count, type, what.op, root, comm));
      break;
    case Kind::broadcast:
      CROSSLANE_MPI(entry(request, receive, receive_count, receive_type, root, comm));
      break;
    case Kind::allgather:
    case Kind::alltoall:
      CROSSLANE_MPI(entry(request, send, send_count, send_type, receive, receive_count, receive_type, comm));
      break;
    case Kind::gather:
    case Kind::scatter:
      CROSSLANE_MPI(entry(request, send, send_count, send_type, receive, receive_count, receive_type, root, comm));
      break;
  }
  CROSSLANE_CHECK(unlike == before, "a receive buffer that is not significant was written to");
}

Job::Run Job::make(const Case& what, const Manners& manners, Random& local) const {
  const auto n = static_cast<std::size_t>(size_);
  const bool whole_in_place = what.in_place && what.kind == Kind::reduce_scatter_block;
  Run run{.what = what, .send = {}, .receive = {}, .mine = {}, .result = {}};
  if (what.kind != Kind::scatter || me_ == what.root) run.mine = contribution(what, me_);
  if (sends(what, me_)) {
    run.send.emplace(buffer(program_, what, manners, local, what.units * (personal(what.kind) ? n : 1), what.units));
  }
  if (receives(what, me_)) {
    run.receive.emplace(buffer(program_, what, manners, local,
                               what.units * (gathers(what.kind) || whole_in_place ? n : 1), what.units));
    run.result = expected(what);
  }
  return run;
}

void Job::load(Run& run, Random& local) const {
  const Case& what = run.what;
  if (run.send) run.send->load(run.mine, 0, local.next());
  if (!run.receive) return;
  const bool loaded = what.kind == Kind::broadcast ? me_ == what.root : what.in_place && what.kind != Kind::scatter;
  const bool own_block = what.kind == Kind::allgather || what.kind == Kind::gather;
  const std::size_t at = own_block ? static_cast<std::size_t>(me_) * what.units : 0;
  run.receive->load(loaded ? run.mine : std::vector<std::byte>{}, at, local.next());
}

void Job::check(Run& run) const {
  const Case& what = run.what;
  if (run.receive) {
    run.receive->expect(run.result);
    if (what.in_place && what.kind == Kind::reduce_scatter_block)
      run.receive->forget(what.units, what.units * (static_cast<std::size_t>(size_) - 1));
    run.receive->check("what was received");
  }
  if (run.send) run.send->check("what was sent");
}

void Job::run(const Case& what, const Manners& manners, Random& local, const std::function<void(int)>& after) const {
  CROSSLANE_STEP("{}: {}, seed {}", name_, what.text(), what.seed);
  Run run = make(what, manners, local);
  for (int repeat = 0; repeat < what.repeats; ++repeat) {
    load(run, local);
    // Ranks arrive in any order.
    linger(local.chance(30) ? local.below(200) : 0);
    call(run);
    check(run);
    if (after) after(repeat);
  }
}

void Job::compare_with_mpi(const Case& what) const {
  if (!combining(what.kind) || !what.element->exact || what.units == 0) return;
  CROSSLANE_STEP("{}: {} by MPI itself", name_, what.text());
  const auto mine = contribution(what, me_);
  std::vector<std::byte> result(what.bytes());
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(what.units);
  const MPI_Datatype type = what.element->base.type;
  const MPI_Comm comm = communicator_;
  switch (what.kind) {
    case Kind::allreduce:
      CROSSLANE_MPI(MPI_Iallreduce(mine.data(), result.data(), count, type, what.op, comm, &request));
      break;
    case Kind::reduce:
      CROSSLANE_MPI(MPI_Ireduce(mine.data(), result.data(), count, type, what.op, what.root, comm, &request));
      break;
    case Kind::scan:
      CROSSLANE_MPI(MPI_Iscan(mine.data(), result.data(), count, type, what.op, comm, &request));
      break;
    case Kind::exscan:
      CROSSLANE_MPI(MPI_Iexscan(mine.data(), result.data(), count, type, what.op, comm, &request));
      break;
    default:
      CROSSLANE_MPI(MPI_Ireduce_scatter_block(mine.data(), result.data(), count, type, what.op, comm, &request));
      break;
  }
  polite_wait(request);
  const bool has_result = what.kind == Kind::reduce ? me_ == what.root : what.kind != Kind::exscan || me_ > 0;
  if (!has_result) return;
  Buffer host(MemoryKind::host, what.element->base, base_type_of(what.element->base), what.units, 0, 1);
  host.load(result, 0, 1);
  host.expect(expected(what));
  host.check("MPI's own result");
}

}  // namespace crosslane::tests
