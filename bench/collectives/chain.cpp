// See chain.h.
#include "collectives/chain.h"

#include "operation/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace crosslane::bench {
namespace {

constexpr int verified_calls = 3;  // sums of 32 ranks' values stay whole numbers of a float so long

bool changes_roots(const std::string& name) {
  return name == "reduce" || name == "bcast" || name == "gather" || name == "scatter";
}

}  // namespace

bool has_blocks(const std::string& name) { return name != "allreduce" && name != "reduce" && name != "bcast"; }

Chain::Chain(const std::string& name, std::size_t bytes, int rank, int ranks)
    : name_(name), rank_(rank), ranks_(ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t block = std::max<std::size_t>((has_blocks(name) ? bytes / n : bytes) / 4 * 4, 4);
  for (int root = 0; root < (changes_roots(name) ? ranks : 1); ++root) {
    by_root_.push_back(Collective::make(name, block, rank, ranks, root));
    if (by_root_.back() == nullptr) throw std::runtime_error(fmt::format("no collective is called {}", name));
  }
  if (ranks < 2) throw std::runtime_error("start at least two ranks");
  bytes_ = has_blocks(name) ? block * n : block;
}

double Chain::bus_bytes() const {
  const auto n = static_cast<double>(ranks_), all = static_cast<double>(bytes_);
  if (name_ == "allreduce") return 2 * (n - 1) / n * all;
  return has_blocks(name_) ? (n - 1) / n * all : all;
}

// Who sends what the call before brought it: with roots, the last root in reduce and gather (its result), the next root in
// scatter (its block) and broadcast (all); without, everybody.
Chain::Places Chain::places(int call) const {
  if (!changes_roots(name_)) return {by_root_[0].get(), call % 2, 1 - call % 2};
  const int root = call % ranks_;
  const Collective* const collective = by_root_[static_cast<std::size_t>(root)].get();
  if (name_ == "bcast") return {collective, 0, 0};
  if (name_ == "scatter") return {collective, 1, rank_ == root ? 0 : 1};
  const bool was_root = call > 0 && rank_ == (call - 1) % ranks_;
  return {collective, was_root ? 1 : 0, 1};
}

void Chain::run(const ChainMemory& memory, int calls, const Call& call) const {
  for (int i = 0; i < calls; ++i) {
    const Places at = places(i);
    call(*at.collective, memory.gpu[static_cast<std::size_t>(at.send)],
         memory.gpu[static_cast<std::size_t>(at.receive)]);
  }
}

void Chain::run_by_hand(const ChainMemory& memory, int calls) const {
  const auto& [addresses, hosts] = memory;
  for (int i = 0; i < calls; ++i) {
    const Places at = places(i);
    const auto send = static_cast<std::size_t>(at.send), receive = static_cast<std::size_t>(at.receive);
    const std::size_t read = at.collective->send_count() * sizeof(float);
    const std::size_t written = at.collective->receive_count() * sizeof(float);
    if (read != 0) check(cuMemcpyDtoH(hosts[send], addresses[send], read), "cuMemcpyDtoH");
    at.collective->mpi(hosts[send], hosts[receive]);
    if (written != 0) check(cuMemcpyHtoD(addresses[receive], hosts[receive], written), "cuMemcpyHtoD");
  }
}

bool Chain::right(const ChainMemory& memory, const std::function<void(int calls)>& run_calls) {
  if (before_[0].empty()) {
    for (std::size_t which = 0; which < 2; ++which) {
      before_[which].resize(bytes_ / sizeof(float));
      for (std::size_t i = 0; i < before_[which].size(); ++i)
        before_[which][i] = value(rank_ + 7 * static_cast<int>(which), i);
    }
    behind_ = before_;
    for (int i = 0; i < verified_calls; ++i) {
      const Places at = places(i);
      at.collective->mpi(behind_[static_cast<std::size_t>(at.send)].data(),
                         behind_[static_cast<std::size_t>(at.receive)].data());
    }
  }
  for (std::size_t which = 0; which < 2; ++which)
    check(cuMemcpyHtoD(memory.gpu[which], before_[which].data(), bytes_), "cuMemcpyHtoD");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  run_calls(verified_calls);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  std::vector<float> got(bytes_ / sizeof(float));
  bool same = true;
  for (std::size_t which = 0; which < 2; ++which) {
    check(cuMemcpyDtoH(got.data(), memory.gpu[which], bytes_), "cuMemcpyDtoH");
    same = same && got == behind_[which];
  }
  return same;
}

}  // namespace crosslane::bench
