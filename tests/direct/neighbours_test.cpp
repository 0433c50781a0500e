// Direct neighbourhood collectives, all five in all their forms, on random topologies (neighbours.h), each rank with buffers of its own
// kind: which edges meet is what the MPI itself says in host memory, what goes along them is computed from the seed.
//   --memory device       every rank passes memory of its GPU: each call must go direct where all ranks know which edges meet
//   --memory mixed|random some ranks pass other memory, or derived types: any way is right
//   --algorithm <name>    by which some calls must go
//   --topologies <n>; --node, --direct, --most   as direct_test.cpp has them
//   --plain 1             with --memory pinned --direct 0 and without Crosslane: what the MPI does by itself
#include "direct/neighbours.h"
#include "collectives/completion.h"
#include "direct/job.h"
#include "support/linger.h"
#include "support/plain_mpi.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace crosslane::tests {
namespace {

enum class What { allgather, allgatherv, alltoall, alltoallv, alltoallw };
constexpr std::array<const char*, 5> procedures{"Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall",
                                                "Neighbor_alltoallv", "Neighbor_alltoallw"};

bool gathers(What what) { return what == What::allgather || what == What::allgatherv; }
bool even(What what) { return what == What::allgather || what == What::alltoall; }

/// One call, the same on all ranks.
struct Call {
  What what = What::alltoallv;
  Form form = Form::blocking;
  const Element* element = nullptr;
  int granule = 1;       ///< Units of which all blocks are whole numbers: so types of so many fit all.
  std::size_t most = 0;  ///< Granules of a block.
  unsigned empty = 0;    ///< Percent of the blocks.
  std::uint64_t seed = 0;

  [[nodiscard]] const char* procedure() const { return procedures.at(static_cast<std::size_t>(what)); }
  /// Units of the block that a rank sends; of all blocks, or of all of a rank, where the procedure has one count for them.
  [[nodiscard]] std::size_t units(const Sender& from) const {
    Random random(mix(seed, even(what) ? 0 : from.rank, gathers(what) || even(what) ? 0 : from.block, 3));
    return random.chance(empty) ? 0 : random.below(most + 1) * static_cast<std::size_t>(granule);
  }
  [[nodiscard]] std::vector<std::byte> content(const Sender& from) const {
    std::vector<std::byte> data(units(from) * element->base.extent);
    Random random(mix(seed, from.rank, gathers(what) ? 0 : from.block, 5));
    element->fill(random, data, false);
    return data;
  }
  [[nodiscard]] std::string text() const {
    constexpr std::array<const char*, 3> forms{"", ", nonblocking", ", persistent"};
    return fmt::format("{}{} of up to {} bytes of {}", procedure(), forms.at(static_cast<std::size_t>(form)),
                       most * static_cast<std::size_t>(granule) * element->base.extent, element->base.name);
  }
};

/// A buffer of blocks, and the arguments that describe it.
struct Side {
  std::unique_ptr<Buffer> buffer;
  std::vector<std::size_t> at;  // units, by block
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::vector<int> counts, places;
  std::vector<MPI_Count> wide_counts;
  std::vector<MPI_Aint> wide_places;  // of the w form: bytes
  std::vector<MPI_Datatype> types, made;

  Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() {
    for (MPI_Datatype& each : made) MPI_Type_free(&each);
  }
  [[nodiscard]] void* address() const { return buffer ? buffer->address() : nullptr; }
};

/// How a rank makes its buffers.
struct Ways {
  std::function<MemoryKind(Random&)> kind;
  unsigned derived = 0, absent = 0;  ///< Percent.
  bool large = true;
};

class Exchange {
 public:
  Exchange(const Call& call, const Topology& topology, int me, const Ways& ways, Random& local)
      : call_(call),
        topology_(topology),
        me_(me),
        senders_(topology.senders(call.procedure(), call.form)),
        entry_(EntryPoint::find(call.procedure(), call.form, false)) {
    if (const EntryPoint large = EntryPoint::find(call.procedure(), call.form, true);
        large.address != nullptr && ways.large && local.chance(30))
      entry_ = large;
    std::vector<std::size_t> out, in;
    const std::size_t blocks_out = gathers(call.what) ? 1 : topology.out().size();
    for (std::size_t block = 0; block < blocks_out; ++block) out.push_back(call.units({me, static_cast<int>(block)}));
    for (const Sender& sender : senders_) in.push_back(call.units(sender));
    make(send_, out, !even(call.what) && !gathers(call.what), ways, local);
    make(receive_, in, !even(call.what), ways, local);
  }

