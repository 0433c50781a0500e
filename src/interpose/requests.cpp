// See requests.h.
#include "interpose/requests.h"

#include "interpose/mutant.h"
#include "mpi/status.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace crosslane::interpose {

bool Operation::receives() const noexcept {
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) { return argument->received(); });
}

void Operation::stage(lane::Copier& copier) {
  lane::Batch batch(copier, call);
  for (const auto& argument : arguments) argument->stage(batch);
}

void Operation::fetch(lane::Copier& copier) {
  if (mutated(call, "copy in dropped")) return;
  lane::Batch batch(copier, call);
  for (const auto& argument : arguments)
    if (argument->reads()) argument->fetch(batch);
  batch.wait();
}

void Operation::deliver(lane::Copier& copier, const MPI_Status* status, const mpi::Functions& below) {
  if (std::exchange(delivered, true) || mutated(call, "copy out dropped")) return;
  auto limit = std::numeric_limits<std::size_t>::max();
  if (status != nullptr && receives()) {
    // Open MPI's files leave the flag of their statuses unset; reading a file cannot be cancelled.
    const bool can_be_cancelled = !std::string_view(call).starts_with("MPI_File_");
    limit = can_be_cancelled && mpi::cancelled(below, *status)
                ? 0
                : static_cast<std::size_t>(mpi::received_bytes(below, *status));
  }
  lane::Batch batch(copier, call);
  for (const auto& argument : arguments)
    if (argument->writes())
      argument->deliver(batch, argument->received() ? limit : std::numeric_limits<std::size_t>::max());
  batch.wait();
}

void Requests::add(MPI_Request request, std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  operations_.insert_or_assign(key(request), std::move(operation));
  size_.store(operations_.size(), std::memory_order_release);
}

std::shared_ptr<Operation> Requests::take(MPI_Request request) {
  const std::lock_guard lock(mutex_);
  auto node = operations_.extract(key(request));
  if (!node) return nullptr;
  size_.store(operations_.size(), std::memory_order_release);
  return std::move(node.mapped());
}

std::shared_ptr<Operation> Requests::find(MPI_Request request) const {
  const std::lock_guard lock(mutex_);
  const auto found = operations_.find(key(request));
  return found == operations_.end() ? nullptr : found->second;
}

void Requests::rename(MPI_Request before, MPI_Request after) {
  if (before == after) return;
  const std::lock_guard lock(mutex_);
  if (auto node = operations_.extract(key(before))) operations_.insert_or_assign(key(after), std::move(node.mapped()));
}

void Requests::adopt(MPI_Request request, std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  adopted_.emplace_back(request, std::move(operation));
  adopted_size_.store(adopted_.size(), std::memory_order_release);
}

void Requests::settle(lane::Copier& copier, const mpi::Functions& below, bool all) {
  if (adopted_size_.load(std::memory_order_acquire) == 0) return;
  decltype(adopted_) mine;
  {
    const std::lock_guard lock(mutex_);
    mine.swap(adopted_);
    adopted_size_.store(0, std::memory_order_release);
  }
  for (auto& [request, operation] : mine) {
    int flag = 0;
    MPI_Status status;
    const bool persistent = operation->persistent;
    MPI_Request held = request;
    if (all) {
      below.Wait(&held, &status);
      flag = 1;
    } else {
      below.Test(&held, &flag, &status);
    }
    if (flag == 0) {
      adopt(request, std::move(operation));
      continue;
    }
    operation->deliver(copier, &status, below);
    if (persistent) below.Request_free(&request);
  }
}

}  // namespace crosslane::interpose
