// Random one-sided operations of one rank within an access epoch, placed so that they have one outcome whatever other ranks do, and the
// buffers that they read and fill until the operations are complete. It must not know Crosslane.
#pragma once

#include "one_sided/operand.h"
#include "one_sided/side.h"

#include <mpi.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace crosslane::tests {

/// Which operation all ranks use where all of them accumulate, in the epochs that overlap in time.
class Agreed {
 public:
  explicit Agreed(Random& shared);
  [[nodiscard]] const Operator& operator()(const Number& number) const;

 private:
  Operator whole_, real_;
};

class Access {
 public:
  /// `passive`: within locks, where operations may have requests.
  Access(Side& side, const Agreed& agreed, bool passive, std::string where);
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  /// One operation on the window of rank `to`; `only_read`: that changes nothing there.
  void issue(Random& random, int to, bool only_read);
  /// Within locks, a compare-and-swap whose comparison often holds, with what it takes around it.
  void swap(Random& random, int to);
  /// Under an exclusive lock: takes numbers that all ranks change, changes them by the agreed operation, and puts them back.
  void change(Random& random, int to);
  /// Some requests, by any of the calls that complete them.
  void complete_some(Random& random);

  // What the calls that complete operations have done; any_target stands for all.
  static constexpr int any_target = -1;
  void completed_locally(int to);  ///< Buffers are ours again.
  void completed(int to);          ///< And places in the target's window may be reached again.

  /// Whether what only completes on this rank can be had, as far as the MPI knows how.
  [[nodiscard]] bool may_flush_locally() const;

  /// After the epoch: what has requests still is completed.
  void end(Random& random);

 private:
  struct Pending {
    std::string text;
    int to = 0;
    Operand origin, result, compare;
    Type target;
    MPI_Request request = MPI_REQUEST_NULL;
    bool settled = false;
  };
  /// Elements in the target's window.
  struct Place {
    MPI_Aint displacement = 0;
    Type type;
    int count = 0, elements = 0;
  };
  /// Where the last accumulate to a target went, which others of the same operation may follow: MPI keeps their order.
  struct Chain {
    Number number;
    Operator op;
    MPI_Aint displacement = 0;
    int elements = 0;
  };

  void put_or_get(Random& random, int to, bool put);
  bool from_window(Random& random, int to);
  void put_own(Random& random, int to);
  void accumulate(Random& random, int to, bool get);
  void start_chain(int to, const Number& number, const Operator& op, const Place& target);
  void fetch(Random& random, int to, const Number& number, const Operator& op, MPI_Aint displacement);
  void fetch_anywhere(Random& random, int to);
  void compare_and_swap_anywhere(Random& random, int to);
  [[nodiscard]] std::optional<std::size_t> area(Random& random, int to, bool shared, bool numbers) const;
  [[nodiscard]] Place place(Random& random, int to, std::optional<std::size_t> area, const Base& base, bool plain,
                            bool accumulated);
  [[nodiscard]] Place single(int to, std::optional<std::size_t> area, const Number& number);
  [[nodiscard]] std::optional<MPI_Aint> fit(int to, std::size_t area, const Type& type, int count);
  [[nodiscard]] Operand operand(Random& random, const Base& base, int elements, const Number* number,
                                bool predefined = false);
  [[nodiscard]] Operand one(Random& random, const Number& number);
  Pending& begin(Operand origin, Operand result, int to, std::string text, bool get = false);
  void settle(Pending& pending);
  void drop_settled();

  Side& side_;
  const Agreed& agreed_;
  bool passive_;
  std::string where_;
  bool window_is_origin_ = false;                  // of an operation, and so must stay
  std::vector<std::vector<std::size_t>> reached_;  ///< How far each area of each target is used up.
  std::vector<std::optional<Chain>> chains_;       ///< By target.
  std::vector<Pending> pending_;
  bool got_ = false, got_before_others_ = false;
};

}  // namespace crosslane::tests
