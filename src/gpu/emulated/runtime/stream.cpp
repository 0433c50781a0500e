// Entries of the emulated CUDA runtime: streams, events, graphs.
#include "gpu/emulated/per_thread.h"
#include "gpu/emulated/runtime/runtime.h"

#include <cstddef>
#include <cstdint>

using namespace crosslane::gpu::emulated;
using namespace crosslane::gpu::emulated::runtime;

extern "C" {

Error cudaStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return run([&] { return cuStreamCreateWithPriority(stream, flags, priority); });
}

Error cudaStreamCreateWithFlags(CUstream* stream, unsigned flags) {
  return run([&] { return cuStreamCreate(stream, flags); });
}

Error cudaStreamCreate(CUstream* stream) { return cudaStreamCreateWithFlags(stream, CU_STREAM_DEFAULT); }

Error cudaStreamDestroy(CUstream stream) {
  return run([&] { return cuStreamDestroy(stream); });
}

Error cudaStreamSynchronize(CUstream stream) {
  return run([&] { return cuStreamSynchronize(stream); });
}

Error cudaStreamQuery(CUstream stream) {
  return run([&] { return cuStreamQuery(stream); });
}

Error cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return run([&] { return cuStreamWaitEvent(stream, event, flags); });
}

Error cudaStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned flags) {
  return run([&] { return cuStreamAddCallback(stream, callback, data, flags); });
}

Error cudaLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return run([&] { return cuLaunchHostFunc(stream, function, data); });
}

Error cudaStreamGetPriority(CUstream stream, int* priority) {
  return run([&] { return cuStreamGetPriority(stream, priority); });
}

Error cudaStreamGetFlags(CUstream stream, unsigned* flags) {
  return run([&] { return cuStreamGetFlags(stream, flags); });
}

Error cudaStreamGetId(CUstream stream, unsigned long long* id) {
  return run([&] { return cuStreamGetId(stream, id); });
}

Error cudaStreamAttachMemAsync(CUstream stream, void* pointer, std::size_t bytes, unsigned flags) {
  return run([&] { return cuStreamAttachMemAsync(stream, address(pointer), bytes, flags); });
}

Error cudaStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return run([&] { return cuStreamBeginCapture(stream, mode); });
}

Error cudaStreamEndCapture(CUstream stream, CUgraph* graph) {
  return run([&] { return cuStreamEndCapture(stream, graph); });
}

Error cudaStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return run([&] { return cuStreamIsCapturing(stream, status); });
}

Error cudaThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return run([&] { return cuThreadExchangeStreamCaptureMode(mode); });
}

Error cudaEventCreateWithFlags(CUevent* event, unsigned flags) {
  return run([&] { return cuEventCreate(event, flags); });
}

Error cudaEventCreate(CUevent* event) { return cudaEventCreateWithFlags(event, CU_EVENT_DEFAULT); }

Error cudaEventDestroy(CUevent event) {
  return run([&] { return cuEventDestroy(event); });
}

Error cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return run([&] { return cuEventRecordWithFlags(event, stream, flags); });
}

Error cudaEventRecord(CUevent event, CUstream stream) { return cudaEventRecordWithFlags(event, stream, 0); }

Error cudaEventQuery(CUevent event) {
  return run([&] { return cuEventQuery(event); });
}

Error cudaEventSynchronize(CUevent event) {
  return run([&] { return cuEventSynchronize(event); });
}

Error cudaEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return run([&] { return cuEventElapsedTime(milliseconds, begin, end); });
}

Error cudaEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
  return cudaEventElapsedTime(milliseconds, begin, end);
}

Error cudaIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  return run([&] { return cuIpcGetEventHandle(handle, event); });
}

Error cudaIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  return run([&] { return cuIpcOpenEventHandle(event, handle); });
}

Error cudaGraphCreate(CUgraph* graph, unsigned flags) {
  return run([&] { return cuGraphCreate(graph, flags); });
}

Error cudaGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  return run([&] { return cuGraphInstantiate(made, graph, flags); });
}

Error cudaGraphInstantiate(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(made, graph, flags);
}

Error cudaGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return run([&] { return cuGraphGetNodes(graph, nodes, count); });
}

Error cudaGraphUpload(CUgraphExec graph, CUstream stream) {
  return run([&] { return cuGraphUpload(graph, stream); });
}

Error cudaGraphLaunch(CUgraphExec graph, CUstream stream) {
  return run([&] { return cuGraphLaunch(graph, stream); });
}

Error cudaGraphExecDestroy(CUgraphExec graph) {
  return run([&] { return cuGraphExecDestroy(graph); });
}

Error cudaGraphDestroy(CUgraph graph) {
  return run([&] { return cuGraphDestroy(graph); });
}

// As compiled for default streams of the threads.
Error cudaStreamSynchronize_ptsz(CUstream stream) { return on_per_thread(cudaStreamSynchronize, stream); }
Error cudaStreamQuery_ptsz(CUstream stream) { return on_per_thread(cudaStreamQuery, stream); }

Error cudaStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags) {
  return on_per_thread(cudaStreamWaitEvent, stream, event, flags);
}

Error cudaStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void* data, unsigned flags) {
  return on_per_thread(cudaStreamAddCallback, stream, callback, data, flags);
}

Error cudaLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void* data) {
  return on_per_thread(cudaLaunchHostFunc, stream, function, data);
}

Error cudaStreamGetPriority_ptsz(CUstream stream, int* priority) {
  return on_per_thread(cudaStreamGetPriority, stream, priority);
}

Error cudaStreamGetFlags_ptsz(CUstream stream, unsigned* flags) {
  return on_per_thread(cudaStreamGetFlags, stream, flags);
}

Error cudaStreamGetId_ptsz(CUstream stream, unsigned long long* id) {
  return on_per_thread(cudaStreamGetId, stream, id);
}

Error cudaStreamAttachMemAsync_ptsz(CUstream stream, void* pointer, std::size_t bytes, unsigned flags) {
  return on_per_thread(cudaStreamAttachMemAsync, stream, pointer, bytes, flags);
}

Error cudaStreamBeginCapture_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return on_per_thread(cudaStreamBeginCapture, stream, mode);
}

Error cudaStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return on_per_thread(cudaStreamEndCapture, stream, graph);
}

Error cudaStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return on_per_thread(cudaStreamIsCapturing, stream, status);
}

Error cudaEventRecord_ptsz(CUevent event, CUstream stream) { return on_per_thread(cudaEventRecord, event, stream); }

Error cudaEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags) {
  return on_per_thread(cudaEventRecordWithFlags, event, stream, flags);
}

Error cudaGraphUpload_ptsz(CUgraphExec graph, CUstream stream) { return on_per_thread(cudaGraphUpload, graph, stream); }
Error cudaGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) { return on_per_thread(cudaGraphLaunch, graph, stream); }

}  // extern "C"
