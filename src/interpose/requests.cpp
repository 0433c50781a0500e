// See requests.h.
#include "interpose/requests.h"

#include "interpose/mutant.h"
#include "interpose/undertaking.h"
#include "mpi/status.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

namespace crosslane::interpose {

Operation::Operation() = default;
Operation::~Operation() = default;

bool Operation::ready() const noexcept { return undertaking ? undertaking->over() : look->ready(); }

bool Operation::ends_here() const noexcept { return ready() && (undertaking || look->state == Look::State::fetched); }

bool Operation::receives() const noexcept {
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) { return argument.received(); });
}

std::size_t Operation::bytes_on_gpu() const noexcept {
  std::size_t bytes = 0;
  for (const auto& argument : arguments)
    if (argument.on_gpu()) bytes += argument.bytes();
  return bytes;
}

void Operation::place(team::Communicators* known) {
  if (known == nullptr || target.kind != Target::Kind::comm) return;
  const auto& facts = known->share(target.comm);
  of_session = facts->of_session;
  if (of_session) return;
  communicators = known;
  communicator = facts;
  sequence = communicator->calls.fetch_add(1, std::memory_order_relaxed) + 1;
}

Target Operation::raised_on() const noexcept {
  const bool gone = communicator != nullptr && communicator->freed.load(std::memory_order_acquire);
  return gone ? Target::self() : target;
}

std::string waits_for_message(int source, int tag) {
  return fmt::format(
      "waiting for a message from {}, {}; see whether it is sent, with this tag and on this communicator",
      source == mpi::any_source ? "MPI_ANY_SOURCE" : fmt::format("rank {}", source),
      tag == mpi::any_tag ? "MPI_ANY_TAG" : fmt::format("tag {}", tag));
}

std::string waits_for_receiver(int dest, int tag) {
  return fmt::format(
      "waiting for rank {} to receive the message with tag {}; see whether it does, on this communicator", dest, tag);
}

namespace {

// Whom a receive waits for; nothing where that is a GPU alone.
std::string look_waits_for(const Operation& operation) {
  const Look& look = *operation.look;
  if (!operation.active) return {};  // it is only made ready
  switch (look.state) {
    case Look::State::posted:
      if (look.matched) return "waiting for the rest of a message that a probe has matched; see what its sender does";
      if (look.own) return {};
      if (look.left)
        return waits_for_message(look.source, look.tag) +
               "; its request was freed, and MPI_Finalize waits for it: a receive that may never be matched is to be "
               "cancelled";
      return waits_for_message(look.source, look.tag);
    case Look::State::put_off:
      return fmt::format(
          "the message from rank {}, tag {}, has come, and waits for what the program had enqueued on its default "
          "streams when it first passed the memory; see what those wait for",
          mpi::source(look.status), mpi::tag(look.status));
    case Look::State::pulling:
      return fmt::format(
          "the message from rank {}, tag {}, has come, and its {} bytes are on their way; see what that rank does",
          mpi::source(look.status), mpi::tag(look.status), look.payload);
    default:
      return look.send_dest < 0 ? std::string() : waits_for_receiver(look.send_dest, look.send_tag);
  }
}

}  // namespace

engine::Watch Operation::watch() const noexcept {
  engine::Watch watch{.call = call, .context = this};
  if (look && !look->ready())
    watch.details = [](const void* context) { return look_waits_for(*static_cast<const Operation*>(context)); };
  if (communicator == nullptr) return watch;
  watch.sequence = sequence;
  watch.name = [](const void* context) -> std::string {
    const auto& operation = *static_cast<const Operation*>(context);
    if (operation.communicator->freed.load(std::memory_order_acquire)) return "a communicator that was freed";
    return operation.communicators->name_of(operation.target.comm);
  };
  if (undertaking)
    watch.details = [](const void* context) { return static_cast<const Operation*>(context)->undertaking->details(); };
  return watch;
}

engine::Watch Waiting::watch() const noexcept {
  engine::Watch watch = operation.watch();
  watch.context = this;
  if (watch.name != nullptr)
    watch.name = [](const void* context) {
      const engine::Watch of_operation = static_cast<const Waiting*>(context)->operation.watch();
      return of_operation.name(of_operation.context);
    };
  watch.details = [](const void* context) { return static_cast<const Waiting*>(context)->details(); };
  return watch;
}

void Operation::stage(lane::Copier& copier, Argument::Staging staging) {
  lane::Batch batch(copier, watch());
  for (auto& argument : arguments) argument.stage(batch, staging);
}

void Operation::throw_if_gone() const {
  for (const auto& argument : arguments) argument.throw_if_gone();
}

