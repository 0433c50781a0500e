// See offering.h.
#include "message/offering.h"

#include "base/error.h"
#include "base/log.h"
#include "message/sides.h"
#include "mpi/status.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <utility>

namespace crosslane::message {
namespace {

using State = share::Offers::State;

// How often those that their calls have left are looked after: half of what a send that was started has before it is copied to the host; and where patience is
// short, no more often than a turn takes, for a task that awaits nothing never returns.
constexpr base::Duration seldom = Transfers::started_patience / 2, often = std::chrono::microseconds{10};
// MPI may need this rank's turns to bring the header over: MPICH over UCX sets up a connection with the first synchronous message.
constexpr base::Duration most_unaided = std::chrono::milliseconds{1};
// A call of the driver each.
constexpr unsigned looks_at_gpu = 1024;
// Of these rounds without anything to do, before they end: a program that sends now and then shall not begin them each time.
constexpr unsigned most_idle_rounds = 64;

}  // namespace

Transfers::Offering::Offering(Transfers& transfers, Buffer buffer, const Header& header, int to, MPI_Request* request,
                              MPI_Status* status, std::optional<base::Duration> returns, const engine::Watch& watch)
    : transfers_(transfers),
      payload_(std::move(buffer), header.offer, to, watch),
      header_(header),
      request_(request),
      status_(status),
      returns_(returns),
      late_(base::now() + std::min({transfers.patience_, returns.value_or(transfers.patience_), most_unaided}) / 2) {}

Header Transfers::Offering::header() const noexcept {
  Header header;
  header.bytes = header_.bytes;
  header.chunk_bytes = header_.chunk_bytes;
  header.token = header_.token;
  header.offer = payload_.offer;
  header.sender = header_.sender;
  header.tag = header_.tag;
  header.listed.held = header_.list;
  return header;
}

Transfers::Offering::~Offering() {
  if (left_ || payload_.watched()) transfers_.forget(*this);
}

void Transfers::Offering::start(std::weak_ptr<void> owner, bool leaves) {
  payload_.owner = std::move(owner);
  transfers_.lookout_.watch(payload_);
  if (leaves) transfers_.look_after(*this);
}

bool Transfers::Offering::over() const noexcept {
  const Stage stage = stage_.load(std::memory_order_acquire);
  return stage == Stage::over || (stage == Stage::task && task_.done());
}

bool Transfers::Offering::hold() noexcept {
  Stage expected = Stage::open;
  return stage_.compare_exchange_strong(expected, Stage::held, std::memory_order_acquire, std::memory_order_relaxed);
}

// Its owner may free it now, and other memory come to its address.
void Transfers::Offering::let_go_of_target() noexcept {
  if (target_) *target_ = {};
}

void Transfers::Offering::go_on_if_late(engine::Moment& moment) {
  if (stage_.load(std::memory_order_acquire) == Stage::open && moment.now() >= late_ && hold()) go_on();
}

void Transfers::Offering::look() {
  if (stage_.load(std::memory_order_acquire) != Stage::open) return;
  if (unwanted_.load(std::memory_order_relaxed)) return cancel();
  auto& offers = transfers_.peers_->offers();
  const State state = offers.state(payload_.offer);
  if (state == State::failed) {
    if (hold()) go_on();
    return;
  }
  if (state == State::asked ||
      (state == State::writing && looks_.fetch_add(1, std::memory_order_relaxed) % looks_at_gpu == looks_at_gpu - 1)) {
    if (!hold()) return;
    transfers_.write_if_asked(*this);
    if (state == State::writing) transfers_.give_up_if_failed(*this);
    stage_.store(Stage::open, std::memory_order_release);
  }
  if (state != State::done) {
    engine::Moment moment;
    if (!left_) go_on_if_late(moment);
    return;
  }
  if (!hold()) return;
  let_go_of_target();
  int flag = 1;
  // Whatever it tells: the payload has arrived.
  if (request_ != nullptr && transfers_.mpi_.Test(request_, &flag, status_) == mpi::success && flag == 0) {
    stage_.store(Stage::open, std::memory_order_release);
    return;
  }
  transfers_.peers_->came_for(payload_.to, header_.bytes, true);
  transfers_.close_offer(*this);
  transfers_.tags_.give_back(header_.tag);
  ++transfers_.events_;
  stage_.store(Stage::over, std::memory_order_release);
}

void Transfers::Offering::rethrow() const {
  if (stage_.load(std::memory_order_acquire) == Stage::task) task_.rethrow();
}

void Transfers::Offering::cancel() {
  unwanted_.store(true, std::memory_order_seq_cst);
  if (hold()) go_on();
  if (stage_.load(std::memory_order_seq_cst) != Stage::task || returns_) return;
  matched_.cancel();
  transfers_.engine_.progress();
}

void Transfers::Offering::go_on() {
  if (request_ != nullptr) matched_ = engine::Completion::of(request_, status_);
  task_ = transfers_.engine_.spawn(transfers_.send_offered(*this, matched_, payload_.owner.lock()));
  stage_.store(Stage::task, std::memory_order_seq_cst);
  // Either this thread sees that it is unwanted, or who has said so sees the task.
  if (!returns_ && unwanted_.load(std::memory_order_seq_cst)) matched_.cancel();
}

engine::Task<> Transfers::send_offered(Offering& offering, engine::Completion matched, std::shared_ptr<void> alive) {
  auto& offers = peers_->offers();
  const Buffer& buffer = offering.payload_.buffer;
  const Header header = offering.header();
  const int to = offering.payload_.to;
  const MPI_Status* const status = offering.status_;
  const auto returns = offering.returns_;
  const engine::Watch watch = offering.payload_.watch;
  const auto ticket = header.offer;
  const auto over = offers.reached(ticket, State::done);
  if (!returns && !over.done()) co_await either(over, matched);
  const bool withdrawn = status != nullptr && matched.done() && mpi::cancelled(mpi_, *status);
  // While other messages of this rank come and go, its peers are likely at work on this one's like.
  const base::Duration patience = std::min(patience_, returns.value_or(patience_));
  const base::Time end = base::now() + patience_;
  const auto moves = offers.reached(ticket, State::asked);  // or over
  for (std::uint64_t seen = ~std::uint64_t{0}; !moves.done() && !withdrawn && seen != events() && base::now() < end;) {
    seen = events();
    co_await moves.or_after(patience);
  }
  std::exception_ptr failure;
  bool late = false;
  if (offers.state(ticket) == State::offered && !withdrawn) {
    // Where nobody is waited for all go so.
    if (patience_.count() > 0) peers_->came_for(to, header.bytes, false);
    late = true;
    // The offer stands until the copy is there, which it is then replaced by in one step: the application may leave this task alone
    // at any time, in a call of MPI that waits for the receiver.
    const auto copy = std::make_shared<Buffer>();
    const auto stored = std::make_shared<Ferrying::Copy>(ticket, to);
    const bool many = ++stored_ > most_stored;
    bool is_short = false;  // of memory for it: then the receiver may read as before, however late it comes
    try {
      co_await to_host(copier_, buffer, 0, copy, watch);
      if (!many) stored->payload.emplace(copy->address, copy->address + copy->bytes);
    } catch (const std::exception& error) {
      is_short = base::is_shortage(error);
      if (!is_short) failure = std::current_exception();
      base::log(base::Topic::debug, "{}: no copy of a message for a receiver that is late: {}", watch.call,
                error.what());
    }
    const bool by_mpi = many && !failure && !is_short;
    if (by_mpi && offers.keep(ticket)) {
      --stored_;
      // What lies beside the word goes with a token's chunk: its receiver has yet to look there.
      if (header.token == 0) close_offer(ticket);
      auto sending = send_chunks(*copy, header, to, matched, {.patient = false, .matched = !returns}, watch, alive);
      co_await std::move(sending);
      co_return;
    }
    if (!by_mpi && !is_short && lookout_.may_copy(offering.payload_)) {
      ferrying_.serve(stored);
      if (offers.store(ticket)) {
        forget(offering);
        tags_.give_back(header.tag);
        outstanding_.fetch_add(1, std::memory_order_relaxed);
        engine_.spawn(keep_stored(stored, matched, alive));
        if (!returns) co_await matched;
        if (failure) std::rethrow_exception(failure);
        co_return;
      }
    }
    --stored_;
  }
  if (!over.done() && !withdrawn) {
    auto moving = read_or_written(offering, to, over);
    co_await std::move(moving);
  }
  const State state = offers.state(ticket);
  if (state == State::done && !late && !withdrawn) peers_->came_for(to, header.bytes, true);
  ++events_;
  close_offer(offering);
  co_await matched;
  tags_.give_back(header.tag);
  if (state != State::failed) co_return;
  if (failure) std::rethrow_exception(failure);
  if (const auto why = lookout_.why_uncopied(offering.payload_)) std::rethrow_exception(why);
  throw reader_failure(watch, to);
}

// The receiver reads, or asks this rank to write.
engine::Task<> Transfers::read_or_written(Offering& offering, int to, engine::Completion over) {
  const auto& offers = peers_->offers();
  const auto ticket = offering.payload_.offer;
  const auto moves = offers.reached(ticket, State::asked);
  base::Time question = base::now() + between_questions;
  while (!over.done()) {
    if (moves.done()) {
      write_if_asked(offering);
      give_up_if_failed(offering);
      co_await over.or_after(seldom);
    } else {
      co_await moves.or_after(between_questions);
    }
    if (base::now() < question) continue;
    question = base::now() + between_questions;
    if (!peers_->alive(to)) offers.fail(world_.directory().local_rank(), ticket);  // unless it is over
    lookout_.begin();
  }
  offering.let_go_of_target();
}

// Until its receiver has asked for the copy, or nobody will any more.
engine::Task<> Transfers::keep_stored(Ferrying::CopyPointer stored, engine::Completion matched,
                                      [[maybe_unused]] std::shared_ptr<void> alive) {
  const auto& offers = peers_->offers();
  const share::Offers::Ticket offer = stored->offer;
  co_await matched;
  auto hastening = ferrying_.hasten(stored);
  co_await std::move(hastening);
  const auto answered = offers.reached(offer, State::declined);
  const auto over = offers.reached(offer, State::done);
  if (answered.done() && !over.done()) co_await over;
  close_offer(offer);
  --stored_;
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
}

engine::Task<> Transfers::hasten_outstanding(Ferrying::CopyPointer stored) {
  auto hastening = ferrying_.hasten(std::move(stored));
  co_await std::move(hastening);
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
}

void Transfers::close_offer(const share::Offers::Ticket& offer) {
  lookout_.stop(offer);
  peers_->offers().close(offer);
}

void Transfers::close_offer(Offering& offering) {
  if (!offering.target_) return close_offer(offering.payload_.offer);
  lookout_.stop(offering.payload_.offer);
  peers_->writer().close(offering.payload_.offer);
  offering.target_.reset();
}

// Whose receiver has the header by now: without memory for more, it is looked at only while this rank waits for it.
void Transfers::look_after(Offering& offering) noexcept {
  try {
    const std::lock_guard lock(offerings_mutex_);
    offerings_.push_back(&offering);
    offering.left_ = true;
    if (std::exchange(looks_after_left_, true)) return;
  } catch (const std::bad_alloc& error) {
    base::log(base::Topic::debug, "a message that was started is left alone: {}", error.what());
    return;
  }
  try {
    engine_.spawn(look_after_left());
  } catch (const std::bad_alloc& error) {
    base::log(base::Topic::debug, "messages that were started are left alone until the next one: {}", error.what());
    const std::lock_guard lock(offerings_mutex_);
    looks_after_left_ = false;
  }
}

// What callbacks of the application still call in MPI_Finalize gives turns to tasks, which must not outlive this object.
void Transfers::stop_looking() {
  const auto stopped = [this] {
    const std::lock_guard lock(offerings_mutex_);
    finishing_ = true;
    return !looks_after_left_;
  };
  if (!stopped()) engine_.until(stopped, {.call = "MPI_Finalize"});
}

void Transfers::forget(Offering& offering) noexcept {
  lookout_.forget(offering.payload_);
  const std::lock_guard lock(offerings_mutex_);
  offering.left_ = false;
  const auto found = std::find(offerings_.begin(), offerings_.end(), &offering);
  if (found == offerings_.end()) return;
  *found = offerings_.back();
  offerings_.pop_back();
}

// A rank may wait in any call for what depends on a payload whose receiver does not read it.
engine::Task<> Transfers::look_after_left() {
  for (unsigned idle = 0;;) {
    co_await engine::Completion::after(std::clamp(patience_ / 2, often, seldom));
    {
      const std::lock_guard lock(offerings_mutex_);
      idle = offerings_.empty() ? idle + 1 : 0;
      if (idle == most_idle_rounds || finishing_) {
        looks_after_left_ = false;
        co_return;
      }
    }
    look_at_left();
  }
}

void Transfers::look_if_asked() {
  const std::uint64_t asks = world_.directory().asks();
  if (asks == asks_seen_.load(std::memory_order_relaxed)) return;
  asks_seen_.store(asks, std::memory_order_relaxed);
  look_at_left();
}

void Transfers::look_at_left() {
  std::vector<std::pair<std::shared_ptr<void>, Offering*>> open;
  {
    const std::lock_guard lock(offerings_mutex_);
    for (Offering* const offering : offerings_)
      if (auto owner = offering->payload_.owner.lock(); owner != nullptr) open.emplace_back(std::move(owner), offering);
  }
  engine::Moment moment;
  for (const auto& [owner, offering] : open) {
    offering->look();
    offering->go_on_if_late(moment);
  }
}

Transfers::~Transfers() {
  const std::lock_guard lock(offerings_mutex_);
  for (Offering* const offering : offerings_) offering->left_ = false;
}

}  // namespace crosslane::message
