// See awaited.h.
#include "interpose/awaited.h"

#include "interpose/process.h"
#include "interpose/receive.h"

#include <exception>

namespace crosslane::interpose {
namespace {

// Such are read one by one in any case.
constexpr std::size_t is_long = std::size_t{1} << 20;
constexpr unsigned short_ones_a_look = 32;
// Of more the oldest wait for their own calls.
constexpr std::size_t most = 1024;

}  // namespace

void Awaited::add(Process& process, MPI_Request request, const std::shared_ptr<Operation>& operation) {
  if (process.multiple()) return;
  if (receives_.size() == most) receives_.pop_front();
  receives_.emplace_back(request, operation);
}

void Awaited::completes(const Process& process) noexcept {
  if (!process.multiple()) short_ones_ = 0;
}

void Awaited::look(Process& process, Begun begun, std::size_t bytes) {
  if (process.multiple()) return;
  if (bytes < is_long && (begun == Begun::receive || ++short_ones_ < short_ones_a_look)) return;
  short_ones_ = 0;
  message::Transfers::Gathering gathering(process.looks() ? &process.transfers() : nullptr);
  for (; !receives_.empty(); receives_.pop_front()) {
    const auto& [request, kept] = receives_.front();
    const auto operation = kept.lock();
    if (operation == nullptr || !operation->active || !operation->look->awaits_mpi()) continue;
    try {
      look_at(process, *operation, request, &gathering);
    } catch (const std::exception&) {
      return;  // whoever completes it meets that, too
    }
    if (operation->look->awaits_mpi()) return;
  }
}

}  // namespace crosslane::interpose