void Operation::fetch(lane::Copier& copier, lane::Batch::Mpi mpi) {
  if (mutated(call, "copy in dropped")) return;
  lane::Batch batch(copier, watch());
  for (const auto& argument : arguments)
    if (argument.reads()) argument.fetch(batch);
  batch.wait(mpi);
}

void Operation::deliver(lane::Copier& copier, const MPI_Status* status, const mpi::Functions& below) {
  const std::lock_guard lock(delivering);
  try {
    lane::Batch batch(copier, watch());
    deliver(batch, status, below);
    batch.wait();
  } catch (...) {
    delivered = false;  // whoever completes it is to try again
    throw;
  }
}

void Operation::deliver(lane::Batch& batch, const MPI_Status* status, const mpi::Functions& below) {
  if (std::exchange(delivered, true) || mutated(call, "copy out dropped")) return;
  if (when_complete) return std::exchange(when_complete, nullptr)();
  if (got_early) static_cast<void>(below.Win_flush(got_early->target, got_early->window));
  auto limit = std::numeric_limits<std::size_t>::max();
  if (status != nullptr && (receives() || look)) {
    // Open MPI's files leave the flag of their statuses unset; reading a file cannot be cancelled.
    const bool can_be_cancelled = target.kind != Target::Kind::file;
    limit = can_be_cancelled && mpi::cancelled(below, *status)
                ? 0
                : static_cast<std::size_t>(mpi::received_bytes(below, *status));
  }
  if (look && look->temp) {
    const auto bytes = std::min(limit, look->buffer.bytes);
    look->buffer.layout->unpack(look->buffer.address, look->landing, look->buffer.count, 0, bytes);
    return;
  }
  for (const auto& argument : arguments) {
    if (!argument.writes()) continue;
    if (arrived.empty()) {
      argument.deliver(batch, argument.received() ? limit : std::numeric_limits<std::size_t>::max());
      continue;
    }
    for (std::size_t partition = 0; partition < arrived.size(); ++partition)
      if (!arrived[partition])
        argument.deliver_range(batch, partition * partition_bytes, (partition + 1) * partition_bytes);
  }
}

void Operation::deliver_partition(lane::Copier& copier, std::size_t partition) {
  if (partition >= arrived.size() || arrived[partition]) return;
  lane::Batch batch(copier, watch());
  arguments.front().deliver_range(batch, partition * partition_bytes, (partition + 1) * partition_bytes);
  batch.wait(lane::Batch::Mpi::rests);
  arrived[partition] = true;
}

std::vector<std::pair<MPI_Request, std::shared_ptr<Operation>>> Requests::some_looks() {
  constexpr std::size_t some = 16;
  std::vector<std::pair<MPI_Request, std::shared_ptr<Operation>>> found;
  operations_.for_some(looked_until_, some, [&](MPI_Request request, const std::shared_ptr<Operation>& operation) {
    if (!operation->look || !operation->active || operation->completing || operation->look->ready()) return false;
    found.emplace_back(request, operation);
    return true;
  });
  return found;
}

void Requests::rename(MPI_Request before, MPI_Request after) {
  if (before == after) return;
  if (auto operation = operations_.take(before)) operations_.put(after, std::move(operation));
}

bool Requests::lend_idle(MPI_Request* request) {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return false;
  *request = idle_.back();
  idle_.pop_back();
  return true;
}

void Requests::take_back_idle(MPI_Request request) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(request);
}

void Requests::adopt(MPI_Request request, std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  adopted_.emplace_back(request, std::move(operation));
  adopted_size_.fetch_add(1, std::memory_order_release);
}

Requests::Hand::Hand(Requests& requests, base::FunctionRef<bool(const Operation&)> wanted, Time time)
    : requests_(requests), time_(time) {
  const std::lock_guard lock(requests_.mutex_);
  for (auto each = requests_.adopted_.begin(); each != requests_.adopted_.end();) {
    const auto next = std::next(each);
    if (wanted(*each->second)) mine_.splice(mine_.end(), requests_.adopted_, each);
    each = next;
  }
  if (time_ == Time::brief) requests_.hands_.fetch_add(1, std::memory_order_relaxed);
}

Requests::Hand::~Hand() {
  const std::lock_guard lock(requests_.mutex_);
  requests_.adopted_.splice(requests_.adopted_.end(), mine_);
  requests_.adopted_size_.fetch_sub(done_, std::memory_order_release);
  if (time_ == Time::brief) requests_.hands_.fetch_sub(1, std::memory_order_release);
}

void Requests::Hand::each(base::FunctionRef<bool(MPI_Request, const std::shared_ptr<Operation>&)> done) {
  done_ += std::erase_if(mine_, [&](const auto& each) { return done(each.first, each.second); });
}

}  // namespace crosslane::interpose
