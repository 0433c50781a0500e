// Lists of irregular datatypes in GPU memory (TYPES, section 3.2): made on the CPU and copied at first use, kept by the
// datatype's content within a bound, the least recently used given up first. Of one context.
// It must not know which copies the lists are for.
#pragma once

#include "base/free_ranges.h"
#include "base/function_ref.h"
#include "gpu/buffer.h"
#include "gpu/driver.h"
#include "gpu/event.h"
#include "gpu/stream.h"
#include "kernel/copies.h"
#include "lane/pinned_pool.h"
#include "layout/layout.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace crosslane::lane {

/// One node's list: a table, where its runs are multiples of one length, or units.
///
///   state      filled            who may launch with it
///   new        0                 nobody
///   filling    packed bytes      streams that wait for the upload, for the bytes filled so far
///   whole      the node's size   streams that wait for the upload; all streams once that is over (settled)
///
/// Its memory is given to another list only when it is whole, every launch that reads it is past (their events are done),
/// nobody holds it for others, and no graph was captured with it.
class List {
 public:
  [[nodiscard]] bool table() const noexcept { return table_; }
  /// Bytes of a table's runs.
  [[nodiscard]] std::size_t run_bytes() const noexcept { return run_bytes_; }
  /// Entries so far.
  [[nodiscard]] std::uint64_t entries() const noexcept { return entries_; }
  [[nodiscard]] std::size_t filled() const noexcept { return filled_; }
  [[nodiscard]] bool whole() const noexcept { return filled_ == bytes_; }
  [[nodiscard]] kernel::Table as_table() const noexcept { return {data_, shift_, wide_}; }
  /// Without the loops.
  [[nodiscard]] kernel::UnitList as_units() const noexcept { return {data_, entries_, bytes_, shift_, wide_, {}}; }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint32_t shift() const noexcept { return shift_; }
  [[nodiscard]] bool wide() const noexcept { return wide_; }
  /// The units among which all that lies in [begin, end) of the node's packed bytes is.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> units_of(std::size_t begin, std::size_t end) const;

 private:
  friend class Lists;
  bool table_ = false, wide_ = false, kept_forever_ = false, settled_ = false;
  std::uint32_t shift_ = 0;
  std::size_t run_bytes_ = 0, bytes_ = 0, filled_ = 0, part_bytes_ = 0;
  std::uint64_t entries_ = 0;
  std::byte* data_ = nullptr;
  std::size_t room_ = 0;
  std::vector<std::size_t> marks_;  // packed bytes before units 0, 256, 512, ...
  std::vector<gpu::EventPool::Lent> uses_;
  std::shared_ptr<const void> hold_;  // made at first need; whoever else has it holds the list
  [[nodiscard]] gpu::Event& uploaded() noexcept { return **uploaded_; }
  std::shared_ptr<gpu::EventPool::Lent> uploaded_;  // the last part; what it was made in waits for the same
};

/// What is known of an irregular node, found by its content.
struct Irregular {
  layout::NodePointer node;
  layout::RunFacts facts;
  std::uint64_t hash = 0;
  std::optional<std::uint64_t> fingerprint;  ///< Once it was asked for.
  std::unique_ptr<List> table, units;
  std::vector<layout::NodePointer> aliases;  ///< equal nodes that were asked for; kept, so that an address stays theirs
  std::size_t tree_bytes = 0;                ///< of each of these

  [[nodiscard]] std::size_t kept_bytes() const noexcept { return tree_bytes * (1 + aliases.size()); }
};

/// Not thread-safe: the caller holds a lock, and makes the context current. No call waits for a GPU or a peer: where no
/// memory is left because all of it is in use there is simply no list.
class Lists {
 public:
  /// Memory of at most `limit` bytes is taken at the first list.
  Lists(const gpu::Driver& driver, PinnedPool& pinned, std::size_t limit);

  /// What is known of `node`; the last two answers are valid. Trees are kept within some number of them, and of bytes.
  Irregular& find(const layout::NodePointer& node);

  /// The node's list, maybe not yet whole; null where there is no room for it. `keep` is not given up for it.
  List* list(Irregular& irregular, bool table, const List* keep = nullptr);

  /// Makes and uploads the next part of a list that is not whole. Units may be read before they are uploaded: where memory that
  /// kernels reach is to be had, `launch` gets those of the part, which reach to packed byte `end`, to enqueue what reads them
  /// on `stream`; false where it was not called, and the launch is to wait for the upload.
  void fill_part(const Irregular& irregular, List& list);
  bool fill_part(const Irregular& irregular, List& list, gpu::StreamView stream,
                 base::FunctionRef<void(const kernel::UnitList& units, std::size_t end)> launch);

  /// Lets `stream` read what is filled.
  void before_launch(List& list, gpu::StreamView stream);
  /// After a launch on `stream` that reads the list.
  void after_launch(List& list, gpu::StreamView stream);
  /// True if a captured launch may read it, at any time from now on.
  bool keep_forever(List& list);
  /// For readers that are no launches of this process: keeps a list in its place as long as the result stands; null while it is
  /// not all there.
  std::shared_ptr<const void> hold(List& list);

  /// A window of a list that is not kept, for launches on one stream: entries that it holds, in memory that is written
  /// in the stream's order; on the GPU, or, where that has none left, pinned on the host. give_back() after the last launch.
  struct Window {
    gpu::Buffer buffer;
    HostBlock beside;
    [[nodiscard]] std::byte* data() const noexcept { return buffer.data() != nullptr ? buffer.data() : beside.data(); }
    std::vector<HostBlock> staging;
    std::optional<gpu::EventPool::Lent> used;
  };
  static constexpr std::size_t window_bytes = std::size_t{1} << 20;
  /// Throws Error (no_memory) where neither has any left.
  Window lend_window();
  void fill_window(Window& window, gpu::StreamView stream, const void* entries, std::size_t bytes);
  void give_back(Window window, gpu::StreamView stream) noexcept;

 private:
  struct Part;
  // What a part was made in, until it is uploaded, and what read it there is past.
  struct Upload {
    std::shared_ptr<gpu::EventPool::Lent> uploaded;
    std::optional<gpu::EventPool::Lent> read;
    HostBlock block;
  };
  Part make_part(const Irregular& irregular, List& list);
  Upload& hold(Part& part, bool read);
  void upload(List& list, const Part& part, const Upload& held);
  bool reserve(List& list, std::size_t bytes, const List* keep);
  bool evict_one(const List* keep);
  static bool settled(List& list);
  bool idle(List& list);
  void release(List& list);
  void reap();

  const gpu::Driver& driver_;
  PinnedPool& pinned_;
  const std::size_t limit_;
  const std::size_t most_kept_;  // bytes of trees
  gpu::EventPool events_;        // before all that lends from it
  gpu::Stream upload_;           // waits for nobody: the memory that it writes has no readers left
  gpu::Buffer memory_;
  std::uint64_t short_of_ = 0;                   // how often its memory was asked for in vain
  base::FreeRanges free_;                        // of memory_
  std::list<std::unique_ptr<Irregular>> known_;  // the last used first
  std::unordered_map<const layout::Node*, std::list<std::unique_ptr<Irregular>>::iterator> by_node_;
  std::unordered_multimap<std::uint64_t, std::list<std::unique_ptr<Irregular>>::iterator> by_hash_;
  std::vector<Upload> uploading_;
  std::vector<Window> windows_;
};

}  // namespace crosslane::lane
