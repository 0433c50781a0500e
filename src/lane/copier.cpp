// See copier.h.
#include "lane/copier.h"

#include "base/error.h"
#include "base/log.h"
#include "gpu/context.h"
#include "gpu/copy.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace crosslane::lane {
namespace {

base::Error freed_before(const void* address, const char* way) {
  return {base::ErrorClass::buffer,
          "GPU memory at {} was freed before the copy {} it; keep a buffer until its operation is complete", address,
          way};
}

}  // namespace

Copier::Copier(gpu::Gpu& gpu, engine::Engine& engine, const base::Settings& settings)
    : gpu_(gpu),
      engine_(engine),
      order_(settings.order),
      pool_([&gpu]() -> const gpu::Driver& { return gpu.driver(); }, settings.pinned_limit),
      mover_([&gpu]() -> const gpu::Driver& { return gpu.driver(); }, pool_, settings) {}

Place Copier::place(const gpu::PointerInfo& info) {
  const std::lock_guard lock(mutex_);
  Place place{info.context, info.device};
  auto* const mark = marked_.find(info.buffer_id);
  const bool known = mark != nullptr;
  // The handle of a context that has ended may be given to another one; its allocations are others then.
  if (!known) look_for_ended();
  if (place.context == nullptr)
    place.context = primary(info.device);
  else if (!seen_.contains(place.context))
    keep_if_primary(place);
  if (known) {
    if (*mark != nullptr && (*mark)->over()) mark->reset();
    place.before = *mark;
    return place;
  }
  unsigned on = 1;
  const auto& driver = gpu_.driver();
  const gpu::ContextScope scope(driver, place.context);
  seen_.try_emplace(place.context, driver);
  const gpu::OutsideCaptures outside(driver);
  place.marked = driver.pointer_set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, info.base) == CUDA_SUCCESS;
  if (order_ != base::Order::legacy) place.before = Earlier::now(driver);
  if (place.marked) marked_.add(info.buffer_id, place.before);
  return place;
}

CUcontext Copier::primary(int device) {
  auto found = primary_.find(device);
  if (found == primary_.end()) found = primary_.emplace(device, gpu::PrimaryContext(gpu_.driver(), device)).first;
  return found->second.context();
}

void Copier::look_for_ended() noexcept {
  for (auto each = seen_.begin(); each != seen_.end();) {
    if (!each->second.over()) {
      ++each;
      continue;
    }
    CUcontext const gone = each->first;
    each = seen_.erase(each);
    ended_.fetch_add(1, std::memory_order_release);
    marked_.clear();
    idle_.erase(gone);
    mover_.forget(gone);
    pool_.forget(gone);
    std::erase_if(primary_, [&](const auto& held) { return held.second.context() == gone; });
  }
}

void Copier::keep_if_primary(const Place& place) {
  const auto& driver = gpu_.driver();
  if (primary_.contains(place.device) || !gpu::PrimaryContext::active(driver, place.device)) return;
  gpu::PrimaryContext primary(driver, place.device);
  if (primary.context() == place.context) primary_.emplace(place.device, std::move(primary));
}

std::unique_ptr<Copier::Channel> Copier::lend_channel(const Place& place) {
  {
    const std::lock_guard lock(mutex_);
    auto& idle = idle_[place.context];
    if (!idle.empty()) {
      auto channel = std::move(idle.back());
      idle.pop_back();
      channel->ended = contexts_ended();
      return channel;
    }
  }
  const auto& driver = gpu_.driver();
  const gpu::ContextScope scope(driver, place.context);
  auto channel = std::make_unique<Channel>(Channel{place.context,
                                                   gpu::Stream(driver, gpu::Stream::Priority::high),
                                                   gpu::Marker(driver),
                                                   gpu::Event(driver),
                                                   gpu::Life(driver),
                                                   contexts_ended(),
                                                   false,
                                                   nullptr,
                                                   {}});
  try {
    gpu::Buffer counter(driver, sizeof(std::uint64_t));
    gpu::fill_async(counter.data(), 0, counter.size(), channel->stream);
    channel->counter = std::move(counter);
  } catch (const base::Error& error) {
    base::log(base::Topic::debug, "streams write the words behind their copies themselves: {}", error.what());
  }
  return channel;
}

void Copier::take_back(std::unique_ptr<Channel> channel) noexcept {
  // Of a batch that failed.
  channel->stores.clear();
  channel->bundle.clear();
  channel->gathered.clear();
  channel->words.clear();
  channel->told.reset();
  channel->behind.reset();
  const std::lock_guard lock(mutex_);
  if (channel->ended != contexts_ended() && channel->life.over()) return;
  auto& idle = idle_[channel->context];
  idle.push_back(std::move(channel));
}

