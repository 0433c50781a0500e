// Dynamic windows, to which ranks attach memory of every kind and detach it again while the window lives: random rounds, each of stores by all ranks
// into parts of their own of everybody's pieces, compared with what follows from the seed. It must not know Crosslane.
#include "one_sided/parts.h"
#include "one_sided/plain.h"
#include "support/check.h"
#include "support/memory.h"
#include "support/plain_mpi.h"
#include "support/random.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace crosslane::tests {
namespace {

using Number = std::int32_t;

// One piece of memory, as all ranks know it.
struct Place {
  MPI_Aint address;
  std::int64_t numbers, name;  // what it held first follows from the name
};

class Rounds {
 public:
  explicit Rounds(Program& program) : program_(program), ranks_(static_cast<std::size_t>(program.size)) {}

  void run(int rounds) {
    CROSSLANE_STEP("MPI_Win_create_dynamic");
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window_));
    for (int round = 0; round < rounds; ++round) {
      CROSSLANE_STEP("a round");
      change();
      tell();
      const bool fence = program_.shared().chance(50);
      store(fence);
      check();
      load(fence);
    }
    polite_barrier();
    while (!mine_.empty()) detach(mine_.size() - 1);
    polite_barrier();
    CROSSLANE_MPI(MPI_Win_free(&window_));
  }

 private:
  struct Piece {
    Memory memory;
    std::int64_t name;
    std::vector<Number> holds;
  };

  static std::vector<Number> contents(std::int64_t name, std::size_t count) {
    std::vector<Number> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<Number>(mix(name, i) % 1000);
    return numbers;
  }

  // A rank's part of every piece.
  [[nodiscard]] std::pair<std::size_t, std::size_t> part(std::size_t numbers, int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return {numbers * r / ranks_, numbers * (r + 1) / ranks_};
  }

  // Some pieces go, others come, mostly where others were.
  void change() {
    Random& random = program_.local();
    while (!mine_.empty() && random.chance(40)) detach(random.below(mine_.size()));
    const auto wanted = random.between<std::size_t>(1, 4);
    while (mine_.size() < wanted) {
      const auto count = random.between<std::size_t>(1, 5000);
      const std::int64_t name = static_cast<std::int64_t>(mix(program_.seed, program_.rank, names_++) >> 1);
      Piece piece{Memory(program_.kind(), count * sizeof(Number), 4 * random.below(8)), name, contents(name, count)};
      piece.memory.fill(piece.holds);
      CROSSLANE_MPI(MPI_Win_attach(window_, piece.memory.data(), static_cast<MPI_Aint>(piece.memory.size())));
      mine_.push_back(std::move(piece));
    }
  }

  void detach(std::size_t which) {
    const auto gone = mine_.begin() + static_cast<std::ptrdiff_t>(which);
    CROSSLANE_MPI(MPI_Win_detach(window_, gone->memory.data()));
    compare(*gone, "after MPI_Win_detach");
    mine_.erase(gone);
  }

  void tell() {
    int count = static_cast<int>(mine_.size());
    std::vector<int> counts(ranks_);
    MPI_Request request = MPI_REQUEST_NULL;
    CROSSLANE_MPI(MPI_Iallgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, MPI_COMM_WORLD, &request));
    polite_wait(request);
    constexpr int most = 8;
    std::vector<Place> own(most), all(most * ranks_);
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      CROSSLANE_MPI(MPI_Get_address(mine_[i].memory.data(), &own[i].address));
      own[i].numbers = static_cast<std::int64_t>(mine_[i].holds.size());
      own[i].name = mine_[i].name;
    }
    const int bytes = static_cast<int>(most * sizeof(Place));
    CROSSLANE_MPI(MPI_Iallgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD, &request));
    polite_wait(request);
    places_.clear();
    for (std::size_t r = 0; r < ranks_; ++r)
      places_.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(r * most),
                           all.begin() + static_cast<std::ptrdiff_t>(r * most) + counts[r]);
  }

  // What a rank puts or adds there in this round, which its target works out as well.
  enum class By { put, put_with_request, accumulate, accumulate_with_request, fetch };
  struct Store {
    By by = By::put;
    std::size_t first = 0, count = 0;
    std::vector<Number> numbers{};

    [[nodiscard]] bool adds() const { return by != By::put && by != By::put_with_request; }
  };
  [[nodiscard]] Store store_of(int origin, const Place& place) const {
    Random random(mix(program_.seed, round_, origin, place.name));
    const auto [begin, end] = part(static_cast<std::size_t>(place.numbers), origin);
    if (begin == end) return {};
    const auto by = static_cast<By>(random.below(5));
    const std::size_t first = random.between(begin, end - 1);
    const std::size_t count = by == By::fetch ? 1 : random.between<std::size_t>(1, end - first);
    return {by, first, count, contents(static_cast<std::int64_t>(random.next() >> 1), count)};
  }
  // Requests are for passive targets; and some MPIs do not fetch from the rank itself.
  [[nodiscard]] By way(const Store& store, bool fence, int target) const {
    if (store.by == By::put_with_request && fence) return By::put;
    if (store.by == By::accumulate_with_request && fence) return By::accumulate;
    return store.by == By::fetch && target == program_.rank && left_out().atomics_on_oneself ? By::accumulate
                                                                                             : store.by;
  }

  template <class F>
  void in_epoch(bool fence, const F& accesses) {
    polite_barrier();
    if (fence) {
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      for (int target = 0; target < program_.size; ++target) accesses(target);
      polite_barrier();
      CROSSLANE_MPI(MPI_Win_fence(0, window_));
      return;
    }
    for (int target = 0; target < program_.size; ++target) {
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window_));
      accesses(target);
      CROSSLANE_MPI(MPI_Win_unlock(target, window_));
    }
    polite_barrier();
    // Others' stores are to be seen here.
    CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, program_.rank, 0, window_));
    CROSSLANE_MPI(MPI_Win_unlock(program_.rank, window_));
    polite_barrier();
  }

  void store(bool fence) {
    ++round_;
    std::vector<std::unique_ptr<Memory>> kept;
    in_epoch(fence, [&](int target) {
      for (const Place& place : places_[static_cast<std::size_t>(target)]) {
        const Store store = store_of(program_.rank, place);
        if (store.count == 0) continue;
        const auto count = static_cast<int>(store.count);
        kept.push_back(std::make_unique<Memory>(program_.kind(), store.count * sizeof(Number)));
        kept.back()->fill(store.numbers);
        const MPI_Aint there = MPI_Aint_add(place.address, static_cast<MPI_Aint>(store.first * sizeof(Number)));
        // By its displacement, or by a type of absolute addresses.
        const bool absolute = !left_out().absolute_targets && program_.local().chance(30);
        const void* const from = kept.back()->data();
        const auto put = [&](MPI_Aint displacement, int number, MPI_Datatype type, MPI_Request* request) {
          if (request == nullptr) {
            CROSSLANE_MPI(MPI_Put(from, count, MPI_INT, target, displacement, number, type, window_));
          } else {
            CROSSLANE_MPI(MPI_Rput(from, count, MPI_INT, target, displacement, number, type, window_, request));
          }
        };
        MPI_Request request = MPI_REQUEST_NULL;
        const By by = way(store, fence, target);
        switch (by) {
          case By::put:
          case By::put_with_request: {
            MPI_Request* const asked = by == By::put ? nullptr : &request;
            if (!absolute) {
              put(there, count, MPI_INT, asked);
              break;
            }
            MPI_Datatype type = MPI_DATATYPE_NULL;
            CROSSLANE_MPI(MPI_Type_create_hindexed(1, &count, &there, MPI_INT, &type));
            CROSSLANE_MPI(MPI_Type_commit(&type));
            put(0, 1, type, asked);
            CROSSLANE_MPI(MPI_Type_free(&type));
            break;
          }
          case By::accumulate:
            CROSSLANE_MPI(MPI_Accumulate(from, count, MPI_INT, target, there, count, MPI_INT, MPI_SUM, window_));
            break;
          case By::accumulate_with_request:
            CROSSLANE_MPI(
                MPI_Raccumulate(from, count, MPI_INT, target, there, count, MPI_INT, MPI_SUM, window_, &request));
            break;
          case By::fetch:
            kept.push_back(std::make_unique<Memory>(program_.kind(), sizeof(Number)));
            CROSSLANE_MPI(MPI_Fetch_and_op(from, kept.back()->data(), MPI_INT, target, there, MPI_SUM, window_));
            break;
        }
        if (request != MPI_REQUEST_NULL) polite_wait(request);
      }
    });
    for (std::size_t p = 0; p < mine_.size(); ++p) {
      for (int origin = 0; origin < program_.size; ++origin) {
        const Store store = store_of(origin, places_[static_cast<std::size_t>(program_.rank)][p]);
        for (std::size_t i = 0; i < store.count; ++i) {
          Number& held = mine_[p].holds[store.first + i];
          held = store.adds() ? held + store.numbers[i] : store.numbers[i];
        }
      }
    }
  }

  void check() {
    for (const Piece& piece : mine_) compare(piece, "after the epoch");
    // What the program stores itself, others see in the next epoch.
    for (Piece& piece : mine_) {
      if (!program_.local().chance(50)) continue;
      for (Number& number : piece.holds) number = static_cast<Number>(number / 2 + 1);
      piece.memory.fill(piece.holds);
    }
  }

  void compare(const Piece& piece, const char* when) {
    CROSSLANE_CHECK(piece.memory.values<Number>() == piece.holds, "{} {} memory holds something else, round {}", when,
                    name(piece.memory.kind()), round_);
  }

  // All that the next rank holds, as it holds it.
  void load(bool fence) {
    if (!fence) {
      // Makes own stores public.
      CROSSLANE_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, program_.rank, 0, window_));
      CROSSLANE_MPI(MPI_Win_unlock(program_.rank, window_));
    }
    const int next = (program_.rank + 1) % program_.size;
    std::vector<std::unique_ptr<Memory>> got;
    in_epoch(fence, [&](int target) {
      if (target != next) return;
      for (const Place& place : places_[static_cast<std::size_t>(target)]) {
        const auto count = static_cast<int>(place.numbers);
        got.push_back(std::make_unique<Memory>(program_.kind(), static_cast<std::size_t>(count) * sizeof(Number)));
        CROSSLANE_MPI(MPI_Get(got.back()->data(), count, MPI_INT, target, place.address, count, MPI_INT, window_));
      }
    });
    // The next rank tells what that was.
    std::vector<Number> mine, theirs;
    for (const Piece& piece : mine_) mine.insert(mine.end(), piece.holds.begin(), piece.holds.end());
    for (const Place& place : places_[static_cast<std::size_t>(next)])
      theirs.resize(theirs.size() + static_cast<std::size_t>(place.numbers));
    const int before = (program_.rank + program_.size - 1) % program_.size;
    std::vector<MPI_Request> requests(2);
    CROSSLANE_MPI(
        MPI_Irecv(theirs.data(), static_cast<int>(theirs.size()), MPI_INT, next, 0, MPI_COMM_WORLD, requests.data()));
    CROSSLANE_MPI(
        MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_INT, before, 0, MPI_COMM_WORLD, &requests[1]));
    polite_waitall(requests);
    std::vector<Number> found;
    for (const auto& memory : got) {
      const auto numbers = memory->values<Number>();
      found.insert(found.end(), numbers.begin(), numbers.end());
    }
    CROSSLANE_CHECK(found == theirs, "MPI_Get brought something else, round {}", round_);
  }

  Program& program_;
  const std::size_t ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<Piece> mine_;
  std::vector<std::vector<Place>> places_;  // by rank
  std::uint64_t names_ = 0, round_ = 0;
};

}  // namespace

void one_sided_dynamic(Program& program) {
  if (!plain_mpi_has_windows(MPI_COMM_WORLD)) {
    program.skip("MPI_Win_create of host memory fails");
    return;
  }
  const auto windows = program.option("cases", 3);
  for (std::int64_t window = 0; window < windows; ++window) Rounds(program).run(8);
}

}  // namespace crosslane::tests
