// See completion.h.
#include "collectives/completion.h"

#include "support/check.h"
#include "support/plain_mpi.h"

#include <sched.h>

#include <algorithm>
#include <numeric>

namespace crosslane::tests {
namespace {

constexpr unsigned percent_waiting = 8;

class Completion {
 public:
  Completion(std::vector<MPI_Request>& requests, Random& random, bool persistent)
      : requests_(requests),
        random_(random),
        persistent_(persistent),
        done_(requests.size(), false),
        left_(requests.size()) {}

  void run() {
    while (left_ > 0) {
      const std::size_t before = left_;
      step();
      if (left_ == before) sched_yield();
    }
  }

 private:
  void finished(int index) {
    auto done = done_.begin() + index;
    CROSSLANE_CHECK(!*done, "request {} was completed twice", index);
    *done = true;
    --left_;
  }

  std::vector<int> pending() const {
    std::vector<int> result;
    for (std::size_t i = 0; i < done_.size(); ++i)
      if (!done_[i]) result.push_back(static_cast<int>(i));
    return result;
  }

  // The requests that an array call is given.
  struct Array {
    std::vector<int> places;
    std::vector<MPI_Request> requests;
    std::vector<MPI_Status> statuses;
    [[nodiscard]] int count() const { return static_cast<int>(places.size()); }
  };

  Array array() const {
    Array result;
    for (std::size_t i = 0; i < done_.size(); ++i) {
      if (persistent_ && done_[i] && plain_mpi().arrays_report_persistent_collectives_again) continue;
      result.places.push_back(static_cast<int>(i));
      result.requests.push_back(requests_[i]);
    }
    result.statuses.resize(result.places.size());
    return result;
  }

  void put_back(const Array& array) {
    for (std::size_t i = 0; i < array.places.size(); ++i)
      requests_[static_cast<std::size_t>(array.places[i])] = array.requests[i];
  }

  void step() {
    const bool waits = random_.chance(percent_waiting);
    const bool ignore = random_.chance(50);
    const auto way = random_.below(5);
    if (persistent_ && ((way == 1 && !waits && plain_mpi().testall_fails_on_persistent_collectives) ||
                        (way >= 1 && way <= 3 && plain_mpi().arrays_report_persistent_collectives_again) ||
                        (way == 4 && plain_mpi().query_ends_persistent)))
      return one(random_.pick(pending()), waits, ignore);
    switch (way) {
      case 0:
        return one(random_.pick(pending()), waits, ignore);
      case 1:
        return all(array(), waits, ignore);
      case 2:
        return any(array(), waits, ignore);
      case 3:
        return some(array(), waits, ignore);
      default:
        return query(random_.pick(pending()));
    }
  }

  void one(int index, bool waits, bool ignore) {
    MPI_Status status;
    MPI_Status* const wanted = ignore ? MPI_STATUS_IGNORE : &status;
    MPI_Request& request = requests_[static_cast<std::size_t>(index)];
    int flag = 1;
    if (waits)
      CROSSLANE_MPI(MPI_Wait(&request, wanted));
    else
      CROSSLANE_MPI(MPI_Test(&request, &flag, wanted));
    if (flag != 0) finished(index);
  }

  void all(Array given, bool waits, bool ignore) {
    MPI_Status* const wanted = ignore ? MPI_STATUSES_IGNORE : given.statuses.data();
    int flag = 1;
    if (waits)
      CROSSLANE_MPI(MPI_Waitall(given.count(), given.requests.data(), wanted));
    else
      CROSSLANE_MPI(MPI_Testall(given.count(), given.requests.data(), &flag, wanted));
    put_back(given);
    if (flag == 0) return;
    for (const int place : pending()) finished(place);
  }

  void any(Array given, bool waits, bool ignore) {
    MPI_Status* const wanted = ignore ? MPI_STATUS_IGNORE : given.statuses.data();
    int index = MPI_UNDEFINED, flag = 1;
    if (waits)
      CROSSLANE_MPI(MPI_Waitany(given.count(), given.requests.data(), &index, wanted));
    else
      CROSSLANE_MPI(MPI_Testany(given.count(), given.requests.data(), &index, &flag, wanted));
    put_back(given);
    if (flag == 0) return;
    CROSSLANE_CHECK(index != MPI_UNDEFINED, "no request is left, but {} were not completed", left_);
    if (index != MPI_UNDEFINED) finished(given.places.at(static_cast<std::size_t>(index)));
  }

  void some(Array given, bool waits, bool ignore) {
    std::vector<int> indices(given.places.size());
    MPI_Status* const wanted = ignore ? MPI_STATUSES_IGNORE : given.statuses.data();
    int found = 0;
    if (waits)
      CROSSLANE_MPI(MPI_Waitsome(given.count(), given.requests.data(), &found, indices.data(), wanted));
    else
      CROSSLANE_MPI(MPI_Testsome(given.count(), given.requests.data(), &found, indices.data(), wanted));
    put_back(given);
    CROSSLANE_CHECK(found != MPI_UNDEFINED, "no request is left, but {} were not completed", left_);
    for (int i = 0; i < found; ++i)
      finished(given.places.at(static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])));
  }

  // A query completes nothing, but what it says is complete must complete at once.
  void query(int index) {
    MPI_Status status;
    MPI_Request& request = requests_[static_cast<std::size_t>(index)];
    int flag = 0;
    CROSSLANE_MPI(MPI_Request_get_status(request, &flag, &status));
    if (flag == 0) return;
    CROSSLANE_MPI(MPI_Test(&request, &flag, &status));
    CROSSLANE_CHECK(flag != 0, "MPI_Request_get_status says complete, MPI_Test does not");
    if (flag != 0) finished(index);
  }

  std::vector<MPI_Request>& requests_;
  Random& random_;
  bool persistent_;
  std::vector<bool> done_;
  std::size_t left_;
};

}  // namespace

void complete_in_random_order(std::vector<MPI_Request>& requests, Random& random, bool persistent) {
  Completion(requests, random, persistent).run();
}

}  // namespace crosslane::tests
