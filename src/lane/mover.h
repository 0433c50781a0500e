// The GPU's datatype engine (TYPES, section 3): enqueues the copy between two sides, each the packed stream, elements of a
// layout or a nest of loops, and chooses how: copy engine, words, tiles, or a list of the layout's runs.
// It must not know MPI's calls, nor wait for anything: all is enqueued on the stream it is given.
#pragma once

#include "base/settings.h"
#include "gpu/buffer.h"
#include "gpu/driver.h"
#include "gpu/marker.h"
#include "gpu/stream.h"
#include "kernel/copies.h"
#include "lane/lists.h"
#include "lane/pinned_pool.h"
#include "lane/reach.h"
#include "layout/layout.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

namespace crosslane::lane {

/// One side of a copy. A view: what it is made of must outlive the call that takes it, no longer.
class Side {
 public:
  /// The packed stream itself; `address` holds the first byte of the range that is copied.
  [[nodiscard]] static Side packed(const void* address) noexcept { return {address, Form::packed}; }
  /// `count` elements of a layout at `address`.
  [[nodiscard]] static Side of(const void* address, const layout::Layout& layout, std::int64_t count) noexcept {
    Side side(address, Form::elements);
    side.layout_ = &layout;
    side.count_ = count;
    return side;
  }
  /// A nest of loops, such as travels in a message: plain data, as Layout::as_strided gives it.
  [[nodiscard]] static Side of(const void* address, const kernel::Strided& shape) noexcept {
    Side side(address, Form::nest);
    side.shape_ = &shape;
    return side;
  }

  /// Around all that its elements touch, or `bytes` of the packed stream.
  [[nodiscard]] Reach reach(std::size_t bytes) const;

 private:
  friend class Mover;
  enum class Form : std::uint8_t { packed, elements, nest };
  Side(const void* address, Form form) noexcept
      : address_(const_cast<std::byte*>(static_cast<const std::byte*>(address))), form_(form) {}

  std::byte* address_;
  Form form_;
  const layout::Layout* layout_ = nullptr;
  std::int64_t count_ = 0;
  const kernel::Strided* shape_ = nullptr;
};

/// The list of an irregular layout as its owner's GPU has it, for others that can read it there: what they must know of it.
struct Listed {
  const std::byte* data = nullptr;      ///< Where the entries are.
  kernel::Strided loops;                ///< Around it, one at most; its offset is where displacements count from.
  std::uint64_t bytes = 0;              ///< Packed, of one repetition.
  std::uint64_t entries = 0, runs = 0;  ///< Of one repetition. Neighbouring runs may share an entry.
  std::uint64_t run_bytes = 0;          ///< Of each run of a table; 0: units.
  std::uint64_t fingerprint = 0;        ///< Of what is listed.
  std::uint32_t shift = 0;
  bool wide = false;
  std::shared_ptr<const void> held;  ///< The owner's: keeps it there.
};

/// Which memory the sides are in: of this GPU or of a peer that it reaches; one of them pinned host memory that is mapped for it;
/// or one of them any memory of the host.
enum class Memory : std::uint8_t { gpu, mapped, host };

/// One a process. Thread-safe. Kernels are loaded, and lists of irregular layouts kept, a context.
class Mover {
 public:
  Mover(DriverSource driver, PinnedPool& pinned, const base::Settings& settings);
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  ~Mover();

  /// Enqueues on `stream`, of `context`, the copy of bytes [begin, end) of the packed stream. The sides must not overlap; runs
  /// of `to` that overlap each other end up with either's bytes. Never blocks on the stream's work: at most as a
  /// launch does when the driver's queue is full. A captured copy may be replayed as long as the memory is there. Throws
  /// Error where the driver refuses.
  void copy(CUcontext context, gpu::StreamView stream, const Side& to, const Side& from, std::size_t begin,
            std::size_t end, Memory memory = Memory::gpu);

