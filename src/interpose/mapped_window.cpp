// See mapped_window.h.
#include "interpose/mapped_window.h"

#include "base/error.h"
#include "interpose/elements.h"
#include "mpi/calls.h"

#include <algorithm>
#include <utility>

namespace crosslane::interpose {
namespace {

// Host memory goes through pinned blocks: so much at a time, and no more under way.
constexpr std::size_t chunk_bytes = std::size_t{8} << 20, most_lent = std::size_t{64} << 20;

}  // namespace

MappedWindow::MappedWindow(Process& process, team::Home& home, void* base, MPI_Aint size, std::vector<Part> parts)
    : process_(process), home_(&home), epochs_(process), base_(base), size_(size), parts_(std::move(parts)) {}

void MappedWindow::check_home(const char* call) const {
  if (home_ == nullptr)
    throw base::Error(base::ErrorClass::other,
                      "{}: MPI is being finalized: GPU memory of a window cannot be accessed any more", call);
  if (!home_->stands())
    throw base::Error(
        base::ErrorClass::other,
        "{}: the application has ended the CUDA context of its memory in the window; free the window first", call);
}

TypedMemory MappedWindow::at(const char* call, int rank, MPI_Aint displacement, MPI_Count count,
                             std::shared_ptr<const layout::Layout> layout) const {
  if (displacement < 0)
    throw base::Error(base::ErrorClass::displacement, "{}: target_disp: {} is negative; windows begin at 0", call,
                      displacement);
  const Part& part = parts_[static_cast<std::size_t>(rank)];
  const auto [begin, end] = layout->span(count);
  std::int64_t first = 0, low = 0, high = 0;
  const bool fits = begin >= end || (!__builtin_mul_overflow(displacement, part.unit, &first) &&
                                     !__builtin_add_overflow(first, begin, &low) &&
                                     !__builtin_add_overflow(first, end, &high) && low >= 0 && high <= part.size);
  if (!fits)
    throw base::Error(base::ErrorClass::rma_range,
                      "{}: target_disp: {} in units of {} bytes, and from there bytes {} to {}, is not all within the "
                      "{} bytes of rank {}'s window; check "
                      "displacement, count and datatype",
                      call, displacement, part.unit, begin, end, part.size, rank);
  return {lane::byte_at(part.data, static_cast<std::ptrdiff_t>(first)), std::move(layout), count, place()};
}

lane::Batch& MappedWindow::begun(const char* call) {
  if (!batch_) batch_.emplace(process_.copier(), engine::Watch{.call = call});
  return *batch_;
}

MappedWindow::Block MappedWindow::lend(const char* call, std::size_t bytes) {
  lent_.push_back(begun(call).lend(place(), bytes));
  lent_bytes_ += bytes;
  return {lent_.back().data(), lent_.back().mapped() ? lane::Memory::mapped : lane::Memory::host};
}

// Calls f(block, at, stop) for each part of bytes [begin, end).
template <class F>
void MappedWindow::through_blocks(const char* call, std::size_t begin, std::size_t end, const F& f) {
  for (std::size_t at = begin; at < end; at += chunk_bytes) {
    const std::size_t stop = std::min(end, at + chunk_bytes);
    if (lent_bytes_ + (stop - at) > most_lent) finish_earlier();
    f(lend(call, stop - at), at, stop);
  }
}

// Host memory that the copy engine reaches where it is. What is shorter is packed meanwhile, and waits with others.
bool MappedWindow::is_long_and_pinned(const TypedMemory& local, const TypedMemory& remote, std::size_t bytes) const {
  if (local.place || bytes <= lane::Bundle::most_bytes || !local.contiguous() || !remote.contiguous()) return false;
  const auto info = process_.gpu().inspect(local.first());
  return info.kind == gpu::PointerInfo::Kind::pinned && info.holds(local.first(), bytes);
}

void MappedWindow::put_locked(const char* call, const TypedMemory& remote, const TypedMemory& local, std::size_t begin,
                              std::size_t end) {
  if (local.place) return begun(call).across_together(place_with(local), remote.side(), local.side(), begin, end);
  if (is_long_and_pinned(local, remote, end - begin))
    return begun(call).across(place(), remote.side(), local.side(), begin, end, lane::Memory::host);
  through_blocks(call, begin, end, [&](const Block& block, std::size_t at, std::size_t stop) {
    local.layout->pack(block.data, local.address, local.count, at, stop);
    begun(call).across_together(place(), remote.side(), lane::Side::packed(block.data), at, stop, block.memory);
  });
}

void MappedWindow::get_locked(const char* call, const TypedMemory& local, const TypedMemory& remote, std::size_t begin,
                              std::size_t end) {
  if (local.place) return begun(call).across_together(place_with(local), local.side(), remote.side(), begin, end);
  if (is_long_and_pinned(local, remote, end - begin))
    return begun(call).across(place(), local.side(), remote.side(), begin, end, lane::Memory::host);
  through_blocks(call, begin, end, [&](const Block& block, std::size_t at, std::size_t stop) {
    begun(call).across_together(place(), lane::Side::packed(block.data), remote.side(), at, stop, block.memory);
    landings_.push_back({local, block.data, at, stop});
  });
}

void MappedWindow::leave() noexcept {
  const std::lock_guard lock(mutex_);
  forget();
  for (Part& part : parts_) part.mapping.reset();
  home_ = nullptr;
}

void MappedWindow::settle(const char* call) {
  if (home_ != nullptr) process_.copier().settle(place(), {.call = call});
}

// What the application has enqueued since the last access comes before this one, too, where that is asked for.
void MappedWindow::order_anew() noexcept {
  if (batch_) batch_->begin_again();
}

void MappedWindow::put(const char* call, const TypedMemory& remote, const TypedMemory& local, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  order_anew();
  put_locked(call, remote, local, 0, bytes);
}

void MappedWindow::get(const char* call, const TypedMemory& local, const TypedMemory& remote, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  order_anew();
  get_locked(call, local, remote, 0, bytes);
}

void MappedWindow::finish() {
  const std::lock_guard lock(mutex_);
  finish_earlier();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// What fails of it is told by the call that completes it: not by one that needs it to be over.
void MappedWindow::finish_earlier() noexcept {
  try {
    finish_locked();
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

// Who waits for a turn is not to wait for this rank's accesses as well.
WindowEpochs& MappedWindow::after_earlier() noexcept {
  const std::lock_guard lock(mutex_);
  finish_earlier();
  return epochs_;
}

void MappedWindow::finish_locked() {
  if (!batch_) return;
  const Forgetting forgetting(*this);
  lane::Batch& batch = *batch_;
  batch.wait();
  for (const Landing& landing : landings_)
    landing.to.layout->unpack(landing.to.address, landing.from, landing.to.count, landing.begin, landing.end);
  if (const auto refused = batch.refused()) std::rethrow_exception(refused);
}

// What was begun is over, well or not.
void MappedWindow::forget() noexcept {
  batch_.reset();  // which waits
  landings_.clear();
  lent_.clear();
  lent_bytes_ = 0;
  for (auto& spare : spares_) home_->spares().take_back(std::move(spare));
  spares_.clear();
}

// Packed bytes [begin, end) of elements, in lent memory: once the batch is over.
MappedWindow::Block MappedWindow::to_host(const char* call, const TypedMemory& elements, std::size_t begin,
                                          std::size_t end) {
  const Block block = lend(call, end - begin);
  if (elements.place)
    begun(call).across(place_with(elements), lane::Side::packed(block.data), elements.side(), begin, end, block.memory);
  else
    elements.layout->pack(block.data, elements.address, elements.count, begin, end);
  return block;
}

std::byte* MappedWindow::spare(std::size_t bytes) { return spares_.emplace_back(home_->spares().lend(bytes)).data(); }

std::byte* MappedWindow::operand(const char* call, const TypedMemory& elements, std::size_t begin, std::size_t end) {
  if (elements.is_array_on_gpu()) {
    begun(call).come_behind(*elements.place);
    return elements.first() + begin;
  }
  if (elements.place) {
    std::byte* const packed = spare(end - begin);
    begun(call).across(place_with(elements), lane::Side::packed(packed), elements.side(), begin, end);
    return packed;
  }
  const Block block = to_host(call, elements, begin, end);
  if (block.memory != lane::Memory::host) return block.data;
  std::byte* const packed = spare(end - begin);
  begun(call).across(place(), lane::Side::packed(packed), lane::Side::packed(block.data), begin, end, block.memory);
  return packed;
}

MappedWindow::Outlet MappedWindow::outlet(const char* call, const TypedMemory& elements, std::size_t begin,
                                          std::size_t end) {
  if (elements.is_array_on_gpu()) {
    begun(call).come_behind(*elements.place);
    return {elements.first() + begin};
  }
  if (elements.place) return {spare(end - begin), elements.side(), place_with(elements)};
  const Block block = lend(call, end - begin);
  landings_.push_back({elements, block.data, begin, end});
  if (block.memory != lane::Memory::host) return {block.data};
  return {spare(end - begin), lane::Side::packed(block.data), place(), block.memory};
}

void MappedWindow::let_out(const char* call, const Outlet& outlet, std::size_t begin, std::size_t end) {
  if (outlet.behind)
    begun(call).across(outlet.place, *outlet.behind, lane::Side::packed(outlet.data), begin, end, outlet.memory);
}

void MappedWindow::combine_on_gpu(const char* call, const TypedMemory& remote, const TypedMemory& local,
                                  const TypedMemory* result, kernel::Op op, kernel::Element element, std::size_t begin,
                                  std::size_t end) {
  kernel::ReduceParameters what{};
  what.in = operand(call, local, begin, end);
  what.count = (end - begin) / kernel::bytes_of(element);
  std::optional<Outlet> before;
  if (result != nullptr) {
    before = outlet(call, *result, begin, end);
    what.before = before->data;
  }
  std::byte* inout = remote.first() + begin;
  if (!remote.contiguous()) {
    inout = spare(end - begin);
    begun(call).across(place(), lane::Side::packed(inout), remote.side(), begin, end);
  }
  what.inout = inout;
  begun(call).combine(place(), home_->kernels(), op, element, what);
  if (!remote.contiguous()) begun(call).across(place(), remote.side(), lane::Side::packed(inout), begin, end);
  if (before) let_out(call, *before, begin, end);
}

void MappedWindow::swap(const char* call, const TypedMemory& remote, const TypedMemory& local,
                        const TypedMemory* wanted, const TypedMemory& result) {
  const std::size_t bytes = remote.bytes();
  const auto address = [](const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); };
  kernel::SwapParameters what{};
  what.bytes = static_cast<std::uint32_t>(bytes);
  what.value = address(remote.first());
  what.next = address(operand(call, local, 0, bytes));
  if (wanted != nullptr) what.wanted = address(operand(call, *wanted, 0, bytes));
  const Outlet before = outlet(call, result, 0, bytes);
  what.before = address(before.data);
  begun(call).swap(place(), what);
  let_out(call, before, 0, bytes);
}

// What no kernel combines: types that a GPU does not have, or that have gaps.
void MappedWindow::combine_on_host(const char* call, const TypedMemory& remote, const TypedMemory& local,
                                   const Accumulation& how, std::size_t begin, std::size_t end) {
  const auto& below = process_.library().below();
  const Block theirs = to_host(call, remote, begin, end);
  const Block ours = to_host(call, local, begin, end);
  lane::Batch& batch = begun(call);
  batch.wait();
  const auto type = process_.layouts().of(how.type);
  const std::size_t bytes = end - begin;
  if (bytes % type->size() != 0)
    throw base::Error(base::ErrorClass::type, "{}: target_datatype: {} bytes of it are no whole elements of {} bytes",
                      call, bytes, type->size());
  const auto count = static_cast<MPI_Count>(bytes / type->size());
  const auto room = static_cast<std::size_t>(count * type->extent());
  std::vector<std::byte> operand(room), result(room);
  type->unpack(operand.data(), ours.data, count, 0, bytes);
  type->unpack(result.data(), theirs.data, count, 0, bytes);
  // Whether it combines them is asked where that raises nothing: errors of MPI_Reduce_local may end the program.
  const auto is_combined = [&] {
    const MPI_Comm self = process_.layouts().private_self();
    const std::lock_guard one_at_a_time(process_.on_private_self());
    return mpi::calls::Allreduce(below, mpi::in_place(), result.data(), count, how.type, how.op, self) == mpi::success;
  };
  if (!is_combined() ||
      mpi::calls::Reduce_local(below, operand.data(), result.data(), count, how.type, how.op) != mpi::success)
    throw base::Error(base::ErrorClass::op,
                      "{}: op: the MPI does not have that operation for the elements of the datatypes", call);
  type->pack(theirs.data, result.data(), count, 0, bytes);
  begun(call).across(place(), remote.side(), lane::Side::packed(theirs.data), begin, end, theirs.memory);
}

void MappedWindow::accumulate(const char* call, int target, const TypedMemory& remote, const TypedMemory& local,
                              const Accumulation& how, const TypedMemory* result, std::size_t bytes) {
  const auto& handles = process_.library().handles();
  const Turn turn(*this, call, target);
  const bool replaces = how.op == handles.replace;
  if (replaces && result != nullptr && bytes <= kernel::SwapParameters::most_bytes && remote.contiguous() &&
      remote.bytes() == bytes && result->bytes() == bytes) {
    swap(call, remote, local, nullptr, *result);
    return finish_locked();
  }
  const auto combining = combining_of(handles, how.type, how.op);
  const std::size_t size = process_.layouts().of(how.type)->size();
  const bool on_gpu = combining && kernel::bytes_of(combining->element) == size;
  // Of a kernel that combines it is told what was there, too.
  const bool told_apart = result != nullptr && (!on_gpu || result->bytes() < bytes);
  if (told_apart) get_locked(call, *result, remote, 0, std::min(bytes, result->bytes()));
  if (replaces) {
    put_locked(call, remote, local, 0, bytes);
  } else if (how.op != handles.no_op) {
    // Without memory of ours all at once.
    const TypedMemory* const before = told_apart ? nullptr : result;
    const bool at_once =
        on_gpu && remote.contiguous() && local.is_array_on_gpu() && (before == nullptr || before->is_array_on_gpu());
    const std::size_t step = at_once ? bytes : std::max(chunk_bytes / size, std::size_t{1}) * size;
    for (std::size_t at = 0; at < bytes; at += step) {
      const std::size_t stop = std::min(bytes, at + step);
      if (on_gpu)
        combine_on_gpu(call, remote, local, before, combining->op, combining->element, at, stop);
      else
        combine_on_host(call, remote, local, how, at, stop);
      finish_locked();
    }
  }
  finish_locked();
}

void MappedWindow::meet_to_free(const char* call) {
  if (met_.load(std::memory_order_relaxed)) return;
  epochs_.fence(call, false);
  met_.store(true, std::memory_order_relaxed);
}

void MappedWindow::compare_and_swap(const char* call, int target, const TypedMemory& remote, const TypedMemory& local,
                                    const TypedMemory& compare, const TypedMemory& result) {
  const Turn turn(*this, call, target);
  swap(call, remote, local, &compare, result);
  finish_locked();
}

}  // namespace crosslane::interpose
