// The canonical callers: plain procedures for small counts, derived datatypes, parts and large-count procedures beyond
// int, statuses, envelopes. Two ranks. Large counts are of a zero-size or small type, so that no gigabytes move.
#include "check.h"

#include "mpi/calls.h"
#include "mpi/large_count.h"
#include "mpi/library.h"
#include "mpi/status.h"

#include <array>
#include <climits>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

using namespace crosslane;
namespace calls = crosslane::mpi::calls;

namespace {

constexpr MPI_Count beyond_int = MPI_Count{INT_MAX} + 5;

struct World {
  const mpi::Functions& mpi;
  const mpi::Handles& handles;
  int rank = 0;
  int size = 0;
};

/// The table without its large-count members: what an older MPI would be.
mpi::Functions without_large(const mpi::Functions& full) {
  mpi::Functions plain = full;
#define CROSSLANE_MPI_FUNCTION(name) \
  if (std::string_view(#name).ends_with("_c")) plain.name = nullptr;
#include "mpi/functions_names.inc"
#undef CROSSLANE_MPI_FUNCTION
  return plain;
}

void narrowing() {
  CHECK(mpi::fits(MPI_Count{INT_MAX}) && mpi::fits(MPI_Count{INT_MIN}));
  CHECK(!mpi::fits(beyond_int) && !mpi::fits(-beyond_int));
  const std::array<MPI_Count, 3> values = {1, 2, beyond_int};
  CHECK(mpi::fits(values.data(), 2) && !mpi::fits(values.data(), 3));
  CHECK(mpi::fits(static_cast<const MPI_Count*>(nullptr), 3));
  mpi::Narrowed narrowed;
  const int* first = narrowed.array<int>(values.data(), 2);
  const int* second = narrowed.array<int>(values.data() + 1, 1);
  CHECK(first[0] == 1 && first[1] == 2 && second[0] == 2);
  CHECK(narrowed.array<int>(static_cast<const MPI_Count*>(nullptr), 2) == nullptr);
  CHECK(narrowed.array<int>(values.data(), 0) != nullptr);
  CHECK(narrowed.array<MPI_Count>(values.data(), 3) == values.data());
}

/// Ring exchange, gather with arrays, nonblocking forms.
void small_counts(const World& world) {
  const int next = (world.rank + 1) % world.size, previous = (world.rank + world.size - 1) % world.size;
  const int sent = 100 + world.rank;
  int received = -1;
  MPI_Status status{};
  CHECK(calls::Sendrecv(world.mpi, &sent, 1, world.handles.int_, next, 7, &received, 1, world.handles.int_, previous, 7,
                        world.handles.comm_world, &status) == mpi::success);
  CHECK(received == 100 + previous && mpi::source(status) == previous && mpi::tag(status) == 7);
  CHECK(mpi::received_bytes(world.mpi, status) == 4);
  MPI_Count count = 0;
  CHECK(calls::Get_count(world.mpi, &status, world.handles.int_, &count) == mpi::success && count == 1);

  // Rank r gives r + 1 elements, displaced by one each.
  const auto ranks = static_cast<std::size_t>(world.size);
  std::vector<MPI_Count> counts(ranks);
  std::vector<MPI_Aint> places(ranks);
  MPI_Aint place = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    counts[rank] = static_cast<MPI_Count>(rank) + 1;
    places[rank] = place;
    place += static_cast<MPI_Aint>(counts[rank]) + 1;
  }
  std::vector<int> mine(static_cast<std::size_t>(world.rank) + 1, world.rank);
  std::vector<int> all(static_cast<std::size_t>(place), -1);
  mpi::Narrowed narrowed;
  MPI_Request request = world.handles.request_null;
  CHECK(calls::Iallgatherv(world.mpi, mine.data(), world.rank + 1, world.handles.int_, all.data(), counts.data(),
                           places.data(), world.handles.int_, world.handles.comm_world, &request, narrowed,
                           world.size) == mpi::success);
  CHECK(world.mpi.Wait(&request, mpi::status_ignore()) == mpi::success);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto start = static_cast<std::size_t>(places[rank]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[rank]); ++i)
      CHECK(all[start + i] == static_cast<int>(rank));
    CHECK(all[start + static_cast<std::size_t>(counts[rank])] == -1);
  }
  // A displacement beyond int on an MPI without the large form: an error that names the procedure.
  if (world.mpi.Allgatherv_c == nullptr) {
    places[0] = static_cast<MPI_Aint>(beyond_int);
    std::string message;
    try {
      calls::Allgatherv(world.mpi, mine.data(), world.rank + 1, world.handles.int_, all.data(), counts.data(),
                        places.data(), world.handles.int_, world.handles.comm_world, narrowed, world.size);
    } catch (const base::Error& error) {
      message = error.what();
      CHECK(error.error_class() == base::ErrorClass::count);
    }
    CHECK(message.find("MPI_Allgatherv") != std::string::npos);
  }
}

