// See side.h.
#include "one_sided/side.h"

#include "one_sided/plain.h"

#include <algorithm>
#include <utility>

namespace crosslane::tests {
namespace {

int rank_of(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}

// GPU memory has to serve at any address; the rest does where the MPI does.
Memory memory_for(MemoryKind kind, const Shape& shape) {
  constexpr std::size_t grain = 16;
  const bool moved = kind != MemoryKind::device && left_out().window_bases;
  return {kind, shape.whole(), moved ? (grain - shape.before % grain) % grain : 0};
}

// A window's default handler would abort without saying in which step.
void abort_with_step(MPI_Win*, int* result, ...) {
  report_failure("a one-sided call failed: " + describe_mpi_error(*result));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace

Side::Side(const Program& program, const std::vector<Shape>& shapes, MPI_Comm communicator, MPI_Info info,
           bool reference, std::uint64_t seed)
    : program_(program),
      shapes_(shapes),
      communicator_(communicator),
      rank_(rank_of(communicator)),
      reference_(reference),
      memory_(memory_for(reference ? MemoryKind::host : own().kind, own())) {
  around_ = pattern(mix(seed, rank_, 1), own().whole());
  memory_.write(around_);
  memory_.write(own().contents(mix(seed, rank_, 2)), own().before);
  polite_barrier(communicator);
  void* const base = own().null_base ? nullptr : memory_.as<char>() + own().before;
  step("MPI_Win_create");
  CROSSLANE_MPI(MPI_Win_create(base, static_cast<MPI_Aint>(own().bytes), own().unit, info, communicator, &window_));
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  CROSSLANE_MPI(MPI_Win_create_errhandler(abort_with_step, &handler));
  CROSSLANE_MPI(MPI_Win_set_errhandler(window_, handler));
  CROSSLANE_MPI(MPI_Errhandler_free(&handler));
}

MemoryKind Side::kind(Random& random) const {
  const MemoryKind kind = program_.kind(random);
  return reference_ ? MemoryKind::host : kind;
}

void Side::step(const std::string& text) const {
  CROSSLANE_STEP("{} ({})", text, reference_ ? "in host memory, for reference" : own().text());
}

void Side::note(std::string text, std::vector<std::byte> bytes) {
  notes_.push_back({std::move(text), std::move(bytes)});
}

void Side::load_all(const std::string& text) {
  auto now = memory_.read();
  const auto begin = static_cast<std::ptrdiff_t>(own().before), end = begin + static_cast<std::ptrdiff_t>(own().bytes);
  CROSSLANE_CHECK(std::equal(now.begin(), now.begin() + begin, around_.begin()) &&
                      std::equal(now.begin() + end, now.end(), around_.begin() + end),
                  "{}: what is around the window has changed", text);
  note(text + ": the window", std::move(now));
}

void Side::load_own(const std::string& text) {
  for (const Area& area : own().areas)
    if (area.owner == rank_)
      note(text + ": a part of the window", memory_.read(own().before + area.begin, area.end - area.begin));
}

void Side::store(Random& random) { store(random, 0, own().bytes); }

void Side::store_own(Random& random) {
  for (const Area& area : own().areas)
    if (area.owner == rank_) store(random, area.begin, area.end);
}

// Whole numbers stay whole where there may be some.
void Side::store(Random& random, std::size_t begin, std::size_t end) {
  const std::uint64_t seed = random.next();
  const auto first = random.next(), length = random.next();
  const std::size_t steps = (end - begin) / own().step();
  if (steps == 0) return;
  const std::size_t from = first % steps;
  // Often short: most of the window stays what it was.
  const std::size_t most = steps - from, count = 1 + length % (seed % 2 == 0 ? most : std::min<std::size_t>(most, 9));
  const auto contents = own().contents(seed);
  const std::size_t at = begin + from * own().step();
  memory_.write(std::span(contents).subspan(at, count * own().step()), own().before + at);
  unshown = true;
}

void Side::free() {
  polite_barrier(communicator_);
  step("MPI_Win_free");
  CROSSLANE_MPI(MPI_Win_free(&window_));
  load_all("after MPI_Win_free");
}

}  // namespace crosslane::tests
