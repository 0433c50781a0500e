// See copier.h.
#include "lane/copier.h"

#include "base/error.h"
#include "gpu/copy.h"

#include <utility>

namespace crosslane::lane {

Copier::Copier(gpu::Gpu& gpu, engine::Engine& engine, const base::Settings& settings)
    : gpu_(gpu), engine_(engine), order_(settings.order), pool_(gpu, settings.pinned_limit) {}

Place Copier::place(const gpu::PointerInfo& info) {
  const std::lock_guard lock(mutex_);
  Place place{info.context, info.device, settled_.contains(info.buffer_id)};
  if (place.context == nullptr) {
    auto found = primary_.find(info.device);
    if (found == primary_.end())
      found = primary_.emplace(info.device, gpu::PrimaryContext(gpu_.driver(), info.device)).first;
    place.context = found->second.context();
  }
  if (!place.settled) {
    unsigned on = 1;
    const auto& driver = gpu_.driver();
    const gpu::ContextScope scope(driver, place.context);
    if (driver.pointer_set_attribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, info.base) == CUDA_SUCCESS) {
      constexpr std::size_t most = 1 << 16;
      if (settled_.size() >= most) settled_.clear();
      settled_.insert(info.buffer_id);
    }
  }
  return place;
}

std::unique_ptr<Copier::Channel> Copier::lend_channel(const Place& place) {
  {
    const std::lock_guard lock(mutex_);
    auto& idle = idle_[place.context];
    if (!idle.empty()) {
      auto channel = std::move(idle.back());
      idle.pop_back();
      return channel;
    }
  }
  const auto& driver = gpu_.driver();
  const gpu::ContextScope scope(driver, place.context);
  return std::make_unique<Channel>(
      Channel{place.context, gpu::Stream(driver), gpu::Marker(driver), gpu::Event(driver), false});
}

void Copier::take_back(std::unique_ptr<Channel> channel) noexcept {
  const std::lock_guard lock(mutex_);
  auto& idle = idle_[channel->context];
  idle.push_back(std::move(channel));
}

