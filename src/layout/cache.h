// The layouts of the datatypes in use, each decoded once. A derived type carries an attribute whose delete callback
// drops the entry, so a handle that MPI uses again for another type is never mistaken for the old one.
// It must not know what the layouts are used for.
#pragma once

#include "base/light_mutex.h"
#include "layout/layout.h"
#include "layout/outline.h"
#include "mpi/abi.h"
#include "mpi/functions.h"
#include "mpi/handles.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace crosslane::layout {

/// One a process. Thread-safe. No MPI call is made while the lock is held: MPI holds locks of
/// its own around the delete callback, which takes ours.
class Cache {
 public:
  /// Both must outlive the cache.
  Cache(const mpi::Functions& below, const mpi::Handles& handles) : below_(below), handles_(handles) {}
  /// release()s unless MPI is finalized.
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// The layout of `type`; stays valid when the type is freed. Throws Error (type) for MPI_DATATYPE_NULL and for a type
  /// that was not committed. MPI has no query for the latter: the MPI below is asked once a type whether it would send
  /// an element of it to nobody, so an MPI built without argument checks lets uncommitted types through, and so does a program that
  /// knows sessions alone: there is no communicator to ask about.
  [[nodiscard]] std::shared_ptr<const Layout> of(MPI_Datatype type) {
    {
      const std::lock_guard lock(mutex_);
      const Slot& slot = slots_[slot_of(type)];
      if (slot.entry != nullptr && slot.type == type) [[likely]]
        return slot.entry->layout;
    }
    return find(type)->layout;
  }

  /// A committed type of as many bytes as one packed element of `type`, for buffers that hold the packed stream. Freed
  /// with `type` or at release(); transfers in flight keep it alive. Throws as of() does.
  [[nodiscard]] MPI_Datatype packed_twin(MPI_Datatype type) {
    {
      const std::lock_guard lock(mutex_);
      const Slot& slot = slots_[slot_of(type)];
      if (slot.entry != nullptr && slot.type == type && slot.entry->has_twin) [[likely]]
        return slot.entry->twin;
    }
    return find_twin(type);
  }

  /// Where an element's runs end, found once a type. Throws as of() does.
  [[nodiscard]] std::shared_ptr<const Outline> outline_of(MPI_Datatype type) {
    {
      const std::lock_guard lock(mutex_);
      const Slot& slot = slots_[slot_of(type)];
      if (slot.entry != nullptr && slot.type == type && slot.entry->outline != nullptr) [[likely]]
        return slot.entry->outline;
    }
    return find_outline(type);
  }

  /// True if the MPI's MPI_Pack makes the plain stream that layouts describe, as far as one example tells; asked once. False where
  /// there is no communicator to ask about (see of()).
  [[nodiscard]] bool packs_plainly();

  /// A communicator of this rank alone whose errors are returned, for questions to the MPI; made once, by a collective call on MPI_COMM_SELF: ask
  /// for it ahead of anything that the application's threads may do beside. Freed by release().
  [[nodiscard]] MPI_Comm private_self();

  /// Takes everything back that the MPI below was given: attributes, twins, the keyval. Call before MPI_Finalize, while
  /// no other thread uses the cache. What is asked for afterwards is made anew.
  void release() noexcept;

 private:
  // The twin and the outline are made at first use; published under the lock.
  struct Entry {
    std::shared_ptr<const Layout> layout;
    bool predefined = false;
    bool has_twin = false;
    MPI_Datatype twin{};
    std::shared_ptr<const Outline> outline;
  };
  struct Slot {
    MPI_Datatype type{};
    std::shared_ptr<Entry> entry;
  };
  static constexpr std::size_t slot_count = 256;

  // Handles are pointers to large objects in one MPI, and consecutive numbers in another.
  static std::uint64_t key_of(MPI_Datatype type) noexcept {
    std::uint64_t key = 0;
    std::memcpy(&key, &type, sizeof(type));
    return key;
  }
  static std::size_t slot_of(MPI_Datatype type) noexcept {
    return static_cast<std::size_t>((key_of(type) * 0x9e3779b97f4a7c15U) >> 56);
  }
  static_assert(slot_count == 256, "slot_of takes eight bits");

  std::shared_ptr<Entry> find(MPI_Datatype type);
  MPI_Datatype find_twin(MPI_Datatype type);
  std::shared_ptr<const Outline> find_outline(MPI_Datatype type);
  void require_committed(MPI_Datatype type);
  int keyval();
  void forget(MPI_Datatype type, const Entry* entry) noexcept;
  void free_doomed() noexcept;
  static int on_delete(MPI_Datatype type, int keyval, void* value, void* extra_state);
  static int on_copy(MPI_Datatype type, int keyval, void* extra_state, void* value, void* copied, int* keep);

  const mpi::Functions& below_;
  const mpi::Handles& handles_;

  base::LightMutex mutex_;  // guards the next three; never held across an MPI call
  std::array<Slot, slot_count> slots_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Entry>> entries_;
  std::vector<MPI_Datatype> doomed_;  // twins of freed types; not freed inside the callback, where MPI holds its locks

  std::once_flag packing_once_;
  bool packs_plainly_ = false;

  std::mutex setup_mutex_;  // guards the next two; the callbacks never take it
  int keyval_ = mpi::keyval_invalid;
  MPI_Comm private_self_{};  // this process alone, returning errors; null handle of C++ until it is made
};

}  // namespace crosslane::layout
