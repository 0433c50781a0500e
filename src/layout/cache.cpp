// See cache.h.
#include "layout/cache.h"

#include "base/error.h"
#include "layout/decode.h"
#include "mpi/large_count.h"
#include "mpi/library.h"

#include <utility>

namespace crosslane::layout {
namespace {

void check(int code, const char* call) {
  if (code != mpi::success) throw base::Error(base::ErrorClass::intern, "{} failed with MPI error code {}", call, code);
}

}  // namespace

Cache::~Cache() {
  int finalized = 1;
  if (below_.Finalized == nullptr || below_.Finalized(&finalized) != mpi::success || finalized != 0) return;
  release();
}

std::shared_ptr<Cache::Entry> Cache::find(MPI_Datatype type) {
  const std::uint64_t key = key_of(type);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = entries_.find(key); known != entries_.end()) {
      slots_[slot_of(type)] = {type, known->second};
      return known->second;
    }
  }
  free_doomed();
  Decoded decoded = decode(below_, handles_, type);
  auto entry = std::make_shared<Entry>();
  entry->layout = std::make_shared<const Layout>(std::move(decoded.layout));
  entry->predefined = decoded.predefined;
  if (!entry->predefined) require_committed(type);
  const int attribute = entry->predefined ? mpi::keyval_invalid : keyval();
  {
    const std::lock_guard lock(mutex_);
    const auto [place, fresh] = entries_.emplace(key, entry);
    if (!fresh) return place->second;  // another thread was first, and sets the attribute
    slots_[slot_of(type)] = {type, entry};
  }
  // The value is only compared with, so the attribute owns nothing.
  if (!entry->predefined) {
    if (const int code = below_.Type_set_attr(type, attribute, entry.get()); code != mpi::success) {
      forget(type, entry.get());
      check(code, "MPI_Type_set_attr");
    }
  }
  return entry;
}

MPI_Datatype Cache::find_twin(MPI_Datatype type) {
  const auto entry = find(type);
  {
    const std::lock_guard lock(mutex_);
    if (entry->has_twin) return entry->twin;
  }
  MPI_Datatype twin{};
  const auto bytes = static_cast<MPI_Count>(entry->layout->size());
  check(mpi::make_contiguous(below_, bytes, handles_.byte, &twin), "MPI_Type_contiguous");
  check(below_.Type_commit(&twin), "MPI_Type_commit");
  {
    const std::lock_guard lock(mutex_);
    if (!entry->has_twin) {
      entry->twin = twin;
      entry->has_twin = true;
      return twin;
    }
  }
  below_.Type_free(&twin);  // another thread was first
  const std::lock_guard lock(mutex_);
  return entry->twin;
}

std::shared_ptr<const Outline> Cache::find_outline(MPI_Datatype type) {
  const auto entry = find(type);
  auto outline = std::make_shared<const Outline>(*entry->layout);
  const std::lock_guard lock(mutex_);
  if (entry->outline == nullptr) entry->outline = std::move(outline);  // else another thread was first
  return entry->outline;
}

bool Cache::packs_plainly() {
  if (!mpi::world_exists(below_)) return false;
  std::call_once(packing_once_, [this] {
    struct Example {
      char letter;
      double number;
      short digits[3];
    };
    const Example examples[3] = {{'a', 1.25, {1, 2, 3}}, {'b', -7e300, {4, 5, 6}}, {'c', 0x1p-1070, {7, 8, 9}}};
    int lengths[] = {1, 1, 3};
    MPI_Aint places[] = {offsetof(Example, letter), offsetof(Example, number), offsetof(Example, digits)};
    MPI_Datatype parts[] = {handles_.char_, handles_.double_, handles_.short_}, type{};
    check(below_.Type_create_struct(3, lengths, places, parts, &type), "MPI_Type_create_struct");
    check(below_.Type_commit(&type), "MPI_Type_commit");
    const Layout layout = decode(below_, handles_, type).layout;
    const std::size_t bytes = layout.packed_size(3);
    std::vector<std::byte> ours(bytes), theirs(2 * bytes + 64);
    layout.pack(ours.data(), examples, 3, 0, bytes);
    int position = 0;
    const int code =
        below_.Pack(examples, 3, type, theirs.data(), static_cast<int>(theirs.size()), &position, private_self());
    below_.Type_free(&type);
    packs_plainly_ = code == mpi::success && static_cast<std::size_t>(position) == bytes &&
                     std::memcmp(ours.data(), theirs.data(), bytes) == 0;
  });
  return packs_plainly_;
}

