// The communicators on which collectives are tried: the world, and others made from it in every way. It must not know collectives.
#pragma once

#include "direct/job.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace crosslane::tests {

/// A rank is in some of them.
class Jobs {
 public:
  explicit Jobs(const Program& program);
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  /// Calls on each of them that this rank is in, until later ones go direct where they can at all.
  void warm_up() const;

  [[nodiscard]] std::size_t size() const { return jobs_.size(); }
  /// Null where this rank is not in it.
  [[nodiscard]] const Job* at(std::size_t which) const { return jobs_[which].get(); }

 private:
  void add(MPI_Comm communicator, const char* name);
  void create();

  const Program& program_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace crosslane::tests
