// See sides.h.
#include "message/sides.h"

#include "base/error.h"
#include "base/log.h"

namespace crosslane::message {

engine::Task<> written(engine::Completion copied, const lane::Batch& batch) {
  while (!copied.done()) {
    co_await either(copied, engine::Completion::after(std::chrono::seconds{1}));
    if (!copied.done()) batch.throw_if_failed();
  }
}

engine::Task<> written(engine::Completion copied, lane::Copier& copier, lane::Place place) {
  while (!copied.done()) {
    co_await either(copied, engine::Completion::after(std::chrono::seconds{1}));
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

}  // namespace crosslane::message
