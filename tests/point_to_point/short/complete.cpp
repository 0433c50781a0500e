// See complete.h.
#include "point_to_point/short/complete.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace crosslane::tests {
namespace {

void complete_array(Random& local, std::vector<Item>& part) {
  std::vector<MPI_Request> requests;
  for (const auto& one : part) requests.push_back(*one.request);
  const bool ignored = std::ranges::all_of(part, [](const Item& one) { return one.status == nullptr; });
  const auto count = static_cast<int>(part.size());
  std::vector<MPI_Status> statuses(part.size());
  std::vector<int> indices(part.size());
  MPI_Status* const all = ignored ? MPI_STATUSES_IGNORE : statuses.data();
  int done = 0, flag = 0;
  const auto tell = [&](int index, const MPI_Status& status) {
    auto& one = part.at(static_cast<std::size_t>(index));
    if (one.status != nullptr) *one.status = status;
  };
  const auto way = local.below(6);
  if (way <= 1) {
    if (way == 0)
      CROSSLANE_MPI(MPI_Waitall(count, requests.data(), all));
    else
      for (; flag == 0; sched_yield()) CROSSLANE_MPI(MPI_Testall(count, requests.data(), &flag, all));
    for (int i = 0; i < count && !ignored; ++i) tell(i, statuses.at(static_cast<std::size_t>(i)));
  } else if (way <= 3) {
    while (done < count) {
      int index = MPI_UNDEFINED;
      MPI_Status status;
      flag = 1;
      if (way == 2)
        CROSSLANE_MPI(MPI_Waitany(count, requests.data(), &index, &status));
      else
        CROSSLANE_MPI(MPI_Testany(count, requests.data(), &index, &flag, &status));
      if (flag == 0) {
        sched_yield();
        continue;
      }
      if (index == MPI_UNDEFINED) break;
      tell(index, status);
      ++done;
    }
    CROSSLANE_CHECK_EQUAL(done, count);
  } else {
    while (done < count) {
      int some = 0;
      if (way == 4)
        CROSSLANE_MPI(MPI_Waitsome(count, requests.data(), &some, indices.data(), all));
      else
        CROSSLANE_MPI(MPI_Testsome(count, requests.data(), &some, indices.data(), all));
      if (some == MPI_UNDEFINED) break;
      for (int i = 0; i < some && !ignored; ++i)
        tell(indices.at(static_cast<std::size_t>(i)), statuses.at(static_cast<std::size_t>(i)));
      done += some;
      if (some == 0) sched_yield();
    }
    CROSSLANE_CHECK_EQUAL(done, count);
  }
  for (std::size_t i = 0; i < part.size(); ++i) *part[i].request = requests[i];
}

}  // namespace

Item item(Incoming& one) { return {&one.request, one.told ? &one.status : nullptr, one.way == Way::persistent}; }
Item item(Outgoing& one) { return {&one.request, nullptr, one.persistent}; }

void complete_all(Random& local, std::vector<Item> items) {
  local.shuffle(items);
  while (!items.empty()) {
    const auto some = local.between<std::size_t>(1, items.size());
    std::vector<Item> part(items.end() - static_cast<std::ptrdiff_t>(some), items.end());
    items.resize(items.size() - some);
    if (some == 1 || local.chance(30)) {
      for (auto& one : part)
        complete(local, *one.request, one.status == nullptr ? MPI_STATUS_IGNORE : one.status, one.persistent);
    } else {
      complete_array(local, part);
    }
  }
}

void complete_all(Random& local, std::deque<Incoming>& receives, std::deque<Outgoing>& sends) {
  std::vector<Item> items;
  for (auto& one : receives) {
    if (one.handle != MPI_MESSAGE_NULL) one.receive_matched();
    if (one.request != MPI_REQUEST_NULL) items.push_back(item(one));
  }
  for (auto& one : sends)
    if (one.request != MPI_REQUEST_NULL) items.push_back(item(one));
  complete_all(local, std::move(items));
}

}  // namespace crosslane::tests