  void load(Random& local) {
    const std::size_t extent = call_.element->base.extent;
    if (send_.buffer) {
      std::vector<std::byte> content = pattern(local.next(), units_of(send_) * extent);
      for (std::size_t block = 0; block < send_.at.size(); ++block)
        std::ranges::copy(call_.content({me_, static_cast<int>(block)}),
                          content.begin() + static_cast<std::ptrdiff_t>(send_.at[block] * extent));
      send_.buffer->load(content, 0, local.next());
    }
    if (receive_.buffer) receive_.buffer->load({}, 0, local.next());
  }

  void issue(MPI_Request* request) {
    const MPI_Comm comm = topology_.communicator();
    const void* const from = send_.address();
    void* const to = receive_.address();
    // Open MPI (4.1) refuses an all-to-all of a rank that sends nobody another number of bytes than it would receive.
    const int all = even(call_.what) ? static_cast<int>(call_.units({})) : 0;
    const int send_count = send_.counts.empty() ? all : send_.counts.front();
    const int receive_count = receive_.counts.empty() ? all : receive_.counts.front();
    const auto wide = [](int count) { return MPI_Count{count}; };
    switch (call_.what) {
      case What::allgather:
      case What::alltoall:
        if (entry_.large)
          CROSSLANE_MPI(
              entry_(request, from, wide(send_count), send_.type, to, wide(receive_count), receive_.type, comm));
        else
          CROSSLANE_MPI(entry_(request, from, send_count, send_.type, to, receive_count, receive_.type, comm));
        break;
      case What::allgatherv:
        if (entry_.large)
          CROSSLANE_MPI(entry_(request, from, wide(send_count), send_.type, to, receive_.wide_counts.data(),
                               receive_.wide_places.data(), receive_.type, comm));
        else
          CROSSLANE_MPI(entry_(request, from, send_count, send_.type, to, receive_.counts.data(),
                               receive_.places.data(), receive_.type, comm));
        break;
      case What::alltoallv:
        if (entry_.large)
          CROSSLANE_MPI(entry_(request, from, send_.wide_counts.data(), send_.wide_places.data(), send_.type, to,
                               receive_.wide_counts.data(), receive_.wide_places.data(), receive_.type, comm));
        else
          CROSSLANE_MPI(entry_(request, from, send_.counts.data(), send_.places.data(), send_.type, to,
                               receive_.counts.data(), receive_.places.data(), receive_.type, comm));
        break;
      case What::alltoallw:
        if (entry_.large)
          CROSSLANE_MPI(entry_(request, from, send_.wide_counts.data(), send_.wide_places.data(), send_.types.data(),
                               to, receive_.wide_counts.data(), receive_.wide_places.data(), receive_.types.data(),
                               comm));
        else
          CROSSLANE_MPI(entry_(request, from, send_.counts.data(), send_.wide_places.data(), send_.types.data(), to,
                               receive_.counts.data(), receive_.wide_places.data(), receive_.types.data(), comm));
        break;
    }
  }

  void check() {
    if (receive_.buffer) {
      for (std::size_t block = 0; block < senders_.size(); ++block)
        if (senders_[block].rank != MPI_PROC_NULL)
          receive_.buffer->expect(call_.content(senders_[block]), receive_.at[block]);
      receive_.buffer->check("what was received");
    }
    if (send_.buffer) send_.buffer->check("what was sent");
  }

 private:
  static constexpr int most_in_type = 48;
  static constexpr std::size_t most_derived = 64000;

  [[nodiscard]] std::size_t units_of(const Side& side) const { return &side == &send_ ? send_units_ : receive_units_; }

