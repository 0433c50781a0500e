// The attribute that carries a communicator's facts, and how they are learnt from its group.
#include "team/communicators.h"

#include "base/error.h"
#include "team/messenger.h"

#include <array>
#include <memory>
#include <numeric>
#include <string_view>

namespace crosslane::team {
namespace {

// A duplicate is another communicator: it learns its own.
extern "C" int crosslane_copy_no_facts(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return mpi::success;
}

extern "C" int crosslane_delete_facts(MPI_Comm, int, void* facts, void*) {
  delete static_cast<CommunicatorFacts*>(facts);
  return mpi::success;
}

}  // namespace

Communicators::Communicators(const mpi::Functions& mpi, const mpi::Handles& handles)
    : mpi_(mpi), handles_(handles), key_(), world_() {
  check(mpi_, mpi_.Comm_create_keyval(crosslane_copy_no_facts, crosslane_delete_facts, &key_, nullptr),
        "MPI_Comm_create_keyval");
  check(mpi_, mpi_.Comm_group(handles_.comm_world, &world_), "MPI_Comm_group");
}

Communicators::~Communicators() {
  mpi_.Group_free(&world_);
  mpi_.Comm_free_keyval(&key_);
}

CommunicatorFacts* Communicators::find(MPI_Comm communicator) const {
  void* facts = nullptr;
  int found = 0;
  if (mpi_.Comm_get_attr(communicator, key_, &facts, &found) != mpi::success)
    throw base::Error(base::ErrorClass::comm, "not a communicator");
  return found != 0 ? static_cast<CommunicatorFacts*>(facts) : nullptr;
}

CommunicatorFacts& Communicators::of(MPI_Comm communicator) {
  if (CommunicatorFacts* const known = find(communicator)) return *known;
  const std::lock_guard lock{mutex_};
  CommunicatorFacts* const known = find(communicator);
  return known != nullptr ? *known : *learn(communicator);
}

CommunicatorFacts* Communicators::learn(MPI_Comm communicator) const {
  auto facts = std::make_unique<CommunicatorFacts>();
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
  check(mpi_, mpi_.Comm_set_attr(communicator, key_, facts.get()), "MPI_Comm_set_attr");
  return facts.release();
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