std::shared_ptr<const Earlier> Copier::earlier(const Place& place) {
  if (settled(place)) return nullptr;
  if (order_ != base::Order::legacy && place.marked) return place.before;
  const gpu::ContextScope scope(gpu_.driver(), place.context);
  return Earlier::now(gpu_.driver());
}

// Not by a stream of ours that waits: others go on meanwhile (Earlier::make_wait).
void Copier::settle(const Place& place, const engine::Watch& watch) {
  const auto before = earlier(place);
  if (before == nullptr) return;
  constexpr unsigned seldom = 64;
  unsigned looks = 0;
  engine_.until(
      [&] {
        if (before->over()) return true;
        if (++looks % seldom == 0) engine_.make_mpi_progress();
        return false;
      },
      watch);
  throw_if_failed(place);
}

// A failure is its context's: any stream tells.
void Copier::throw_if_failed(const Place& place) {
  auto channel = lend_channel(place);
  throw_if_failed(*channel);
  take_back(std::move(channel));
}

bool Copier::failed(const Place& place) noexcept {
  try {
    throw_if_failed(place);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

bool Copier::idle(const Channel& channel) {
  const gpu::StreamView stream = channel.stream;
  const gpu::Driver& driver = stream.driver();
  const gpu::ContextScope scope(driver, channel.context);
  const gpu::OutsideCaptures outside(driver);
  const CUresult result = driver.stream_query(stream.handle());
  if (result == CUDA_ERROR_NOT_READY) return false;
  gpu::check(driver, result, "a copy between GPU and host");
  return true;
}

Batch::~Batch() {
  // Perhaps on the helper thread, which never calls MPI: so nothing is under way there any more that lasts, since a long wait would. A failure was
  // or will be reported by the call itself; the channels of a broken context are not kept.
  if (!ends()) channels_.clear();
  for (auto& channel : channels_) copier_.take_back(std::move(channel));
}

HostBlock Batch::lend(const Place& place, std::size_t bytes) {
  if (HostBlock kept = copier_.pool_.lend_kept(place.context, bytes); kept.data() != nullptr) return kept;
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  return copier_.pool_.lend(bytes);
}

Copier::Channel& Batch::channel(const Place& place) {
  for (auto& channel : channels_)
    if (channel->context == place.context) return *channel;
  channels_.push_back(copier_.lend_channel(place));
  channels_.back()->ordered = false;
  return *channels_.back();
}

void Batch::begin_again() noexcept {
  for (auto& channel : channels_) channel->ordered = false;
}

// Of memory that cannot be marked, and with CROSSLANE_ORDER=legacy, what the application has enqueued by now in this context comes before the copies
// of each call.
void Batch::order_after_default_streams(Copier::Channel& channel, const Place& place) {
  if (place.before != nullptr && channel.behind != place.before) {
    place.before->make_wait(channel.stream);
    channel.behind = place.before;
  }
  if ((copier_.order_ == base::Order::legacy || !place.marked) && !channel.ordered) {
    for_each_busy_default_stream(copier_.gpu_.driver(), [&](gpu::StreamView stream) {
      channel.before.record(stream);
      channel.before.make_wait(channel.stream);
    });
    channel.ordered = true;
  }
}

gpu::StreamView Batch::stream_for(const Place& place, std::size_t bytes, Toward toward) {
  auto& lent = channel_for(place, bytes, toward);
  lent.stores.enqueue(lent.stream);
  return lent.stream;
}

Copier::Channel& Batch::channel_for(const Place& place, std::size_t bytes, Toward toward) {
  auto& lent = channel(place);
  if (!copier_.settled(place)) order_after_default_streams(lent, place);
  enqueue_bundle(lent);
  lent.told.reset();
  began(bytes, toward);
  return lent;
}

void Batch::began(std::size_t bytes, Toward toward) noexcept {
  if (!std::exchange(pending_, true) && copier_.engine_.tracer() != nullptr) {
    begun_ = base::now();
    bytes_ = 0;
  }
  bytes_ += bytes;
  toward_ = toward;
}

// A buffer that was freed meanwhile is not the GPU's to touch: that would be the end of its context.
void Batch::leave_out_what_is_gone(Bundle& bundle) {
  Reach known{};
  const auto stands = [&](const Reach& reach) {
    if (known.holds(reach)) return true;
    const auto info = copier_.gpu_.inspect(reinterpret_cast<const void*>(reach.begin));
    if (info.kind == gpu::PointerInfo::Kind::host) return false;
    known = {info.base, info.base + info.size};
    return true;
  };
  bundle.drop_if([&](const Bundle::Touched& touched) {
    const bool written_stands = stands(touched.written), read_stands = stands(touched.read);
    if (written_stands && read_stands) return false;
    const auto failure = std::make_exception_ptr(
        written_stands ? freed_before(reinterpret_cast<const void*>(touched.read.begin), "from")
                       : freed_before(reinterpret_cast<const void*>(touched.written.begin), "to"));
    // What host memory was to receive is not to be taken for it.
    const bool to_host = written_stands && !copier_.gpu_.on_gpu(reinterpret_cast<const void*>(touched.written.begin));
    auto& kept = to_host ? broken_ : refused_;
    if (!kept) kept = failure;
    return true;
  });
}

void Batch::enqueue_bundle(Copier::Channel& channel, std::span<const gpu::WordWrite> words) {
  struct Emptied {
    Bundle& bundle;
    ~Emptied() { bundle.clear(); }
  } const emptied{channel.bundle};  // whatever becomes of it
  channel.told.reset();
  leave_out_what_is_gone(channel.bundle);
  copier_.mover_.copy_all(channel.context, channel.stream.view(), channel.bundle.parts(), words, channel.counter,
                          Memory::gpu);
}

void Batch::enqueue_bundle(Copier::Channel& channel) noexcept {
  if (channel.bundle.empty()) return;
  try {
    enqueue_bundle(channel, {});
  } catch (...) {
    if (!broken_) broken_ = std::current_exception();
  }
}

void Batch::across(const Place& place, const Side& to, const Side& from, std::size_t begin, std::size_t end,
                   Memory memory) {
  if (begin == end) return;
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  copier_.mover_.copy(place.context, stream_for(place, end - begin, Toward::itself), to, from, begin, end, memory);
}

// A part is the first bytes of both sides, which kernels reach; what is to come behind the default streams comes behind what they have now. One alone begins
// at once: there may be much to do before it is waited for.
bool Batch::may_wait(const Place& place, std::size_t begin, std::size_t end, Memory memory) const noexcept {
  return pending_ && begin == 0 && end != 0 && end <= Bundle::most_bytes && memory != Memory::host &&
         copier_.settled(place);
}

void Batch::across_together(const Place& place, const Side& to, const Side& from, std::size_t begin, std::size_t end,
                            Memory memory) {
  const auto part =
      may_wait(place, begin, end, memory) ? copier_.mover_.part_of(place.context, to, from, end, memory) : std::nullopt;
  if (!part) return across(place, to, from, begin, end, memory);
  auto& lent = channel(place);
  const Bundle::Touched touched{to.reach(end), from.reach(end)};
  if (!lent.stores.empty() || lent.bundle.precedes(*part, touched)) {
    const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
    enqueue_bundle(lent);
    lent.stores.enqueue(lent.stream);
  }
  lent.bundle.add(*part, touched);
  began(end, Toward::itself);
}

template <class Parameters, class Launch>
void Batch::enqueue_telling(const Place& place, std::size_t bytes, const Parameters& what, const Launch& launch) {
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  const gpu::StreamView stream = stream_for(place, bytes, Toward::itself);
  auto& lent = channel(place);
  Parameters telling = what;
  std::optional<std::uint64_t> told;
  if (lent.counter.address() != 0) {
    const gpu::WordWrite next = lent.marker.next();
    if (next.address != 0) {
      telling.ending = {kernel::pointer_to<std::uint64_t>(next.address), next.value};
      telling.counter = kernel::pointer_to<std::uint64_t>(lent.counter.address());
      told = next.value;
    }
  }
  launch(stream, telling);
  lent.told = told;
}

void Batch::combine(const Place& place, const kernel::Kernels& kernels, kernel::Op op, kernel::Element element,
                    const kernel::ReduceParameters& what) {
  enqueue_telling(place, what.count * kernel::bytes_of(element), what,
                  [&](gpu::StreamView stream, const auto& telling) { kernels.reduce(stream, op, element, telling); });
}

void Batch::swap(const Place& place, const kernel::SwapParameters& what) {
  enqueue_telling(place, what.bytes, what, [&](gpu::StreamView stream, const auto& telling) {
    copier_.mover_.swap(place.context, stream, telling);
  });
}

void Batch::follow(const Place& place, const Side& to, const std::byte* from, const Listed& list, std::size_t begin,
                   std::size_t end, Memory memory) {
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  copier_.mover_.follow(place.context, stream_for(place, end - begin, Toward::itself), to, from, list, begin, end,
                        memory);
}

void Batch::to_host(const Place& place, std::byte* host, const std::byte* device, const layout::Layout& layout,
                    MPI_Count count, std::size_t begin, std::size_t end, Form form) {
  copy(place, host, const_cast<std::byte*>(device), layout, count, begin, end, form, Toward::host);
}

void Batch::to_gpu(const Place& place, std::byte* device, const std::byte* host, const layout::Layout& layout,
                   MPI_Count count, std::size_t begin, std::size_t end, Form form) {
  copy(place, const_cast<std::byte*>(host), device, layout, count, begin, end, form, Toward::gpu);
}

// What a message of a few microseconds waits for: nothing is worked out that need not be.
void Batch::pull(const Place& place, std::byte* device, const std::byte* source, const layout::Layout& layout,
                 MPI_Count count, std::size_t begin, std::size_t end) {
  if (begin == end) return;
  const auto first = look(device, layout, count, begin, Use::written).offset;
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  gpu::copy_async(byte_at(device, first), source, end - begin, stream_for(place, end - begin, Toward::gpu));
}

Batch::Byte Batch::look(const std::byte* memory, const layout::Layout& layout, MPI_Count count, std::size_t begin,
                        Use use) const {
  Byte byte{};
  layout.for_each_run(count, begin, begin + 1,
                      [&](std::int64_t offset, std::size_t) { byte.offset = static_cast<std::ptrdiff_t>(offset); });
  const std::byte* const address = byte_at(memory, byte.offset);
  byte.kind = copier_.gpu_.inspect(address).kind;
  if (byte.kind == gpu::PointerInfo::Kind::host) throw freed_before(address, use == Use::read ? "from" : "to");
  return byte;
}

void Batch::copy(const Place& place, std::byte* host, std::byte* device, const layout::Layout& layout, MPI_Count count,
                 std::size_t begin, std::size_t end, Form form, Toward toward) {
  if (begin == end) return;
  const auto [first, kind] = look(device, layout, count, begin, toward == Toward::host ? Use::read : Use::written);
  std::byte* const byte = byte_at(device, first);
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  const std::byte* const host_byte = form == Form::packed ? host : byte_at(host, first);
  if (toward == Toward::gpu && kind == gpu::PointerInfo::Kind::device && end - begin <= gpu::Stores::most_bytes &&
      layout.contiguous(count)) {
    auto& lent = channel(place);
    enqueue_bundle(lent);
    if (lent.stores.add(byte, host_byte, end - begin)) {
      channel_for(place, end - begin, toward);
      return;
    }
  }

  // Kernels reach what is pinned; a copy of one run asks for neither.
  auto memory = Memory::host;
  if (!layout.dense()) {
    if (copier_.gpu_.inspect(host_byte).kind == gpu::PointerInfo::Kind::pinned) memory = Memory::mapped;
  }
  const Side on_gpu = Side::of(device, layout, count);
  const Side on_host = form == Form::packed ? Side::packed(host) : Side::of(host, layout, count);
  const bool to_host = toward == Toward::host;
  copier_.mover_.copy(place.context, stream_for(place, end - begin, toward), to_host ? on_host : on_gpu,
                      to_host ? on_gpu : on_host, begin, end, memory);
}

Memory Batch::memory_of(const std::byte* host) const {
  return copier_.gpu_.inspect(host).kind == gpu::PointerInfo::Kind::pinned ? Memory::mapped : Memory::host;
}

void Batch::fetch(const Place& place, std::byte* host, const Side& from, std::size_t begin, std::size_t end) {
  if (begin == end) return;
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  copier_.mover_.copy(place.context, stream_for(place, end - begin, Toward::host), Side::packed(host), from, begin, end,
                      memory_of(host));
}

void Batch::fetch(const Place& place, std::byte* host, const std::byte* from, const Listed& list, std::size_t begin,
                  std::size_t end) {
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  copier_.mover_.follow(place.context, stream_for(place, end - begin, Toward::host), Side::packed(host), from, list,
                        begin, end, memory_of(host));
}

void Batch::come_behind(const Place& place) {
  if (copier_.settled(place)) return;
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  static_cast<void>(stream_for(place, 0, Toward::itself));
}

engine::Completion Batch::mark(const Place& place, std::atomic<std::uint64_t>& word, CUdeviceptr address,
                               std::uint64_t value) {
  auto& lent = channel(place);
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  enqueue_bundle(lent);
  lent.told.reset();
  lent.stores.enqueue(lent.stream);
  gpu::write_word(lent.stream.view(), word, address, value);
  pending_ = false;
  return engine::Completion::of(word, value);
}

std::optional<engine::Completion> Batch::gather(const Place& place, std::byte* device, const layout::Layout& layout,
                                                MPI_Count count, const Side& from, std::size_t bytes, Memory memory,
                                                const gpu::WordWrite& word) {
  look(device, layout, count, 0, Use::written);
  const auto part = copier_.mover_.part_of(place.context, Side::of(device, layout, count), from, bytes, memory);
  if (!part) return std::nullopt;
  const gpu::ContextScope scope(copier_.gpu_.driver(), place.context);
  auto& lent = channel_for(place, bytes, Toward::gpu);
  lent.words.push_back(word);
  try {
    lent.gathered.push_back(*part);
  } catch (...) {  // a word stands for what is read
    lent.words.pop_back();
    throw;
  }
  return engine::Completion::of(*word.word, word.value);
}

void Batch::enqueue_gathered(Memory memory) {
  for (auto& channel : channels_) {
    if (channel->words.empty()) continue;
    // A later group may go by this channel, whatever becomes of this one.
    auto parts = std::exchange(channel->gathered, {});
    auto words = std::exchange(channel->words, {});
    const gpu::ContextScope scope(copier_.gpu_.driver(), channel->context);
    copier_.mover_.copy_all(channel->context, channel->stream.view(), parts, words, channel->counter, memory);
    parts.clear();
    words.clear();
    channel->gathered = std::move(parts);  // the memory is the next group's
    channel->words = std::move(words);
  }
  pending_ = false;
}

engine::Completion Batch::post(Copier::Channel& channel) {
  const gpu::ContextScope scope(copier_.gpu_.driver(), channel.context);
  if (!channel.bundle.empty()) {
    const gpu::WordWrite told = channel.marker.next();
    enqueue_bundle(channel, {&told, 1});
    return engine::Completion::of(*told.word, told.value);
  }
  if (channel.told) return engine::Completion::of(channel.marker.word(), *channel.told);
  const auto reached = channel.marker.post(channel.stream.view(), channel.stores);
  return engine::Completion::of(channel.marker.word(), reached);
}

std::vector<engine::Completion> Batch::post_all() {
  std::vector<engine::Completion> all;
  all.reserve(channels_.size());
  for (auto& channel : channels_) all.push_back(post(*channel));
  return all;
}

engine::Completion Batch::completion() {
  std::vector<engine::Completion> all = post_all();
  pending_ = false;
  return all.size() == 1 ? all.front() : engine::Completion::when_all(std::move(all));
}

void Batch::throw_if_failed() const {
  for (const auto& channel : channels_) Copier::throw_if_failed(*channel);
}

bool Batch::ends() noexcept {
  try {
    wait(Mpi::rests);
    return true;
  } catch (const std::exception&) {
    return drains();  // a driver that refuses the word for the host, say, still knows
  }
}

bool Batch::drains() noexcept {
  try {
    copier_.engine_.until_apart([this] { return over(); }, watch_);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool Batch::over() {
  for (auto& channel : channels_) {
    if (channel->bundle.empty() && channel->stores.empty()) continue;
    const gpu::ContextScope scope(copier_.gpu_.driver(), channel->context);
    enqueue_bundle(*channel);
    channel->stores.enqueue(channel->stream);
  }
  if (!std::ranges::all_of(channels_, [](const auto& channel) { return Copier::idle(*channel); })) return false;
  pending_ = false;
  return true;
}

void Batch::wait(Mpi mpi) {
  if (!pending_) return;
  // All of them before any wait, which may throw.
  const std::vector<engine::Completion> copied = post_all();
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    engine::Watch watch = watch_;
    watch.check = [](const void* waited) { Copier::throw_if_failed(*static_cast<const Copier::Channel*>(waited)); };
    watch.checked = channels_[i].get();
    if (mpi == Mpi::progresses)
      copier_.engine_.wait(copied[i], watch);
    else
      copier_.engine_.wait_apart(copied[i], watch);
  }
  pending_ = false;
  if (broken_) std::rethrow_exception(std::exchange(broken_, nullptr));
  if (trace::Tracer* const tracer = copier_.engine_.tracer(); tracer != nullptr) [[unlikely]]
    tracer->record(trace::Kind::copy,
                   toward_ == Toward::host  ? "copy to host"
                   : toward_ == Toward::gpu ? "copy to GPU"
                                            : "copy on the GPU",
                   begun_, base::now(), bytes_);
}

}  // namespace crosslane::lane
