// One call of one collective: its arguments on this rank, how it is issued in each form, and the list of all collectives
// with what each takes. It must not know Crosslane.
#pragma once

#include "collectives/argument.h"
#include "collectives/entry_points.h"
#include "collectives/group.h"
#include "collectives/reduction.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace crosslane::tests {

struct Call {
  const Group* group = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;  ///< the group's, or a duplicate
  Argument send = Argument::in_place(), receive = Argument::in_place();
  std::vector<int> counts;  ///< of a reduce-scatter
  std::vector<MPI_Count> wide_counts;
  int root = 0;
  std::shared_ptr<Reduction> reduction;
  std::string text;

  /// Compares both buffers with the reference's.
  void check(const std::string& what) const;
};

/// How many elements go from whom to whom: the same answer on every rank that draws from the same numbers.
class Traffic {
 public:
  Traffic(Random& common, const Base& base, int peers, bool same_granule);
  [[nodiscard]] int uniform(int side) const { return amount(1, side, 0); }
  [[nodiscard]] int from(int source) const { return source < 0 ? unit_ : amount(2, source, 0); }
  [[nodiscard]] int to(int destination) const { return destination < 0 ? unit_ : amount(3, destination, 0); }
  [[nodiscard]] int between(int source, int destination) const {
    return source < 0 || destination < 0 ? unit_ : amount(4, source, destination);
  }
  /// Base elements of every datatype of the call, where the MPIs want the counts of all ranks alike; 0 where any will do.
  [[nodiscard]] int granule() const { return granule_; }
  /// The same for a buffer of blocks of one type, which must divide every block.
  [[nodiscard]] int granule_of_blocks() const { return granule_ > 0 ? granule_ : unit_; }

 private:
  [[nodiscard]] int amount(int kind, int a, int b) const;
  std::uint64_t seed_;
  int unit_, granule_;
  std::size_t most_;
};

/// What a plain MPI gets wrong, found by running these tests on host memory without Crosslane; left out there.
struct Defects {
  bool inter = false;                    ///< inter-communicators: rooted collectives take each other's messages
  bool alone = false;                    ///< communicators of one rank
  bool user_defined = false;             ///< user-defined operations on non-contiguous types
  bool user_defined_persistent = false;  ///< the same of its persistent form alone
  bool directed = false;                 ///< graphs of directed edges
  bool empty_in_place = false;           ///< empty blocks with MPI_IN_PLACE
};
Defects defects_of(const std::string& collective);

struct Collective {
  std::string name;  ///< without MPI_
  std::vector<Group::Kind> kinds;
  bool reduces;
  /// Counts must agree between ranks, although MPI asks for equal signatures alone: Open MPI (4.1, 5.0) chooses and cuts up
  /// algorithms by count and by the size of the own type, and hangs otherwise.
  bool same_counts;
  /// Draws the arguments.
  void (*build)(Call& call, Random& common, Draw mine, const Base& base, const Traffic& traffic);
  /// Calls entry with the tested buffers or with the host copies.
  int (*issue)(Call& call, const EntryPoint& entry, bool reference, MPI_Request* request);
};

std::span<const Collective> collectives();

}  // namespace crosslane::tests
