// See marker.h.
#include "gpu/marker.h"

#include "base/log.h"
#include "gpu/context.h"

#include <algorithm>
#include <new>
#include <vector>

namespace crosslane::gpu {
namespace {

// What a host function needs: it frees this itself.
struct HostWrite {
  std::atomic<std::uint64_t>* word;
  std::uint64_t value;
};

}  // namespace

bool writes_words(const Driver& driver) {
  return device_attribute(driver, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, current_device(driver)) != 0;
}

void write_word(StreamView stream, std::atomic<std::uint64_t>& word, CUdeviceptr address, std::uint64_t value) {
  const Driver& driver = stream.driver();
  if (address != 0) {
    check(driver, driver.stream_write_value_64(stream.handle(), address, value, CU_STREAM_WRITE_VALUE_DEFAULT),
          "cuStreamWriteValue64");
    return;
  }
  auto write = std::make_unique<HostWrite>(HostWrite{&word, value});
  const auto host_function = [](void* argument) {
    const std::unique_ptr<HostWrite> mine(static_cast<HostWrite*>(argument));
    mine->word->store(mine->value, std::memory_order_release);
  };
  check(driver, driver.launch_host_func(stream.handle(), host_function, write.get()), "cuLaunchHostFunc");
  write.release();  // NOLINT(bugprone-unused-return-value): the host function owns it now
}

void write_words(StreamView stream, std::span<const WordWrite> writes) {
  constexpr std::size_t most_together = 64;  // of 256 that the driver takes
  std::vector<CUstreamBatchMemOpParams> stores;
  while (!writes.empty()) {
    const auto some = writes.first(std::min(writes.size(), most_together));
    writes = writes.subspan(some.size());
    stores.clear();
    for (const WordWrite& write : some)
      if (write.address != 0) stores.push_back(store_64(write.address, write.value));
    if (some.size() > 1 && stores.size() == some.size() &&
        stream.driver().stream_batch_mem_op(stream.handle(), static_cast<unsigned>(stores.size()), stores.data(), 0) ==
            CUDA_SUCCESS)
      continue;
    for (const WordWrite& write : some) write_word(stream, *write.word, write.address, write.value);
  }
}

Marker::Marker(const Driver& driver) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(*word_) == sizeof(std::uint64_t));
  try {
    pinned_ = PinnedPages(driver, sizeof(Line));
    word_ = &(new (pinned_.data()) Line)->word;
    stream_writes_ = writes_words(driver);
  } catch (const base::Error& error) {
    base::log(base::Topic::info,
              "a word that tells when copies are done cannot be pinned, a host function writes it: {}", error.what());
    pinned_ = {};
    ordinary_ = std::make_unique<Line>();
    word_ = &ordinary_->word;
  }
}

std::uint64_t Marker::post(StreamView stream, Stores& stores) {
  const std::uint64_t value = posted_ + 1;
  if (!stores.enqueue(stream, address(), value)) write_word(stream, *word_, address(), value);
  posted_ = value;
  return value;
}

std::uint64_t Marker::post(StreamView stream) {
  Stores none;
  return post(stream, none);
}

}  // namespace crosslane::gpu
