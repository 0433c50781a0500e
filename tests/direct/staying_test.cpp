// Kernels that stay for the next blocking call (CROSSLANE_LINGER_US, which is long here): calls that they are rung for are right, whatever
// comes between two of them, and whoever waits for the GPU or frees the communicator gets on.
//   --cases <n>  random sequences (default 30)
//   --rings 0    kernels stay for so short that none may be there for the next call
#include "support/staying.h"
#include "direct/job.h"
#include "support/counted.h"
#include "support/linger.h"
#include "support/plain_mpi.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace crosslane::tests {
namespace {

constexpr std::size_t kib = 1024;

std::int64_t rung_on_all() { return counted_on_all("crosslane_rung_calls"); }

class Staying {
 public:
  explicit Staying(Program& program) : program_(program), local_(mix(program.seed, program.rank)) { fresh(); }

  // The same call again and again: its kernel stays from the second on, unless this machine holds up a rank for too long each time.
  void again() {
    CROSSLANE_STEP("again and again");
    const std::int64_t before = rung_on_all();
    for (const std::size_t units : {std::size_t{1}, 4 * kib, 20 * kib})
      for (int round = 0; round < 40; ++round)
        job_->run(sum_of_ints(units, mix(program_.seed, round), 5), on_the_gpu(), local_);
    const bool rings = program_.option("rings", 1) != 0 && !job_->in_turns();
    CROSSLANE_CHECK(!rings || rung_on_all() != before, "no call was rung for");
  }

  // A thread of the program that waits for the GPU all the time: it gets on while the calls do.
  void beside_a_waiter() {
    tests::beside_a_waiter(*program_.device(), [&](int round) {
      job_->run(sum_of_ints(round % 2 == 0 ? 1 : 4 * kib, mix(program_.seed, round, 3), 5), on_the_gpu(), local_);
    });
  }

  void sequence(std::int64_t /*number*/) {
    auto& shared = program_.shared();
    const Case what = random_case(shared);
    CROSSLANE_STEP("{}", what.text());
    job_->run(what, on_the_gpu(), local_, [&](int /*repetition*/) {
      // By each rank for itself: what it does between two calls.
      if (local_.chance(10)) linger(local_.below(300));
      if (local_.chance(5)) {
        // The driver frees memory when the GPU is done with it.
        const Memory passing(MemoryKind::device, 1 + local_.below(256 * kib));
      }
    });
    between(shared);
  }

 private:
  [[nodiscard]] Case random_case(Random& shared) const {
    Case what;
    what.kind = static_cast<Kind>(shared.below(kind_names.size()));
    // Kernels stay for the elements of which large arrays are, too: more often those.
    what.element = &elements()[shared.chance(60) ? 0 : shared.below(elements().size())];
    std::tie(what.op_name, what.op) = shared.pick(what.element->ops);
    const std::size_t bytes =
        shared.pick(std::array<std::size_t, 8>{4, 8, 1000, 4 * kib, 12 * kib, 40 * kib, 130 * kib, 600 * kib});
    what.units = std::max<std::size_t>(
        bytes / what.element->base.extent / (in_blocks(what.kind) ? static_cast<std::size_t>(job_->size()) : 1), 1);
    what.in_place = what.kind != Kind::broadcast && shared.chance(30);
    what.root = static_cast<int>(shared.below(static_cast<std::uint64_t>(job_->size())));
    what.seed = shared.next();
    what.repeats = static_cast<int>(shared.between(1, 8));
    if (job_->in_turns()) leave_to_mpi(what);
    return what;
  }

  // What else a program does on the communicator, or with it.
  void between(Random& shared) {
    switch (shared.below(8)) {
      case 0: {
        // Enqueued behind the kernel that stays.
        auto run = job_->make(sum_of_ints(shared.below(3000) + 1, shared.next()), on_the_gpu(), local_);
        job_->load(run, local_);
        MPI_Request request = MPI_REQUEST_NULL;
        job_->call(run, Form::nonblocking, &request);
        polite_wait(request);
        job_->check(run);
        break;
      }
      case 1: {
        std::uint64_t number = 1;
        CROSSLANE_MPI(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, job_->communicator()));
        break;
      }
      case 2:
        fresh();
        break;
      default:
        break;
    }
  }

  // Another communicator, whose memory may be that of the one before.
  void fresh() {
    CROSSLANE_STEP("a communicator");
    MPI_Comm made = MPI_COMM_NULL;
    const int place = program_.shared().chance(50) ? program_.rank : -program_.rank;
    CROSSLANE_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, place, &made));
    job_.reset();
    communicator_ = std::unique_ptr<MPI_Comm, Free>(new MPI_Comm(made));
    job_ = std::make_unique<Job>(program_, made, "fresh");
    job_->warm_up();
  }

  struct Free {
    void operator()(MPI_Comm* communicator) const {
      CROSSLANE_MPI(MPI_Comm_free(communicator));
      delete communicator;
    }
  };

  Program& program_;
  Random local_;
  std::unique_ptr<MPI_Comm, Free> communicator_;
  std::unique_ptr<Job> job_;
};

}  // namespace
}  // namespace crosslane::tests

int main(int argc, char** argv) {
  return crosslane::tests::run_staying<crosslane::tests::Staying>(argc, argv, "direct_staying", 30);
}