  // Blocks one behind the other, or in any order and with gaps in between.
  void make(Side& side, const std::vector<std::size_t>& blocks, bool scattered, const Ways& ways, Random& local) {
    const auto granule = static_cast<std::size_t>(call_.granule);
    std::vector<std::size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (scattered) local.shuffle(order);
    side.at.resize(blocks.size());
    std::size_t units = 0;
    for (const std::size_t block : order) {
      if (scattered && local.chance(40)) units += granule * local.below(20);
      side.at[block] = units;
      units += blocks[block];
    }
    const Base& base = call_.element->base;
    side.type = base.type;
    int elements = 1;
    if (units > 0 || !local.chance(ways.absent)) {
      units = std::max(units, granule);
      Type type = base_type_of(base);
      if (!blocks.empty() && local.chance(ways.derived) && units * base.extent <= most_derived) {
        elements = random_divisor(local, call_.granule, most_in_type);
        do type = random_type(local, base, elements);
        while (static_cast<std::int64_t>(units) / elements > type.most);
      }
      side.type = type.handle;
      side.buffer =
          std::make_unique<Buffer>(ways.kind(local), base, std::move(type), units, local.below(33), local.next());
    }
    (&side == &send_ ? send_units_ : receive_units_) = side.buffer ? units : 0;
    describe(side, blocks, elements, local);
  }

  void describe(Side& side, const std::vector<std::size_t>& blocks, int elements, Random& local) const {
    MPI_Aint lower = 0, extent = 0;
    MPI_Type_get_extent(side.type, &lower, &extent);
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      side.counts.push_back(static_cast<int>(blocks[block]) / elements);
      side.places.push_back(static_cast<int>(side.at[block]) / elements);
      side.types.push_back(side.type);
      side.wide_places.push_back(side.places.back());
      if (call_.what != What::alltoallw) continue;
      side.wide_places.back() *= extent;
      // Now and then a whole block is one element of a type of its own.
      if (side.counts.back() == 0 || local.chance(60)) continue;
      CROSSLANE_MPI(MPI_Type_contiguous(side.counts.back(), side.type, &side.made.emplace_back()));
      CROSSLANE_MPI(MPI_Type_commit(&side.made.back()));
      side.types.back() = side.made.back();
      side.counts.back() = 1;
    }
    side.wide_counts.assign(side.counts.begin(), side.counts.end());
    if (!side.counts.empty()) return;
    // A rank without neighbours: arrays, nevertheless, which MPI may want.
    side.wide_counts.reserve(1);
    side.wide_places.reserve(1);
    side.counts.reserve(1);
    side.places.reserve(1);
    side.types.reserve(1);
  }

  Call call_;
  const Topology& topology_;
  int me_;
  std::vector<Sender> senders_;
  EntryPoint entry_;
  Side send_, receive_;
  std::size_t send_units_ = 0, receive_units_ = 0;
};

class Test {
 public:
  explicit Test(Program& program)
      : program_(program),
        most_(static_cast<std::size_t>(program.option("most", 100000))),
        strict_(program.memory() == "device"),
        direct_(program.option("direct", 1) != 0) {}

  void run() {
    const auto topologies = program_.option("topologies", 8);
    const auto cases = program_.option("cases", 15);
    for (std::int64_t number = 0; number < topologies; ++number) {
      Random random(mix(program_.seed, number, 41));  // the same on all ranks
      const Topology topology(random);
      const Job job(program_, topology.communicator(), topology.name());
      if (program_.option("plain", 0) == 0) job.warm_up();
      for (std::int64_t i = 0; i < cases; ++i) run(random_call(random, i), topology, job);
      for (const What what : {What::alltoall, What::alltoallv, What::alltoallw})
        if (!topology.single()) start_until_direct(what, topology, job, random);
      polite_barrier(topology.communicator());
    }
    const bool all = strict_ && direct_ && !in_turns_ && program_.option("node", 0) == 0;
    CROSSLANE_CHECK(!all || counted_ > 0, "no call went direct");
    if (const std::string algorithm = program_.text_option("algorithm", ""); all && !algorithm.empty())
      CROSSLANE_CHECK(direct_calls("alltoallv", algorithm.c_str()) > 0, "no call went by {}", algorithm);
  }

 private:
  Call random_call(Random& random, std::int64_t number) const {
    Call call;
    call.what = static_cast<What>(number % static_cast<std::int64_t>(procedures.size()));
    call.form = random.pick(std::array{Form::blocking, Form::blocking, Form::nonblocking, Form::persistent});
    if (EntryPoint::find(call.procedure(), call.form, false).address == nullptr) call.form = Form::nonblocking;
    call.element = &random.pick(elements());
    call.granule = random.pick(std::array{1, 1, 2, 3, 4, 12});
    call.seed = random.next();
    call.empty = random.pick(std::array{0U, 25U, 100U});
    if (call.empty == 100U && random.chance(70)) call.empty = 0;
    const std::array<std::size_t, 6> scales{40, 3000, 17000, 66000, 300000, most_};
    call.most =
        std::min(random.pick(scales), most_) / (call.element->base.extent * static_cast<std::size_t>(call.granule));
    return call;
  }

