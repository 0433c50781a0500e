// Random programs of epochs, each run on a window in memory of any kind and on one in host memory, which must read the same.
// It must not know Crosslane.
#include "one_sided/epochs.h"
#include "one_sided/parts.h"
#include "one_sided/plain.h"
#include "support/plain_mpi.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace crosslane::tests {
namespace {

void compare(const Side& tested, const Side& reference) {
  const auto& got = tested.notes();
  const auto& expected = reference.notes();
  CROSSLANE_CHECK(got.size() == expected.size(), "{} notes, expected {}", got.size(), expected.size());
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    if (got[i].bytes == expected[i].bytes) continue;
    const auto [differs, wanted] = std::ranges::mismatch(got[i].bytes, expected[i].bytes);
    std::size_t count = 0;
    for (std::size_t at = 0; at < std::min(got[i].bytes.size(), expected[i].bytes.size()); ++at)
      count += got[i].bytes[at] != expected[i].bytes[at] ? 1 : 0;
    report_failure(fmt::format("{} ({}): {} of {} bytes differ, the first at {} ({:#04x}, expected {:#04x})",
                               got[i].text, tested.own().text(), count, got[i].bytes.size(),
                               differs - got[i].bytes.begin(), static_cast<unsigned>(*differs),
                               static_cast<unsigned>(*wanted)));
  }
}

MPI_Comm random_communicator(Random& all, const Program& program) {
  MPI_Comm made = MPI_COMM_NULL;
  const auto choice = all.below(10);
  if (choice < 5)
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &made));
  else if (choice < 9 || left_out().communicators_of_one)
    CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made));  // the other way round
  else
    CROSSLANE_MPI(MPI_Comm_dup(MPI_COMM_SELF, &made));
  return made;
}

// What is true of the case, and says so.
MPI_Info random_info(Random& all, const std::vector<Shape>& shapes, bool with_locks) {
  if (all.chance(50)) return MPI_INFO_NULL;
  MPI_Info info = MPI_INFO_NULL;
  CROSSLANE_MPI(MPI_Info_create(&info));
  const auto set = [info](const char* key) { CROSSLANE_MPI(MPI_Info_set(info, key, "true")); };
  if (!with_locks && all.chance(50)) set("no_locks");
  if (std::ranges::all_of(shapes, [&](const Shape& each) { return each.unit == shapes[0].unit; }))
    set("same_disp_unit");
  CROSSLANE_MPI(MPI_Info_set(info, "accumulate_ops", "same_op_no_op"));
  return info;
}

class Case {
 public:
  Case(Program& program, std::int64_t number)
      : program_(program),
        number_(number),
        all_(mix(program.seed, number)),
        communicator_(random_communicator(all_, program)) {
    MPI_Comm_rank(communicator_, &rank_);
    int ranks = 0;
    MPI_Comm_size(communicator_, &ranks);
    // Ranks by themselves have windows that differ.
    if (ranks == 1) all_ = Random(mix(program.seed, number, program.rank));
    for (int i = 0; i < ranks; ++i) shapes_.push_back(random_shape(program, all_, ranks));
  }
  ~Case() { MPI_Comm_free(&communicator_); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  void run() {
    const bool with_locks = all_.chance(75);
    MPI_Info info = random_info(all_, shapes_, with_locks);
    const auto seed = all_.next();
    CROSSLANE_STEP("case {}: making windows", number_);
    Side tested(program_, shapes_, communicator_, info, false, seed);
    Side reference(program_, shapes_, communicator_, info, true, seed);
    if (info != MPI_INFO_NULL) MPI_Info_free(&info);
    const auto steps = all_.between(1, 6);
    for (step_ = 0; step_ < steps; ++step_) {
      constexpr std::array kinds{EpochKind::fences, EpochKind::post_start, EpochKind::locks, EpochKind::lock_all,
                                 EpochKind::tickets};
      const auto kind = kinds.at(all_.below(with_locks ? kinds.size() : 2));
      const bool first = all_.chance(50);
      epochs(first ? tested : reference).run(kind);
      epochs(first ? reference : tested).run(kind);
      compare_notes(tested, reference);
    }
    for (Side* const side : {&tested, &reference}) {
      epochs(*side).last();
      side->free();
    }
    compare_notes(tested, reference);
  }

 private:
  // The same choices for both sides.
  [[nodiscard]] Epochs epochs(Side& side) const {
    return {side, Random(mix(program_.seed, number_, step_, 1)),
            Random(mix(program_.seed, number_, step_, 2, program_.rank)),
            fmt::format("case {}, step {}", number_, step_)};
  }
  static void compare_notes(Side& tested, Side& reference) {
    compare(tested, reference);
    tested.forget_notes();
    reference.forget_notes();
  }

  Program& program_;
  std::int64_t number_;
  Random all_;
  MPI_Comm communicator_;
  int rank_ = 0;
  std::int64_t step_ = 0;
  std::vector<Shape> shapes_;
};

}  // namespace

void one_sided_epochs(Program& program) {
  leave_out(program);
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  const auto cases = program.option("cases", 20), only = program.option("only", -1);
  const auto first = std::max<std::int64_t>(only, 0), end = only < 0 ? cases : only + 1;
  for (std::int64_t number = first; number < end; ++number) Case(program, number).run();
}

}  // namespace crosslane::tests
