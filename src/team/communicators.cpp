// The attribute that carries a communicator's facts, and how they are learnt from its group.
#include "team/communicators.h"

#include "base/error.h"
#include "base/log.h"
#include "mpi/raised.h"
#include "team/messenger.h"

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

namespace crosslane::team {

// What has been attached to which communicator, and the calls that end one just now. An MPI may delete attributes before that call returns, or, while
// requests of the communicator are pending, long after it (MPICH).
class AttachedFacts {
 public:
  using Facts = std::shared_ptr<CommunicatorFacts>;

  // Callbacks run in the thread that called: to any other one the same handle may be a new communicator's already.
  struct Ending {
    MPI_Comm communicator;
    Facts facts = nullptr;
    std::thread::id thread = std::this_thread::get_id();
    Ending* next = nullptr;
  };

  void put(MPI_Comm communicator, const Facts& facts) {
    const std::lock_guard lock(mutex_);
    by_handle_[communicator] = facts;
  }

  [[nodiscard]] Facts find(MPI_Comm communicator) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(communicator);
    return found == by_handle_.end() ? nullptr : found->second;
  }

  void drop(MPI_Comm communicator, const Facts& facts) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = by_handle_.find(communicator);
    if (found != by_handle_.end() && found->second == facts) by_handle_.erase(found);
  }

  void begin(Ending& ending) noexcept {
    const std::lock_guard lock(mutex_);
    ending.next = std::exchange(first_, &ending);
  }

  void end(Ending& ending) noexcept {
    const std::lock_guard lock(mutex_);
    Ending** link = &first_;
    while (*link != &ending) link = &(*link)->next;
    *link = ending.next;
  }

  /// By this thread; null if it does not.
  [[nodiscard]] Ending* ending(MPI_Comm communicator) const {
    const std::lock_guard lock(mutex_);
    Ending* found = first_;
    while (found != nullptr && (found->communicator != communicator || found->thread != std::this_thread::get_id()))
      found = found->next;
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::map<MPI_Comm, Facts> by_handle_;
  Ending* first_ = nullptr;
};

namespace {

// What the attribute points to. That of a communicator that is never freed goes in MPI_Finalize, behind our end.
struct Attached {
  std::shared_ptr<CommunicatorFacts> facts;
  std::shared_ptr<AttachedFacts> all;
};

// The communicator is gone; may be told of twice.
void retire(CommunicatorFacts& facts) {
  facts.freed.store(true, std::memory_order_release);
  facts.team.reset();  // no collective is under way, as freeing is one itself, but such as failed here (Teams::keep)
  facts.span.reset();
  if (const auto prepared = std::exchange(facts.prepared, nullptr)) prepared->retire();
}

// A duplicate is another communicator: it learns its own.
extern "C" int crosslane_copy_no_facts(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return mpi::success;
}

extern "C" int crosslane_delete_facts(MPI_Comm communicator, int, void* value, void*) {
  const std::unique_ptr<Attached> attached(static_cast<Attached*>(value));
  attached->all->drop(communicator, attached->facts);
  if (attached->all->ending(communicator) == nullptr) retire(*attached->facts);
  return mpi::success;
}

// By multiplications with odd constants and shifts (a permutation of 64-bit words): 128 bits of two such, so that no two meet.
constexpr std::uint64_t mixed(std::uint64_t word, std::uint64_t with) noexcept {
  word = (word ^ with) * 0x9e3779b97f4a7c15U;
  word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93U;
  return word ^ (word >> 29);
}

}  // namespace

std::optional<share::TeamKey> child_key(const CommunicatorFacts& parent, std::uint64_t number,
                                        const CommunicatorFacts& child) {
  if (!parent.key || child.inter || child.world_ranks.empty()) return std::nullopt;
  const auto first = static_cast<std::uint64_t>(static_cast<std::uint32_t>(child.world_ranks.front()));
  const auto& [low, high] = *parent.key;
  return share::TeamKey{mixed(mixed(low, number), first), mixed(mixed(high, first + 1), number)};
}

share::TeamKey told_key(int world_rank, std::uint64_t number) noexcept {
  constexpr std::uint64_t told = 0x546f6c6420617061;  // no parent, as these have other numbers
  const auto rank = static_cast<std::uint64_t>(static_cast<std::uint32_t>(world_rank));
  return {mixed(mixed(told, number), rank), mixed(mixed(~told, rank + 1), number)};
}

share::TeamKey persistent_key(const share::TeamKey& communicator, std::uint64_t number) noexcept {
  constexpr std::uint64_t persistent = 0x5065727369737421;  // no rank, as children have it there
  const auto& [low, high] = communicator;
  return {mixed(mixed(low, number), persistent), mixed(mixed(high, persistent), number)};
}

