// See copy_memory.h.
#include "interpose/copy_memory.h"

#include "base/error.h"
#include "base/log.h"
#include "lane/copier.h"

#include <memory>
#include <new>
#include <utility>

namespace crosslane::interpose {
namespace {

// Of a call that has failed: nobody can tell when others are through with it.
struct KeptBlock final : team::Leftover {
  explicit KeptBlock(lane::HostBlock&& block) noexcept : kept(std::move(block)) {}
  [[nodiscard]] bool over() noexcept override { return false; }
  lane::HostBlock kept;
};

}  // namespace

CopyMemory::CopyMemory(Process& process, team::Home& home, const char* call, std::size_t bytes) : home_(home) {
  try {
    buffer_ = home_.spares().lend(bytes);
    return;
  } catch (const base::Error& error) {
    if (!base::is_shortage(error)) throw;
    lane::Batch batch(process.copier(), {.call = call});
    block_ = batch.lend({home_.context(), home_.device()}, bytes);
    if (!block_.mapped()) throw;
    base::log(base::Topic::info, "{}: the GPU has no {} bytes left for a copy of a buffer: it is in host memory", call,
              bytes);
  }
}

CopyMemory::~CopyMemory() {
  if (block_.data() == nullptr) return;  // memory of the GPU is freed once that has ended what it was given
  try {
    home_.keep(std::make_unique<KeptBlock>(std::move(block_)));
  } catch (const std::bad_alloc&) {
    base::log(base::Topic::debug, "no memory left to keep a buffer's copy in");
  }
}

void CopyMemory::give_back() noexcept {
  if (on_gpu()) home_.spares().take_back(std::exchange(buffer_, gpu::Buffer()));
  block_ = {};
}

}  // namespace crosslane::interpose
