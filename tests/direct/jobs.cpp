// See jobs.h.
#include "direct/jobs.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace crosslane::tests {

Jobs::Jobs(const Program& program) : program_(program) {
  add(MPI_COMM_WORLD, "the world");
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  add(made, "a duplicate");
  MPI_Comm_split(MPI_COMM_WORLD, 0, -program.rank, &made);
  add(made, "all ranks in reversed order");
  MPI_Comm_split(MPI_COMM_WORLD, program.rank / 2, 0, &made);
  add(made, "pairs");
  MPI_Comm_split(MPI_COMM_WORLD, program.rank % 2 == 0 ? 1 : MPI_UNDEFINED, -program.rank, &made);
  add(made, "even ranks in reversed order");
  create();
  const std::array<int, 1> dimensions{program.size}, periodic{1};
  MPI_Cart_create(MPI_COMM_WORLD, 1, dimensions.data(), periodic.data(), 1, &made);
  add(made, "a ring");
}

Jobs::~Jobs() {
  for (auto& job : jobs_) {
    MPI_Comm communicator = job ? job->communicator() : MPI_COMM_NULL;
    if (communicator != MPI_COMM_NULL && communicator != MPI_COMM_WORLD) MPI_Comm_free(&communicator);
  }
}

void Jobs::warm_up() const {
  for (const auto& job : jobs_)
    if (job != nullptr) job->warm_up();
}

void Jobs::add(MPI_Comm communicator, const char* name) {
  jobs_.push_back(communicator == MPI_COMM_NULL ? nullptr : std::make_unique<Job>(program_, communicator, name));
}

// All but the first, backwards.
void Jobs::create() {
  std::vector<int> ranks(static_cast<std::size_t>(std::max(program_.size - 1, 1)));
  std::iota(ranks.rbegin(), ranks.rend(), program_.size > 1 ? 1 : 0);
  MPI_Group all = MPI_GROUP_NULL, chosen = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &chosen);
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_create(MPI_COMM_WORLD, chosen, &made);
  MPI_Group_free(&chosen);
  MPI_Group_free(&all);
  add(made, "all but the first");
}

}  // namespace crosslane::tests