Communicators::Communicators(const mpi::Functions& mpi, const mpi::Handles& handles, OfSession of_session)
    : mpi_(mpi),
      handles_(handles),
      of_session_(std::move(of_session)),
      attached_(std::make_shared<AttachedFacts>()),
      key_(),
      world_() {
  sessions_->of_session = true;
  check(mpi_, mpi_.Comm_create_keyval(crosslane_copy_no_facts, crosslane_delete_facts, &key_, nullptr),
        "MPI_Comm_create_keyval");
  check(mpi_, mpi_.Comm_group(handles_.comm_world, &world_), "MPI_Comm_group");
}

Communicators::~Communicators() {
  mpi_.Group_free(&world_);
  mpi_.Comm_free_keyval(&key_);
}

const Communicators::Facts* Communicators::find(MPI_Comm communicator) const {
  void* attached = nullptr;
  int found = mpi::untold;
  mpi::heed(mpi_.Comm_get_attr(communicator, key_, &attached, &found), found);
  return found != 0 ? &static_cast<Attached*>(attached)->facts : nullptr;
}

const std::shared_ptr<CommunicatorFacts>& Communicators::share(MPI_Comm communicator) {
  if (const Facts* const known = find(communicator)) return *known;
  if (of_session_(communicator)) return sessions_;
  if (auto* const ending = attached_->ending(communicator)) {
    if (ending->facts == nullptr) ending->facts = learn(communicator);
    return ending->facts;
  }
  const std::lock_guard lock{mutex_};
  const Facts* const known = find(communicator);
  return known != nullptr ? *known : attach(communicator, learn(communicator));
}

std::shared_ptr<CommunicatorFacts> Communicators::known(MPI_Comm communicator) const {
  return attached_->find(communicator);
}

int Communicators::end(MPI_Comm communicator, base::FunctionRef<int()> ending) {
  // However it leaves, which error handlers may do by throwing.
  struct Settling {
    Communicators& all;
    AttachedFacts::Ending& what;
    bool ended = false;
    ~Settling() {
      all.attached_->end(what);
      if (what.facts == nullptr) return;
      if (ended) {
        all.attached_->drop(what.communicator, what.facts);
        retire(*what.facts);
      } else {
        all.put_back(what.communicator, std::move(what.facts));
      }
    }
  };
  AttachedFacts::Ending what{communicator, known(communicator)};
  attached_->begin(what);
  Settling settling{*this, what};
  const int code = ending();
  settling.ended = code == mpi::success;
  return code;
}

void Communicators::put_back(MPI_Comm communicator, Facts facts) const noexcept {
  try {
    if (find(communicator) == nullptr) attach(communicator, std::move(facts));
  } catch (const std::exception& error) {
    base::log(base::Topic::debug, "a communicator that could not be freed is not known any more: {}", error.what());
  }
}

Communicators::Facts Communicators::learn(MPI_Comm communicator) const {
  auto facts = std::make_shared<CommunicatorFacts>();
  int inter = 0;
  check(mpi_, mpi_.Comm_test_inter(communicator, &inter), "MPI_Comm_test_inter");
  facts->inter = inter != 0;
  MPI_Group group{};
  check(mpi_, inter != 0 ? mpi_.Comm_remote_group(communicator, &group) : mpi_.Comm_group(communicator, &group),
        "MPI_Comm_group");
  int size = 0;
  int code = mpi_.Group_size(group, &size);
  if (code == mpi::success) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    facts->world_ranks.resize(ranks.size());
    code = mpi_.Group_translate_ranks(group, size, ranks.data(), world_, facts->world_ranks.data());
  }
  mpi_.Group_free(&group);
  check(mpi_, code, "MPI_Group_translate_ranks");
  for (int& rank : facts->world_ranks)
    if (rank == mpi::undefined) rank = not_in_world;
  if (communicator == handles_.comm_world) facts->key = share::TeamKey{1, 2};
  return facts;
}

const Communicators::Facts& Communicators::attach(MPI_Comm communicator, Facts facts) const {
  auto attached = std::make_unique<Attached>(Attached{std::move(facts), attached_});
  attached_->put(communicator, attached->facts);
  if (const int code = mpi_.Comm_set_attr(communicator, key_, attached.get()); code != mpi::success) {
    attached_->drop(communicator, attached->facts);
    check(mpi_, code, "MPI_Comm_set_attr");
  }
  return attached.release()->facts;
}

std::string Communicators::name_of(MPI_Comm communicator) const {
  std::array<char, 512> text{};  // above every family's MPI_MAX_OBJECT_NAME
  int length = 0;
  if (mpi_.Comm_get_name(communicator, text.data(), &length) == mpi::success && length > 0)
    return {text.data(), static_cast<std::size_t>(length)};
  int size = 0;
  if (mpi_.Comm_size(communicator, &size) != mpi::success) return "an unknown communicator";
  return fmt::format("a communicator of {} ranks", size);
}

}  // namespace crosslane::team
