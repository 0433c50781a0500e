// See sides.h.
#include "message/sides.h"

#include "base/error.h"
#include "base/log.h"

namespace crosslane::message {

engine::Task<> written(engine::Completion copied, const lane::Batch& batch) {
  while (!copied.done()) {
    co_await copied.or_after(std::chrono::seconds{1});
    if (!copied.done()) batch.throw_if_failed();
  }
}

engine::Task<> written(engine::Completion copied, lane::Copier& copier, lane::Place place) {
  while (!copied.done()) {
    co_await copied.or_after(std::chrono::seconds{1});
    if (!copied.done()) copier.throw_if_failed(place);
  }
}

engine::Task<> ended(lane::Batch& batch, const engine::Watch& watch) {
  try {
    const engine::Completion all = batch.completion();
    co_await written(all, batch);
  } catch (const base::Error& second) {
    base::log(base::Topic::debug, "{}: what was enqueued before a failure failed, too: {}", watch.call, second.what());
  }
}

engine::Task<> to_host(lane::Copier& copier, const Buffer& buffer, std::size_t begin, std::shared_ptr<Buffer> copy,
                       const engine::Watch& watch) {
  lane::Batch batch(copier, watch);
  const auto block = std::make_shared<lane::HostBlock>(batch.lend(buffer.place, buffer.bytes - begin));
  std::exception_ptr failure;
  try {
    batch.to_host(buffer.place, block->data(), buffer.address, *buffer.layout, buffer.count, begin, buffer.bytes,
                  lane::Form::packed);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    co_await ended(batch, watch);
    std::rethrow_exception(failure);
  }
  const auto copied = batch.completion();
  co_await written(copied, batch);
  copy->address = lane::byte_at(block->data(), -static_cast<std::ptrdiff_t>(begin));
  copy->bytes = buffer.bytes;
  copy->owner = block;
}

}  // namespace crosslane::message
