// Graph capture: what is captured runs as it would have, and what CUDA forbids meanwhile is refused.
#include "gpu/graph.h"
#include "machine.h"

namespace crosslane::test {
namespace {

template <class Kind>
class CaptureTest : public MachineTest<Kind> {};
TYPED_TEST_SUITE(CaptureTest, Machines, MachineNames);

TYPED_TEST(CaptureTest, ReplaysWhatWasCaptured) {
  const gpu::Stream stream(this->driver()), side(this->driver());
  const gpu::PinnedBuffer from(this->driver(), 64), to(this->driver(), 64), other(this->driver(), 64);
  const gpu::Buffer middle(this->driver(), 64);
  gpu::Event fork(this->driver()), back(this->driver());
  gpu::Capture capture(stream);
  EXPECT_TRUE(stream.view().capturing());
  gpu::copy_async(middle.data(), from.data(), 64, stream);
  fork.record(stream);
  fork.make_wait(side);
  EXPECT_TRUE(side.view().capturing());
  gpu::copy_async(other.data(), middle.data(), 64, side);
  gpu::copy_async(to.data(), middle.data(), 64, stream);
  back.record(side);
  back.make_wait(stream);
  const gpu::GraphExec graph = capture.end();
  EXPECT_FALSE(side.view().capturing());
  for (unsigned char round = 1; round < 20; ++round) {
    from.data()[9] = std::byte{round};
    graph.launch(stream);
    finish(stream);
    EXPECT_EQ(to.data()[9], std::byte{round});
    EXPECT_EQ(other.data()[9], std::byte{round});
  }
}

TYPED_TEST(CaptureTest, WordsAreWrittenByEveryLaunch) {
  const gpu::Stream stream(this->driver());
  gpu::Marker marker(this->driver());
  gpu::Capture capture(stream);
  const std::uint64_t value = marker.post(stream);
  const gpu::GraphExec graph = capture.end();
  EXPECT_FALSE(marker.reached(value)) << "captured, not run";
  graph.upload(stream);
  graph.launch(stream);
  finish(stream);
  EXPECT_TRUE(marker.reached(value));
}

TYPED_TEST(CaptureTest, UnsafeCallsInvalidateAGlobalCapture) {
  const gpu::Stream stream(this->driver());
  {
    gpu::Capture capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr pointer = 0;
    EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, this->driver().mem_alloc(&pointer, 4096));
    EXPECT_THROW(static_cast<void>(capture.end()), base::Error);
  }
  // Relaxed: allowed.
  gpu::Capture capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CUdeviceptr pointer = 0;
  EXPECT_CUDA(CUDA_SUCCESS, this->driver().mem_alloc(&pointer, 4096));
  const gpu::GraphExec graph = capture.end();
  EXPECT_CUDA(CUDA_SUCCESS, this->driver().mem_free(pointer));
}

TYPED_TEST(CaptureTest, AnEventQueryInvalidatesAGlobalCapture) {
  const gpu::Stream stream(this->driver());
  const gpu::Event event(this->driver());
  gpu::Capture capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, this->driver().event_query(event.handle()));
  EXPECT_THROW(static_cast<void>(capture.end()), base::Error);
}

TYPED_TEST(CaptureTest, ARecordOfAContextSpoilsItsCaptures) {
  const gpu::Stream stream(this->driver());
  gpu::Event all(this->driver());
  if (!all.record_context()) GTEST_SKIP() << "the driver is older than CUDA 12.5";
  gpu::Capture capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_FALSE(all.record_context());
  EXPECT_THROW(static_cast<void>(capture.end()), base::Error);
  EXPECT_TRUE(all.record_context());
}

TYPED_TEST(CaptureTest, ForkedStreamsMustComeBack) {
  const gpu::Stream stream(this->driver()), side(this->driver());
  const gpu::Buffer buffer(this->driver(), 64);
  gpu::Event fork(this->driver());
  gpu::Capture capture(stream);
  fork.record(stream);
  fork.make_wait(side);
  gpu::fill_async(buffer.data(), 1, 64, side);
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, this->driver().stream_end_capture(stream.view().handle(), &graph));
}

TYPED_TEST(CaptureTest, EventsFromOutsideAreRefused) {
  const gpu::Stream stream(this->driver()), outside(this->driver());
  gpu::Event event(this->driver());
  event.record(outside);
  gpu::Capture capture(stream);
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
              this->driver().stream_wait_event(stream.view().handle(), event.handle(), 0));
}

TYPED_TEST(CaptureTest, TheLegacyStreamIsNotCaptured) {
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              this->driver().stream_begin_capture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TYPED_TEST(CaptureTest, ADiscardedCaptureLeavesTheStreamUsable) {
  const gpu::Stream stream(this->driver());
  const gpu::PinnedBuffer word(this->driver(), 4);
  word.data()[0] = std::byte{0};
  {
    const gpu::Capture capture(stream);
    gpu::fill_async(word.data(), 3, 4, stream);
  }
  finish(stream);
  EXPECT_EQ(word.data()[0], std::byte{0});
  gpu::fill_async(word.data(), 4, 4, stream);
  finish(stream);
  EXPECT_EQ(word.data()[0], std::byte{4});
}

}  // namespace
}  // namespace crosslane::test
