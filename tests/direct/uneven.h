// Collectives whose blocks differ (v forms and reduce-scatter), on one communicator: random sizes with zeros, blocks in any order and
// with gaps between them, and what must come out, computed from the seed. It must not know why a call goes where.
#pragma once

#include "direct/job.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::tests {

enum class What { allgatherv, gatherv, scatterv, alltoallv, reduce_scatter };
inline constexpr std::array<std::string_view, 5> uneven_names{"allgatherv", "gatherv", "scatterv", "alltoallv",
                                                              "reduce_scatter"};

/// One call, the same on all ranks.
struct Uneven {
  What what = What::allgatherv;
  const Element* element = nullptr;
  MPI_Op op = MPI_OP_NULL;
  std::string op_name;
  int granule = 1;                 ///< Units of which all blocks are whole numbers: so types of so many fit all.
  int in_type = 0;                 ///< Units in one element of any rank's derived type; 0: each rank's own affair.
  std::vector<std::size_t> units;  ///< By sender and receiver.
  int size = 1, root = 0;
  bool in_place = false, whole = false;
  std::uint64_t seed = 0;

  [[nodiscard]] std::string name() const { return std::string(uneven_names.at(static_cast<std::size_t>(what))); }
  [[nodiscard]] std::size_t between(int from, int to) const {
    return units[static_cast<std::size_t>(from * size + to)];
  }
  [[nodiscard]] std::size_t largest() const;
  [[nodiscard]] std::size_t bytes(std::size_t count) const { return count * element->base.extent; }
  [[nodiscard]] std::string text() const;
  /// True where every rank knows all sizes.
  [[nodiscard]] bool sizes_known() const { return what == What::allgatherv || what == What::reduce_scatter; }
};

/// A random one, with blocks of at most so many bytes.
[[nodiscard]] Uneven make_uneven(What what, int size, Random& random, std::size_t most);
/// The same with all blocks of about that size.
[[nodiscard]] Uneven make_even(What what, int size, Random& random, std::size_t bytes);

/// How a rank makes its buffers.
struct UnevenManners {
  std::function<MemoryKind(Random&)> kind;
  unsigned derived = 0;  ///< Percent of moves whose buffers have a derived type.
  unsigned absent = 0;   ///< Percent of buffers without any block that are not there at all.
};

/// A rank's side of one call.
class UnevenRun {
 public:
  UnevenRun(const Uneven& call, const Job& job, const UnevenManners& manners, Random& local);

  /// Before each call: what it reads.
  void load(Random& local);
  /// After it.
  void check();

  /// What is passed to the procedure: those that it does not have are not significant.
  struct Side {
    std::unique_ptr<Buffer> buffer;
    std::vector<std::size_t> at;  ///< Units, by peer.
    std::size_t units = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    std::vector<int> counts, places;
    std::vector<MPI_Count> wide_counts;
    std::vector<MPI_Aint> wide_places;

    [[nodiscard]] int count() const { return counts.empty() ? 0 : counts.front(); }
  };
  [[nodiscard]] const Side& sent() const { return send_; }
  [[nodiscard]] const Side& got() const { return receive_; }
  [[nodiscard]] const void* from() const;
  [[nodiscard]] void* to() const;
  /// Of a reduce-scatter.
  [[nodiscard]] const std::vector<int>& shares() const { return shares_; }
  [[nodiscard]] const std::vector<MPI_Count>& wide_shares() const { return wide_shares_; }

 private:
  [[nodiscard]] std::vector<std::byte> contribution(int from, int to) const;
  [[nodiscard]] std::vector<std::byte> expected(int from) const;
  [[nodiscard]] Side side(const std::vector<std::size_t>& blocks, bool scattered, const UnevenManners& manners,
                          Random& local) const;
  void load(Side& side, const std::vector<std::vector<std::byte>>& blocks, Random& local) const;

  Uneven call_;
  int me_;
  bool only_in_ = false;    // MPI_IN_PLACE stands for what is sent
  bool only_out_ = false;   // or for what is received
  std::size_t result_ = 0;  // units of the only block that is received
  Side send_, receive_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<int> shares_;
  std::vector<MPI_Count> wide_shares_;
};

}  // namespace crosslane::tests
