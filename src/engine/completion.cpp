// The kinds of completion and their questions. It must not poll: it answers from memory.
#include "engine/completion.h"

#include <algorithm>

namespace crosslane::engine {

struct Completion::Group final : CompletionState {
  explicit Group(std::vector<Completion> all_members) : members(std::move(all_members)) {}
  const std::vector<Completion> members;
};

const std::vector<Completion>& Completion::members() const noexcept {
  return static_cast<const Group&>(*state_).members;
}

Completion Completion::of(const std::atomic<std::uint64_t>& word, std::uint64_t reached) noexcept {
  Completion completion;
  completion.kind_ = Kind::word;
  completion.word_ = &word;
  completion.value_ = reached;
  return completion;
}

Completion Completion::of(MPI_Request* request, MPI_Status* status) {
  auto state = std::make_shared<RequestState>();
  state->request = request;
  state->status = status;
  return {Kind::request, std::move(state)};
}

Completion Completion::after(base::Duration delay) noexcept {
  Completion completion;
  completion.kind_ = Kind::time;
  return completion.or_after(delay);
}

Completion Completion::or_after(base::Duration delay) const noexcept {
  Completion completion = *this;
  completion.due_ = std::min(due_, base::now() + delay);
  return completion;
}

Completion Completion::when_all(std::vector<Completion> members) {
  return {Kind::all, std::make_shared<Group>(std::move(members))};
}

Completion Completion::when_any(std::vector<Completion> members) {
  return {Kind::any, std::make_shared<Group>(std::move(members))};
}

bool Completion::done_by_state(Moment& moment) const noexcept {
  if (reached(moment)) return true;
  return due_ != never && moment.now() >= due_;
}

bool Completion::reached(Moment& moment) const noexcept {
  const auto is_done = [&moment](const Completion& member) { return member.done(moment); };
  switch (kind_) {
    case Kind::none:
      return true;
    case Kind::word:
      return word_->load(std::memory_order_acquire) >= value_;
    case Kind::time:
      return false;
    case Kind::request:
    case Kind::task:
      return state_->finished.load(std::memory_order_acquire);
    case Kind::all:
      return std::all_of(members().begin(), members().end(), is_done);
    case Kind::any:
      return std::any_of(members().begin(), members().end(), is_done);
  }
  return false;
}

bool Completion::advanced() const noexcept {
  const auto moved = [](const Completion& member) { return member.advanced(); };
  switch (kind_) {
    case Kind::all:
    case Kind::any:
      return std::any_of(members().begin(), members().end(), moved);
    default: {
      Moment moment;
      return reached(moment);
    }
  }
}

bool Completion::needs_no_polling() const noexcept {
  if (due_ != never) return done();
  switch (kind_) {
    case Kind::none:
    case Kind::request:
    case Kind::task:
      return true;
    case Kind::word:
    case Kind::time:
      return done();
    case Kind::all:
    case Kind::any:
      return std::all_of(members().begin(), members().end(),
                         [](const Completion& member) { return member.needs_no_polling(); });
  }
  return false;
}

std::optional<base::Time> Completion::due() const noexcept {
  if (kind_ != Kind::time) return std::nullopt;
  return due_;
}

int Completion::code() const noexcept {
  switch (kind_) {
    case Kind::request:
      return state_->finished.load(std::memory_order_acquire) ? state_->code : mpi::success;
    case Kind::all:
    case Kind::any:
      for (const Completion& member : members())
        if (const int code = member.code(); code != mpi::success) return code;
      return mpi::success;
    default:
      return mpi::success;
  }
}

void Completion::cancel() const noexcept {
  if (kind_ == Kind::request) static_cast<RequestState&>(*state_).unwanted.store(true, std::memory_order_release);
}

void Completion::rethrow() const {
  if (kind_ == Kind::task) {
    if (!state_->finished.load(std::memory_order_acquire) || !state_->error) return;
    state_->seen.store(true, std::memory_order_relaxed);
    std::rethrow_exception(state_->error);
  } else if (kind_ == Kind::all || kind_ == Kind::any) {
    for (const Completion& member : members()) member.rethrow();
  }
}

}  // namespace crosslane::engine