/// The derived datatype for a large count has the element's size and extent times the count, in spite of odd extents.
void large_types(const World& world) {
  MPI_Datatype odd{};
  CHECK(world.mpi.Type_create_resized(world.handles.int_, 0, 5, &odd) == mpi::success);
  MPI_Datatype large{};
  CHECK(mpi::make_contiguous(world.mpi, beyond_int, odd, &large) == mpi::success);
  MPI_Count size = 0, lower = 0, extent = 0;
  CHECK(calls::Type_size(world.mpi, large, &size) == mpi::success && size == 4 * beyond_int);
  CHECK(calls::Type_get_extent(world.mpi, large, &lower, &extent) == mpi::success);
  CHECK(lower == 0 && extent == 5 * beyond_int);
  CHECK(world.mpi.Type_free(&large) == mpi::success && world.mpi.Type_free(&odd) == mpi::success);
}

/// A message of more than 2^31 elements, each of no bytes: the path is taken and nothing moves.
void large_message(const World& world) {
  MPI_Datatype nothing{};
  CHECK(world.mpi.Type_contiguous(0, world.handles.byte, &nothing) == mpi::success);
  CHECK(world.mpi.Type_commit(&nothing) == mpi::success);
  char place = 0;
  if (world.rank == 0) {
    CHECK(calls::Send(world.mpi, &place, beyond_int, nothing, 1, 3, world.handles.comm_world) == mpi::success);
  } else if (world.rank == 1) {
    MPI_Status status{};
    CHECK(calls::Recv(world.mpi, &place, beyond_int, nothing, 0, 3, world.handles.comm_world, &status) == mpi::success);
    CHECK(mpi::received_bytes(world.mpi, status) == 0);
  }
  CHECK(calls::Bcast(world.mpi, &place, beyond_int, nothing, 0, world.handles.comm_world) == mpi::success);
  CHECK(world.mpi.Type_free(&nothing) == mpi::success);
}

/// Parts of a reduction: the same offsets and lengths that one large call has, checked on the arithmetic alone.
void parts(const World& world) {
  MPI_Count covered = 0;
  MPI_Aint expected = 0;
  const MPI_Count count = 3 * mpi::large_block + 17;
  const int result = mpi::in_chunks(world.mpi, count, world.handles.double_, [&](MPI_Aint offset, int elements) {
    CHECK(offset == expected && elements > 0);
    expected += MPI_Aint{8} * elements;
    covered += elements;
    return mpi::success;
  });
  CHECK(result == mpi::success && covered == count);
  CHECK(mpi::advance(mpi::in_place(), 64) == mpi::in_place());
  // Reduce_scatter has no such parts: refused, not wrong.
  if (world.mpi.Ireduce_c == nullptr) {
    MPI_Request request = world.handles.request_null;
    CHECK_THROWS(base::Error, calls::Iallreduce(world.mpi, nullptr, nullptr, beyond_int, world.handles.int_,
                                                world.handles.sum, world.handles.comm_world, &request));
  }
}

