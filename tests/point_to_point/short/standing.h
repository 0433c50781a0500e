// Persistent receives of this rank from its left, of several lengths, that are started again and again for as long as the test runs. It
// must not know how a rank begins.
#pragma once

#include "point_to_point/short/ring.h"
#include "support/layout.h"

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace crosslane::tests {

class Standing {
 public:
  explicit Standing(Ring& ring) : ring_(ring) {}
  ~Standing();
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

  /// Makes more, until there are so many.
  void make(std::size_t until, bool on_host);
  void make_all() { make(rooms.size(), false); }

  /// A case, once all are made: the left sends to each of them, some times.
  void run();

 private:
  struct Receive {
    TypedBuffer buffer;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  static constexpr int first_tag = 21000;  // one each
  static constexpr std::array<std::size_t, 6> rooms{254, 300, 100, 254, 16, 400};

  void run_once();
  void finish(std::size_t at, std::size_t bytes, std::uint64_t seed);

  Ring& ring_;
  std::deque<Receive> receives_;
};

}  // namespace crosslane::tests