  /// copy() of the first bytes, at least one, as a part of copy_all(); nothing for what has to be copied by itself. Memory::gpu for what has loops.
  [[nodiscard]] std::optional<kernel::Part> part_of(CUcontext context, const Side& to, const Side& from,
                                                    std::size_t bytes, Memory memory);
  /// Enqueues copies that do not overlap, none of which waits for another, and the words that tell of the end of all of them: by one kernel
  /// where they are short, for a copy engine begins one behind the other. `counter`: of the stream alone, 0 at first. Throws Error, before anything is
  /// enqueued, where parts have loops and the context's kernels are gone with it.
  void copy_all(CUcontext context, gpu::StreamView stream, std::span<const kernel::Part> parts,
                std::span<const gpu::WordWrite> words, const gpu::Buffer& counter, Memory memory);
  /// Enqueues a copy to GPU memory of a peer, and the word that tells of its end, by one kernel that takes a small part of this GPU: while the
  /// peer's copy engines read here, it fills what they leave of the link. It may be called off until it has begun. `control`: of the stream
  /// alone, a kernel::PushControl that is zero at first. `word` has an address. Where prepare() has said that there are kernels; throws Error where
  /// they are gone with the context.
  void push(CUcontext context, gpu::StreamView stream, std::byte* to, const std::byte* from, std::size_t bytes,
            const kernel::Revocation& revocation, const gpu::WordWrite& word, const gpu::Buffer& control);

  /// Enqueues that a short value is replaced, where prepare() has said that there are kernels; throws as push().
  void swap(CUcontext context, gpu::StreamView stream, const kernel::SwapParameters& parameters);

  /// The list that copies of `count` elements of an irregular layout to or from the packed stream use; nothing unless such a copy
  /// has made it, whole.
  [[nodiscard]] std::optional<Listed> listed(CUcontext context, const layout::Layout& layout, std::int64_t count);

  /// copy() from elements at `from` in GPU memory of a peer, whose layout is known by its list in that peer's memory alone. Both are
  /// addresses as the context reaches them. By one kernel; a list of unequal runs to another layout, and anything to host memory that
  /// is not mapped, by way of a window of packed bytes. Throws Error where there are no kernels (prepare()) or no memory.
  void follow(CUcontext context, gpu::StreamView stream, const Side& to, const void* from, const Listed& list,
              std::size_t begin, std::size_t end, Memory memory = Memory::gpu);

  /// Loads the kernels of a context, which may wait for what runs there: ahead of kernels that wait for a peer. False
  /// where this build has none, or the GPU takes none, and copies are all there is. Throws Error where it is found out that the GPU does not, or
  /// that memory is short, which passes. Copies do without them then, and say so.
  bool prepare(CUcontext context);

  /// The context has ended, and what was loaded and kept there with it.
  void forget(CUcontext context) noexcept;

 private:
  struct Site;
  struct Resolved;
  static Resolved resolve(const Side& side, std::size_t begin);
  static std::size_t average_run(const Resolved& side);
  std::shared_ptr<Site> load(CUcontext context);
  std::shared_ptr<Site> site(CUcontext context);
  std::shared_ptr<Site> prepared_site(CUcontext context);
  bool has_kernels(CUcontext context);
  static bool copy_rows(gpu::StreamView stream, const Side& to, const Side& from, const Resolved& resolved_to,
                        const Resolved& resolved_from, std::size_t begin, std::size_t end, Memory memory);
  static void copy_runs(gpu::StreamView stream, const Side& to, const Side& from, std::size_t begin, std::size_t end);
  static bool copy_listed(Site& site, gpu::StreamView stream, const Resolved& to, const Resolved& from,
                          std::size_t begin, std::size_t end);
  static bool tabled(const Irregular& known, bool single);
  static bool follow_at_once(Site& site, gpu::StreamView stream, const Resolved& to, Resolved from, const Listed& list,
                             std::size_t begin, std::size_t end);
  static void copy_windows(Site& site, gpu::StreamView stream, const Side& to, const Side& from,
                           const Resolved& resolved_to, const Resolved& resolved_from, std::size_t begin,
                           std::size_t end);

  const DriverSource driver_;
  PinnedPool& pinned_;
  const unsigned blocks_;
  const std::size_t list_limit_;
  std::mutex mutex_;                                  // guards sites_; each has a lock of its own for the rest
  std::map<CUcontext, std::shared_ptr<Site>> sites_;  // null: its kernels cannot be loaded
};

}  // namespace crosslane::lane