// In relaxed mode, since a question would end a capture that another thread runs in global mode.
void Copier::throw_if_failed(const Channel& channel) {
  const gpu::StreamView stream = channel.stream;
  const gpu::Driver& driver = stream.driver();
  const gpu::ContextScope scope(driver, channel.context);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  gpu::check(driver, driver.thread_exchange_stream_capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
  const CUresult result = driver.stream_query(stream.handle());
  driver.thread_exchange_stream_capture_mode(&mode);
  if (result != CUDA_ERROR_NOT_READY) gpu::check(driver, result, "a copy between GPU and host");
}

Batch::~Batch() {
  try {
    wait();
  } catch (const std::exception&) {
    // The failure was or will be reported by the call itself; the channels of a broken context are not kept.
    channels_.clear();
  }
  for (auto& channel : channels_) copier_.take_back(std::move(channel));
}

HostBlock Batch::lend(const Place& place, std::size_t bytes) {
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

void Batch::order_after_default_streams(Copier::Channel& channel) {
  if (std::exchange(channel.ordered, true)) return;
  const auto& driver = copier_.gpu_.driver();
  for (const auto stream : {gpu::StreamView::legacy(driver), gpu::StreamView::per_thread(driver)}) {
    // While a blocking stream is captured the default stream must not be touched, and nothing can have been enqueued there.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver.stream_is_capturing(stream.handle(), &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
      continue;
    channel.before.record(stream);
    channel.before.make_wait(channel.stream);
  }
}

void Batch::to_host(const Place& place, std::byte* host, const std::byte* device, const layout::Layout& layout,
                    MPI_Count count, std::size_t begin, std::size_t end, Form form) {
  copy(place, host, const_cast<std::byte*>(device), layout, count, begin, end, form, Toward::host);
}

void Batch::to_gpu(const Place& place, std::byte* device, const std::byte* host, const layout::Layout& layout,
                   MPI_Count count, std::size_t begin, std::size_t end, Form form) {
  copy(place, const_cast<std::byte*>(host), device, layout, count, begin, end, form, Toward::gpu);
}

void Batch::copy(const Place& place, std::byte* host, std::byte* device, const layout::Layout& layout, MPI_Count count,
                 std::size_t begin, std::size_t end, Form form, Toward toward) {
  if (begin == end) return;
  const auto& driver = copier_.gpu_.driver();
  auto& lent = channel(place);
  auto& stream = lent.stream;
  const gpu::ContextScope scope(driver, place.context);
  // CROSSLANE_ORDER=legacy: what the application has enqueued on the default streams comes before the copies of each call.
  if (!place.settled || copier_.order_ == base::Order::legacy) order_after_default_streams(lent);
  if (!std::exchange(pending_, true) && copier_.engine_.tracer() != nullptr) {
    begun_ = base::now();
    bytes_ = 0;
  }
  bytes_ += end - begin;
  toward_ = toward;

  // An operation may have been under way for long, and a real driver takes the address of memory that was freed meanwhile
  // for ordinary memory, which it then touches. The first byte tells.
  auto expect_live = [&, looked = false](const std::byte* first) mutable {
    if (std::exchange(looked, true) || copier_.gpu_.inspect(first).kind != gpu::PointerInfo::Kind::host) return;
    throw base::Error(base::ErrorClass::buffer,
                      "GPU memory at {} was freed before the copy {} it; keep a buffer until its operation is complete",
                      static_cast<const void*>(first), toward == Toward::host ? "from" : "to");
  };

  const auto one = [&](std::byte* host_run, std::byte* device_run, std::size_t length) {
    expect_live(device_run);
    if (toward == Toward::host) {
      gpu::copy_async(host_run, device_run, length, stream.view());
    } else {
      gpu::copy_async(device_run, host_run, length, stream.view());
    }
  };

  // Where packed byte `at` lies in the host's copy, and data at `offset` from the buffer's address.
  const auto on_host = [&](std::size_t at, std::ptrdiff_t offset) {
    return form == Form::packed ? byte_at(host, static_cast<std::ptrdiff_t>(at - begin)) : byte_at(host, offset);
  };
  const auto run_by_run = [&](std::size_t from, std::size_t to) {
    layout.for_each_run(count, from, to, [&](std::int64_t offset, std::size_t length) {
      const auto run = static_cast<std::ptrdiff_t>(offset);
      one(on_host(from, run), byte_at(device, run), length);
      from += length;
    });
  };

  const auto shape = layout.as_2d(count);
  const std::size_t width = shape ? shape->width : 1;
  const std::size_t first = (begin + width - 1) / width, last = end / width;  // rows that are copied whole
  if (!shape || last < first + 2) {
    run_by_run(begin, end);
    return;
  }
  run_by_run(begin, first * width);
  const auto pitch = static_cast<std::size_t>(shape->pitch);
  const auto offset = static_cast<std::ptrdiff_t>(shape->offset + static_cast<std::int64_t>(first) * shape->pitch);
  std::byte* const device_rows = byte_at(device, offset);
  std::byte* const host_rows = on_host(first * width, offset);
  const std::size_t host_pitch = form == Form::packed ? width : pitch;
  expect_live(device_rows);
  if (toward == Toward::host) {
    gpu::copy_2d_async(host_rows, device_rows, {width, last - first, host_pitch, pitch}, stream);
  } else {
    gpu::copy_2d_async(device_rows, host_rows, {width, last - first, pitch, host_pitch}, stream);
  }
  run_by_run(last * width, end);
}

engine::Completion Batch::completion() {
  std::vector<engine::Completion> all;
  for (auto& channel : channels_) {
    const gpu::ContextScope scope(copier_.gpu_.driver(), channel->context);
    const auto reached = channel->marker.post(channel->stream.view());
    all.push_back(engine::Completion::of(channel->marker.word(), reached));
  }
  pending_ = false;
  return all.size() == 1 ? all.front() : engine::Completion::when_all(std::move(all));
}

void Batch::throw_if_failed() const {
  for (const auto& channel : channels_) Copier::throw_if_failed(*channel);
}

void Batch::wait(Mpi mpi) {
  if (!std::exchange(pending_, false)) return;
  for (auto& channel : channels_) {
    std::uint64_t reached = 0;
    {
      const gpu::ContextScope scope(copier_.gpu_.driver(), channel->context);
      reached = channel->marker.post(channel->stream.view());
    }
    engine::Watch watch = watch_;
    watch.check = [](const void* waited) { Copier::throw_if_failed(*static_cast<const Copier::Channel*>(waited)); };
    watch.checked = channel.get();
    const auto copied = engine::Completion::of(channel->marker.word(), reached);
    if (mpi == Mpi::progresses)
      copier_.engine_.wait(copied, watch);
    else
      copier_.engine_.wait_apart(copied, watch);
  }
  if (trace::Tracer* const tracer = copier_.engine_.tracer(); tracer != nullptr) [[unlikely]]
    tracer->record(trace::Kind::copy, toward_ == Toward::host ? "copy to host" : "copy to GPU", begun_, base::now(),
                   bytes_);
}

}  // namespace crosslane::lane
