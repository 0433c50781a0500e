// See stores.h.
#include "gpu/stores.h"

#include "gpu/copy.h"

#include <array>
#include <cstring>
#include <utility>

namespace crosslane::gpu {

CUstreamBatchMemOpParams store_64(CUdeviceptr address, std::uint64_t value) noexcept {
  CUstreamBatchMemOpParams store{};
  store.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                      .address = address,
                      .value64 = value,
                      .flags = CU_STREAM_WRITE_VALUE_DEFAULT,  // no other is allowed here
                      .alias = 0};
  return store;
}

namespace {

constexpr std::size_t word = sizeof(std::uint32_t), pair = sizeof(std::uint64_t);
constexpr std::size_t most_together = 64;  // of 256 that the driver takes

CUstreamBatchMemOpParams store_32(CUdeviceptr address, std::uint32_t value) {
  CUstreamBatchMemOpParams store = store_64(address, 0);
  store.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  store.writeValue.value = value;
  return store;
}

}  // namespace

bool Stores::add(void* destination, const std::byte* source, std::size_t bytes) {
  const auto to = reinterpret_cast<CUdeviceptr>(destination);
  if (bytes == 0 || bytes > most_bytes || bytes % word != 0 || to % word != 0) return false;
  std::array<CUstreamBatchMemOpParams, most_words> words;
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes; ++count) {
    if (count == most_words) return false;
    if ((to + at) % pair == 0 && bytes - at >= pair) {
      std::uint64_t value = 0;
      std::memcpy(&value, source + at, pair);
      words[count] = store_64(to + at, value);
      at += pair;
    } else {
      std::uint32_t value = 0;
      std::memcpy(&value, source + at, word);
      words[count] = store_32(to + at, value);
      at += word;
    }
  }
  if (words_.size() + count > most_together) return false;
  copies_.push_back({destination, source, bytes});
  words_.insert(words_.end(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
  return true;
}

bool Stores::enqueue(StreamView stream, CUdeviceptr last, std::uint64_t value) {
  if (copies_.empty()) return false;
  if (last != 0) words_.push_back(store_64(last, value));
  const CUresult result =
      stream.driver().stream_batch_mem_op(stream.handle(), static_cast<unsigned>(words_.size()), words_.data(), 0);
  words_.clear();
  if (result == CUDA_SUCCESS) {
    copies_.clear();  // room is kept
    return last != 0;
  }
  for (const Copy& copy : std::exchange(copies_, {})) copy_async(copy.destination, copy.source, copy.bytes, stream);
  return false;
}

}  // namespace crosslane::gpu
