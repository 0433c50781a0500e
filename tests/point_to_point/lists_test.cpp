// Messages of irregular datatypes that wait for their receiver, while their sender uses more other such datatypes than the GPU keeps lists
// of: what was sent arrives, whatever became of the rest. To be run with a small CROSSLANE_LIST_LIMIT, and with allocations of any size read
// from where they lie.
// It must not know Crosslane.
#include "support/memory.h"
#include "support/program.h"
#include "support/random.h"

#include <mpi.h>

#include <numeric>
#include <vector>

namespace crosslane::tests {
namespace {

// Runs of random lengths at random distances.
class Type {
 public:
  explicit Type(Random random) {
    constexpr int runs = 2000;
    int at = 0;
    for (int run = 0; run < runs; ++run) {
      lengths_.push_back(random.between(20, 80));
      at += random.between(0, 40);
      places_.push_back(at);
      at += lengths_.back();
    }
    extent_ = static_cast<std::size_t>(at);
    CROSSLANE_MPI(MPI_Type_indexed(runs, lengths_.data(), places_.data(), MPI_BYTE, &type_));
    CROSSLANE_MPI(MPI_Type_commit(&type_));
  }
  ~Type() { MPI_Type_free(&type_); }
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;

  [[nodiscard]] MPI_Datatype handle() const { return type_; }
  [[nodiscard]] std::size_t extent() const { return extent_; }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(std::accumulate(lengths_.begin(), lengths_.end(), 0));
  }
  [[nodiscard]] std::vector<std::byte> packed(const std::vector<std::byte>& from) const {
    std::vector<std::byte> result;
    for (std::size_t run = 0; run < lengths_.size(); ++run) {
      const auto first = from.begin() + places_[run];
      result.insert(result.end(), first, first + lengths_[run]);
    }
    return result;
  }

 private:
  std::vector<int> lengths_, places_;
  std::size_t extent_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

void run_case(Program& program, int number) {
  const Type type(Random(mix(program.seed, number)));
  const auto contents = [&](int message) { return pattern(mix(program.seed, number, message), type.extent()); };
  const auto bytes = static_cast<int>(type.bytes());
  Memory buffer(program.kind(), type.extent());
  constexpr int messages = 4;
  CROSSLANE_STEP("case {}: {} bytes", number, bytes);
  // The first ones let the ranks meet.
  for (int message = 0; message < messages; ++message) {
    if (program.rank == 0) {
      buffer.write(contents(message));
      CROSSLANE_MPI(MPI_Send(buffer.data(), 1, type.handle(), 1, 2, MPI_COMM_WORLD));  // makes its list
      MPI_Request request = MPI_REQUEST_NULL;
      CROSSLANE_MPI(MPI_Issend(buffer.data(), 1, type.handle(), 1, 0, MPI_COMM_WORLD, &request));
      constexpr int others = 16;
      for (int other = 0; other < others; ++other) {
        const Type another(Random(mix(program.seed, number, message, other)));
        Memory from(program.kind(), another.extent()), to(program.kind(), another.bytes());
        const auto held = pattern(mix(program.seed, other), another.extent());
        from.write(held);
        int position = 0;
        CROSSLANE_MPI(MPI_Pack(from.data(), 1, another.handle(), to.data(), static_cast<int>(another.bytes()),
                               &position, MPI_COMM_WORLD));
        CROSSLANE_CHECK(to.read() == another.packed(held), "case {}: another datatype was packed wrongly", number);
      }
      CROSSLANE_MPI(MPI_Send(nullptr, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
      CROSSLANE_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (program.rank == 1) {
      Memory into(program.kind(), type.bytes());
      CROSSLANE_MPI(MPI_Recv(into.data(), bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CROSSLANE_MPI(MPI_Recv(into.data(), bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CROSSLANE_CHECK(into.read() == type.packed(contents(message)), "case {}, message {}", number, message);
    }
  }
}

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  using namespace crosslane::tests;
  Program program(argc, argv, "point_to_point_lists");
  const auto cases = static_cast<int>(program.option("cases", 10));
  for (int number = 0; number < cases; ++number) run_case(program, number);
  return program.finish();
}