void statuses(const World& world) {
  MPI_Status status = mpi::empty_status(world.mpi);
  CHECK(mpi::source(status) == mpi::any_source && mpi::tag(status) == mpi::any_tag);
  CHECK(mpi::error(status) == mpi::success && !mpi::cancelled(world.mpi, status));
  for (const MPI_Count bytes : {MPI_Count{0}, MPI_Count{1}, MPI_Count{4096}, beyond_int, 8 * beyond_int}) {
    mpi::set_received_bytes(world.mpi, status, bytes);
    CHECK(mpi::received_bytes(world.mpi, status) == bytes);
    MPI_Count count = -1;
    CHECK(calls::Get_count(world.mpi, &status, world.handles.byte, &count) == mpi::success && count == bytes);
    CHECK(calls::Get_count(world.mpi, &status, world.handles.double_, &count) == mpi::success);
    CHECK(count == (bytes % 8 == 0 ? bytes / 8 : MPI_Count{mpi::undefined}));
  }
  mpi::set_cancelled(world.mpi, status, true);
  CHECK(mpi::cancelled(world.mpi, status));
  MPI_Status other = mpi::proc_null_status(world.mpi);
  CHECK(mpi::source(other) == mpi::proc_null && mpi::received_bytes(world.mpi, other) == 0);
  mpi::set_error(other, mpi::err_pending);
  mpi::copy_but_error(status, &other);
  CHECK(mpi::error(other) == mpi::err_pending && mpi::source(other) == mpi::any_source);
  mpi::copy_but_error(status, mpi::status_ignore());
}

void envelopes(const World& world) {
  MPI_Datatype vector{};
  CHECK(calls::Type_vector(world.mpi, 3, 2, 5, world.handles.float_, &vector) == mpi::success);
  MPI_Count integers = -1, addresses = -1, large = -1, datatypes = -1;
  int combiner = -1;
  CHECK(calls::Type_get_envelope(world.mpi, vector, &integers, &addresses, &large, &datatypes, &combiner) ==
        mpi::success);
  CHECK(mpi::combiner(combiner) == mpi::Combiner::vector);
  CHECK(integers == 3 && addresses == 0 && large == 0 && datatypes == 1);
  std::array<int, 3> values{};
  MPI_Datatype element{};
  CHECK(calls::Type_get_contents(world.mpi, vector, 3, 0, 0, 1, values.data(), nullptr, nullptr, &element) ==
        mpi::success);
  CHECK(values[0] == 3 && values[1] == 2 && values[2] == 5 && element == world.handles.float_);
  CHECK(world.mpi.Type_free(&vector) == mpi::success);
  CHECK(calls::Type_get_envelope(world.mpi, world.handles.int_, &integers, &addresses, &large, &datatypes, &combiner) ==
        mpi::success);
  CHECK(mpi::combiner(combiner) == mpi::Combiner::named);
  CHECK_THROWS(base::Error, mpi::combiner(987654));
}

}  // namespace

int main(int argc, char** argv) {
  const mpi::Library library;
  const mpi::Functions& full = library.next();
  CHECK(full.Init(&argc, &argv) == mpi::success);
  const mpi::Functions plain = without_large(full);
  CHECK(plain.Send != nullptr && plain.Send_c == nullptr && plain.handles == full.handles);
  narrowing();
  for (const mpi::Functions* table : {&full, &plain}) {
    World world{*table, library.handles()};
    full.Comm_rank(world.handles.comm_world, &world.rank);
    full.Comm_size(world.handles.comm_world, &world.size);
    CHECK(world.size >= 2);
    small_counts(world);
    large_types(world);
    large_message(world);
    parts(world);
    statuses(world);
    envelopes(world);
  }
  int failures = 0;
  CHECK(full.Allreduce(&check::failures, &failures, 1, library.handles().int_, library.handles().sum,
                       library.handles().comm_world) == mpi::success);
  CHECK(full.Finalize() == mpi::success);
  return failures == 0 ? check::status() : EXIT_FAILURE;
}