  void run(Call call, const Topology& topology, const Job& job) {
    in_turns_ = in_turns_ || job.in_turns();
    const bool may = direct_ && job.size() > 1 && job.on_one_node() && !job.in_turns();
    // Which of several edges is which all know at once in blocking calls alone, which may ask together; and never in persistent ones.
    const bool known = gathers(call.what) || topology.single();
    const bool direct = may && (known || call.form == Form::blocking);
    const bool later = may && !known && call.form == Form::nonblocking;
#if CROSSLANE_TEST_MPI_MPICH
    // MPICH 4.0 is wrong in MPI_Neighbor_alltoallw of directed graphs.
    if (call.what == What::alltoallw && topology.directed() &&
        !(strict_ && direct && topology.single() && call.form != Form::persistent))
      call.what = What::alltoallv;
#endif
    Random& local = program_.local();
    CROSSLANE_STEP("{}: {}, seed {}", topology.name(), call.text(), call.seed);
    Exchange exchange(call, topology, job.me(),
                      {.kind = [this](Random& random) { return program_.kind(random); },
                       .derived = 40U,
                       .absent = strict_ && direct && call.form != Form::persistent ? 30U : 0U},
                      local);
    MPI_Request request = MPI_REQUEST_NULL;
    const bool persistent = call.form == Form::persistent;
    if (persistent) {
      exchange.load(local);
      exchange.issue(&request);
    }
    const int rounds = persistent && plain_mpi().persistent_collectives_read_too_early ? 1 : 3;
    for (int round = 0; round < rounds; ++round) {
      if (!persistent || round > 0) exchange.load(local);
      const std::int64_t before = direct_calls("alltoallv");
      // Ranks arrive in any order.
      linger(local.chance(30) ? local.below(200) : 0);
      if (persistent)
        CROSSLANE_MPI(MPI_Start(&request));
      else
        exchange.issue(&request);
      if (call.form != Form::blocking) {
        std::vector<MPI_Request> one{request};
        complete_in_random_order(one, local, persistent);
        request = one.front();
      }
      exchange.check();
      const std::int64_t counted = direct_calls("alltoallv") - before;
      counted_ += counted;
      if (!may || (strict_ && !direct && !later))
        CROSSLANE_CHECK(counted == 0, "a call that should go through the host went direct");
      // The first starts of a persistent one prepare it.
      else if (strict_ && direct && (!persistent || round > 1))
        CROSSLANE_CHECK(counted == 1, "{} calls went direct instead of one", counted);
      if (persistent) polite_barrier(job.communicator());
    }
    if (persistent) CROSSLANE_MPI(MPI_Request_free(&request));
  }

  // Nonblocking calls are told while others go through the host.
  void start_until_direct(What what, const Topology& topology, const Job& job, Random& random) {
#if CROSSLANE_TEST_MPI_MPICH
    if (what == What::alltoallw && topology.directed()) return;
#endif
    if (!strict_ || !direct_ || job.size() == 1 || !job.on_one_node() || job.in_turns()) return;
    const Call call{
        .what = what, .form = Form::nonblocking, .element = &elements().front(), .most = 1000, .seed = random.next()};
    Random& local = program_.local();
    CROSSLANE_STEP("{}: {} until it goes direct, seed {}", topology.name(), call.text(), call.seed);
    Exchange exchange(call, topology, job.me(),
                      {.kind = [this](Random& each) { return program_.kind(each); }, .large = false}, local);
    constexpr int most = 100;
    bool direct = false;
    for (int round = 0; round < most && !direct; ++round) {
      const std::int64_t before = direct_calls("alltoallv");
      exchange.load(local);
      std::vector<MPI_Request> one(1);
      exchange.issue(one.data());
      complete_in_random_order(one, local, false);
      exchange.check();
      direct = direct_calls("alltoallv") > before;
      polite_barrier(job.communicator());
    }
    CROSSLANE_CHECK(direct, "no call of {} went direct", most);
  }

  Program& program_;
  std::size_t most_;
  bool strict_, direct_, in_turns_ = false;
  std::int64_t counted_ = 0;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  crosslane::tests::Program program(argc, argv, "direct_neighbours");
  crosslane::tests::Test(program).run();
  return program.finish();
}
