// The queue, and how messages come into it. See unexpected.h.
#include "message/unexpected.h"

#include "mpi/status.h"
#include "team/messenger.h"

#include <algorithm>
#include <utility>

namespace crosslane::message {
namespace {

bool matches(const Arrived& arrived, const team::CommunicatorFacts* facts, int source, int tag) {
  return arrived.facts.get() == facts && (source == mpi::any_source || source == arrived.status.MPI_SOURCE) &&
         (tag == mpi::any_tag || tag == arrived.status.MPI_TAG);
}

}  // namespace

Unexpected::Queue::iterator Unexpected::find(const team::CommunicatorFacts* facts, int source, int tag) {
  return std::find_if(queue_.begin(), queue_.end(),
                      [&](const ArrivedPointer& arrived) { return matches(*arrived, facts, source, tag); });
}

ArrivedPointer Unexpected::take(const team::CommunicatorFacts* facts, int source, int tag) {
  const auto found = find(facts, source, tag);
  return found == queue_.end() ? nullptr : take(found);
}

ArrivedPointer Unexpected::take(Queue::iterator arrived) noexcept {
  auto taken = std::move(*arrived);
  queue_.erase(arrived);
  size_.store(queue_.size(), std::memory_order_release);
  return taken;
}

// The oldest message that MPI has from `source`; none if there is none any more. Whatever memory it takes is there before MPI gives it away.
Unexpected::Queue Unexpected::extract(MPI_Comm comm, const std::shared_ptr<team::CommunicatorFacts>& facts, int source,
                                      int& code) {
  int there = 0;
  Queue extracted(1, std::make_shared<Arrived>());
  const ArrivedPointer& arrived = extracted.front();
  code = mpi_.Improbe(source, mpi::any_tag, comm, &there, &arrived->message, &arrived->status);
  if (code != mpi::success || there == 0) return {};
  arrived->comm = comm;
  arrived->facts = facts;
  if (mpi::received_bytes(mpi_, arrived->status) != static_cast<MPI_Count>(header_bytes)) {
    arrived->held = true;
    return extracted;
  }
  MPI_Status status{};
  code = mpi_.Mrecv(arrived->bytes.data(), static_cast<int>(header_bytes), handles_.byte, &arrived->message, &status);
  if (code != mpi::success) return {};
  arrived->header = decode(arrived->bytes, cookie_);
  if (arrived->header) mpi::set_received_bytes(mpi_, arrived->status, static_cast<MPI_Count>(arrived->header->bytes));
  return extracted;
}

Unexpected::Probed Unexpected::probe(MPI_Comm comm, const std::shared_ptr<team::CommunicatorFacts>& facts, int source,
                                     int tag) {
  Probed probed{.code = mpi::success};
  if (const auto found = find(facts.get(), source, tag); found != queue_.end()) {
    probed.there = true;
    probed.status = (*found)->status;
    return probed;
  }
  int there = 0;
  probed.code = mpi_.Iprobe(source, tag, comm, &there, &probed.status);
  if (probed.code != mpi::success || there == 0) return probed;
  probed.there = true;
  if (mpi::received_bytes(mpi_, probed.status) != static_cast<MPI_Count>(header_bytes)) return probed;
  // All that came before it from there comes along, so that the queue stays the older part of what has arrived.
  const int from = probed.status.MPI_SOURCE;
  for (;;) {
    Queue extracted = extract(comm, facts, from, probed.code);
    if (extracted.empty()) {  // another thread's receive was faster
      probed.there = false;
      return probed;
    }
    const Arrived& arrived = *extracted.front();
    const bool wanted = matches(arrived, facts.get(), source, tag);
    if (wanted) probed.status = arrived.status;
    queue_.splice(queue_.end(), extracted);
    size_.store(queue_.size(), std::memory_order_release);
    if (wanted) return probed;
  }
}

// A message to this rank itself, matched and not received, is as good a handle as any other.
std::optional<MPI_Message> Unexpected::hand_out(const team::CommunicatorFacts* facts, int source, int tag) {
  const auto found = find(facts, source, tag);
  if (found == queue_.end()) return std::nullopt;
  if ((*found)->held) return take(found)->message;
  decltype(handed_out_) made;
  made.emplace(0, *found);
  const int own_tag = team::value(team::Tag::message_handle);
  MPI_Request request{};
  team::check(mpi_, mpi_.Isend(nullptr, 0, handles_.byte, rank_, own_tag, private_, &request), "MPI_Isend");
  mpi_.Request_free(&request);
  MPI_Message handle{};
  for (int there = 0; there == 0;)
    team::check(mpi_, mpi_.Improbe(rank_, own_tag, private_, &there, &handle, mpi::status_ignore()), "MPI_Improbe");
  static_cast<void>(take(found));
  auto node = made.extract(made.begin());
  node.key() = key(handle);
  const std::lock_guard lock(handles_mutex_);
  handed_out_.erase(node.key());
  handed_out_.insert(std::move(node));
  handed_out_size_.store(handed_out_.size(), std::memory_order_release);
  return handle;
}

ArrivedPointer Unexpected::handed_out(const MPI_Message& handle) {
  if (handed_out_size_.load(std::memory_order_acquire) == 0) return nullptr;
  const std::lock_guard lock(handles_mutex_);
  const auto found = handed_out_.find(key(handle));
  return found == handed_out_.end() ? nullptr : found->second;
}

void Unexpected::claim(MPI_Message& handle) {
  {
    const std::lock_guard lock(handles_mutex_);
    handed_out_.erase(key(handle));
    handed_out_size_.store(handed_out_.size(), std::memory_order_release);
  }
  team::check(mpi_, mpi_.Mrecv(nullptr, 0, handles_.byte, &handle, mpi::status_ignore()), "MPI_Mrecv");
}

}  // namespace crosslane::message