void Cache::require_committed(MPI_Datatype type) {
  if (!mpi::world_exists(below_)) return;
  const char anywhere = 0;  // MPICH looks at the type only if there is an element
  const int code = below_.Send(&anywhere, 1, type, mpi::proc_null, 0, private_self());
  if (code != mpi::success) {
    throw base::Error(
        base::ErrorClass::type,
        "the datatype is not ready for communication (MPI error code {}); call MPI_Type_commit on it first", code);
  }
}

int Cache::keyval() {
  const std::lock_guard lock(setup_mutex_);
  if (keyval_ == mpi::keyval_invalid) {
    check(below_.Type_create_keyval(&Cache::on_copy, &Cache::on_delete, &keyval_, this), "MPI_Type_create_keyval");
  }
  return keyval_;
}

MPI_Comm Cache::private_self() {
  const std::lock_guard lock(setup_mutex_);
  if (private_self_ == MPI_Comm{}) {
    // Not a duplicate: that would run the copy callbacks of the application's attributes.
    MPI_Comm made{};
    check(below_.Comm_split(handles_.comm_self, 0, 0, &made), "MPI_Comm_split");
    check(below_.Comm_set_errhandler(made, handles_.errors_return), "MPI_Comm_set_errhandler");
    private_self_ = made;
  }
  return private_self_;
}

void Cache::forget(MPI_Datatype type, const Entry* entry) noexcept {
  std::shared_ptr<Entry> last;  // freed after the lock
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(key_of(type));
  if (known == entries_.end() || known->second.get() != entry) return;
  last = std::move(known->second);
  entries_.erase(known);
  if (last->has_twin) doomed_.push_back(last->twin);
  Slot& slot = slots_[slot_of(type)];
  if (slot.entry == last) slot = {};
}

void Cache::free_doomed() noexcept {
  std::vector<MPI_Datatype> doomed;
  {
    const std::lock_guard lock(mutex_);
    doomed.swap(doomed_);
  }
  for (MPI_Datatype& twin : doomed) below_.Type_free(&twin);
}

void Cache::release() noexcept {
  decltype(entries_) entries;
  {
    const std::lock_guard lock(mutex_);
    entries.swap(entries_);
    slots_ = {};
  }
  const std::lock_guard lock(setup_mutex_);
  for (auto& [key, entry] : entries) {
    if (!entry->predefined) {
      MPI_Datatype type{};
      std::memcpy(&type, &key, sizeof(type));
      below_.Type_delete_attr(type, keyval_);
    }
    if (entry->has_twin) below_.Type_free(&entry->twin);
  }
  free_doomed();
  if (keyval_ != mpi::keyval_invalid) {
    below_.Type_free_keyval(&keyval_);
    keyval_ = mpi::keyval_invalid;
  }
  if (private_self_ != MPI_Comm{}) {
    below_.Comm_free(&private_self_);
    private_self_ = MPI_Comm{};
  }
}

int Cache::on_delete(MPI_Datatype type, int /*keyval*/, void* value, void* extra_state) {
  static_cast<Cache*>(extra_state)->forget(type, static_cast<const Entry*>(value));
  return mpi::success;
}

// A duplicate is another type, and gets its entry when it is used.
int Cache::on_copy(MPI_Datatype /*type*/, int /*keyval*/, void* /*extra_state*/, void* /*value*/, void* /*copied*/,
                   int* keep) {
  *keep = 0;
  return mpi::success;
}

}  // namespace crosslane::layout
