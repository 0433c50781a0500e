// Entries: streams, host functions, and streams that write words and wait for them.
#include "gpu/emulated/event.h"
#include "gpu/emulated/memory.h"
#include "gpu/emulated/per_thread.h"
#include "gpu/emulated/stream.h"

#include <algorithm>

using namespace crosslane::gpu::emulated;

namespace {

template <class Word>
std::atomic_ref<Word> word_at(CUdeviceptr address) {
  return std::atomic_ref<Word>(*static_cast<Word*>(memory().cpu(address)));
}

template <class Word>
bool holds(Word seen, Word wanted, unsigned comparison) {
  using Signed = std::make_signed_t<Word>;
  switch (comparison) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(static_cast<Word>(seen - wanted)) >= 0;  // cyclic, as documented
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & wanted) != 0;
    default:
      return static_cast<Word>(~(seen | wanted)) != 0;  // NOR
  }
}

template <class Word>
Action writing(CUdeviceptr address, Word value, unsigned flags) {
  require(flags == CU_STREAM_WRITE_VALUE_DEFAULT, CUDA_ERROR_INVALID_VALUE);  // these entries know no other
  require(address % sizeof(Word) == 0, CUDA_ERROR_INVALID_VALUE);
  memory().check(address, sizeof(Word), true);
  // Release: who sees the word sees all that the stream did before.
  return [address, value](const Running&) { word_at<Word>(address).store(value, std::memory_order_release); };
}

template <class Word>
Action waiting(CUdeviceptr address, Word value, unsigned flags) {
  constexpr unsigned comparisons =
      CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_AND | CU_STREAM_WAIT_VALUE_NOR;
  require((flags & ~(comparisons | CU_STREAM_WAIT_VALUE_FLUSH)) == 0 && address % sizeof(Word) == 0,
          CUDA_ERROR_INVALID_VALUE);
  memory().check(address, sizeof(Word), true);
  return [address, value, comparison = flags & comparisons](const Running& running) {
    const auto word = word_at<Word>(address);
    for (Backoff backoff; !holds(word.load(std::memory_order_acquire), value, comparison);) {
      if (running.aborted.load(std::memory_order_acquire)) return;
      backoff.pause();
    }
  };
}

Action operation(const CUstreamBatchMemOpParams& parameters) {
  switch (parameters.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return waiting<std::uint32_t>(parameters.waitValue.address, parameters.waitValue.value,
                                    parameters.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return waiting<std::uint64_t>(parameters.waitValue.address, parameters.waitValue.value64,
                                    parameters.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return writing<std::uint32_t>(parameters.writeValue.address, parameters.writeValue.value,
                                    parameters.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return writing<std::uint64_t>(parameters.writeValue.address, parameters.writeValue.value64,
                                    parameters.writeValue.flags);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return [](const Running&) {
        // A barrier in the form of an access, which ThreadSanitizer understands where it does not know fences.
        std::atomic<int> word{0};
        word.exchange(1, std::memory_order_seq_cst);
      };
    default:
      throw Failure{CUDA_ERROR_INVALID_VALUE};
  }
}

template <class Word, class Make>
CUresult word_entry(const char* name, CUstream handle, CUdeviceptr address, Word value, unsigned flags, Make make) {
  return enter(name, plain,
               [&] { submit(resolve(handle), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, make(address, value, flags)); });
}

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return enter("cuStreamCreateWithPriority", plain, [&] {
    require(stream != nullptr && (flags == CU_STREAM_DEFAULT || flags == CU_STREAM_NON_BLOCKING),
            CUDA_ERROR_INVALID_VALUE);
    *stream =
        make_stream(current(), flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::non_blocking : Stream::Kind::blocking,
                    std::clamp(priority, -5, 0));
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamDestroy_v2(CUstream stream) {
  return enter("cuStreamDestroy_v2", plain, [&] { destroy_stream(stream); });
}
CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return enter("cuStreamGetPriority", plain, [&] {
    require(priority != nullptr, CUDA_ERROR_INVALID_VALUE);
    *priority = resolve(handle)->priority;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return enter("cuStreamGetFlags", plain, [&] {
    require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
    *flags = resolve(handle)->kind == Stream::Kind::non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return enter("cuStreamGetId", plain, [&] {
    require(id != nullptr, CUDA_ERROR_INVALID_VALUE);
    *id = resolve(handle)->id;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return enter("cuStreamGetCtx", plain, [&] {
    require(context != nullptr, CUDA_ERROR_INVALID_VALUE);
    *context = &resolve(handle)->context;
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return enter("cuStreamQuery", unsafe_in_capture, [&]() -> CUresult {
    const auto stream = resolve(handle);
    refuse_captured(*stream);
    return over(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return enter("cuStreamSynchronize", unsafe_in_capture, [&] {
    const auto stream = resolve(handle);
    refuse_captured(*stream);
    if (stream->kind == Stream::Kind::legacy) {
      // The legacy stream stands for all blocking ones: an empty action is ordered after theirs.
      submit(stream, CU_GRAPH_NODE_TYPE_EMPTY, [](const Running&) {}).wait();
    } else {
      stream->last().wait();
    }
  });
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t, unsigned) {
  return enter("cuStreamAttachMemAsync", plain, [&] {
    resolve(handle);
    const auto range = memory().find(pointer);
    require(range && range->kind == Range::Kind::managed, CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  return enter("cuLaunchHostFunc", plain, [&] {
    require(function != nullptr, CUDA_ERROR_INVALID_VALUE);
    submit(resolve(handle), CU_GRAPH_NODE_TYPE_HOST, [=](const Running&) { function(argument); });
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* argument, unsigned flags) {
  return enter("cuStreamAddCallback", unsafe_in_capture, [&] {
    require(callback != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    const auto stream = resolve(handle);
    refuse_captured(*stream);
    submit(stream, CU_GRAPH_NODE_TYPE_HOST, [=](const Running&) { callback(handle, CUDA_SUCCESS, argument); });
  });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return word_entry("cuStreamWriteValue32_v2", stream, address, value, flags, writing<std::uint32_t>);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return word_entry("cuStreamWriteValue64_v2", stream, address, std::uint64_t{value}, flags, writing<std::uint64_t>);
}
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return word_entry("cuStreamWaitValue32_v2", stream, address, value, flags, waiting<std::uint32_t>);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return word_entry("cuStreamWaitValue64_v2", stream, address, std::uint64_t{value}, flags, waiting<std::uint64_t>);
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) {
  return enter("cuStreamBatchMemOp_v2", plain, [&] {
    require(operations != nullptr && count > 0 && count <= 256 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    std::vector<Action> actions;
    actions.reserve(count);
    for (unsigned at = 0; at < count; ++at) actions.push_back(operation(operations[at]));
    submit(resolve(handle), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [actions = std::move(actions)](const Running& running) {
      for (const Action& action : actions) action(running);
    });
  });
}

// The _ptsz spellings.
CUresult cuStreamGetPriority_ptsz(CUstream s, int* priority) { return on_per_thread(cuStreamGetPriority, s, priority); }
CUresult cuStreamGetFlags_ptsz(CUstream s, unsigned* flags) { return on_per_thread(cuStreamGetFlags, s, flags); }
CUresult cuStreamGetId_ptsz(CUstream s, unsigned long long* id) { return on_per_thread(cuStreamGetId, s, id); }
CUresult cuStreamGetCtx_ptsz(CUstream s, CUcontext* context) { return on_per_thread(cuStreamGetCtx, s, context); }
CUresult cuStreamQuery_ptsz(CUstream s) { return on_per_thread(cuStreamQuery, s); }
CUresult cuStreamSynchronize_ptsz(CUstream s) { return on_per_thread(cuStreamSynchronize, s); }
CUresult cuStreamAttachMemAsync_ptsz(CUstream s, CUdeviceptr p, size_t n, unsigned f) {
  return on_per_thread(cuStreamAttachMemAsync, s, p, n, f);
}
CUresult cuLaunchHostFunc_ptsz(CUstream s, CUhostFn function, void* argument) {
  return on_per_thread(cuLaunchHostFunc, s, function, argument);
}
CUresult cuStreamAddCallback_ptsz(CUstream s, CUstreamCallback c, void* a, unsigned f) {
  return on_per_thread(cuStreamAddCallback, s, c, a, f);
}
CUresult cuStreamWriteValue32_v2_ptsz(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned f) {
  return on_per_thread(cuStreamWriteValue32_v2, s, a, v, f);
}
CUresult cuStreamWriteValue64_v2_ptsz(CUstream s, CUdeviceptr a, cuuint64_t v, unsigned f) {
  return on_per_thread(cuStreamWriteValue64_v2, s, a, v, f);
}
CUresult cuStreamWaitValue32_v2_ptsz(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned f) {
  return on_per_thread(cuStreamWaitValue32_v2, s, a, v, f);
}
CUresult cuStreamWaitValue64_v2_ptsz(CUstream s, CUdeviceptr a, cuuint64_t v, unsigned f) {
  return on_per_thread(cuStreamWaitValue64_v2, s, a, v, f);
}
CUresult cuStreamBatchMemOp_v2_ptsz(CUstream s, unsigned n, CUstreamBatchMemOpParams* o, unsigned f) {
  return on_per_thread(cuStreamBatchMemOp_v2, s, n, o, f);
}
CUresult cuEventRecord_ptsz(CUevent e, CUstream s) { return on_per_thread(cuEventRecord, e, s); }
CUresult cuEventRecordWithFlags_ptsz(CUevent e, CUstream s, unsigned f) {
  return on_per_thread(cuEventRecordWithFlags, e, s, f);
}
CUresult cuStreamWaitEvent_ptsz(CUstream s, CUevent e, unsigned f) { return on_per_thread(cuStreamWaitEvent, s, e, f); }
CUresult cuStreamBeginCapture_v2_ptsz(CUstream s, CUstreamCaptureMode mode) {
  return on_per_thread(cuStreamBeginCapture_v2, s, mode);
}
CUresult cuStreamEndCapture_ptsz(CUstream s, CUgraph* graph) { return on_per_thread(cuStreamEndCapture, s, graph); }
CUresult cuStreamIsCapturing_ptsz(CUstream s, CUstreamCaptureStatus* status) {
  return on_per_thread(cuStreamIsCapturing, s, status);
}
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** nodes, size_t* count) {
  return on_per_thread(cuStreamGetCaptureInfo_v2, s, status, id, graph, nodes, count);
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                        const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  return on_per_thread(cuStreamGetCaptureInfo_v3, s, status, id, graph, nodes, edges, count);
}
CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream s) { return on_per_thread(cuGraphUpload, exec, s); }
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream s) { return on_per_thread(cuGraphLaunch, exec, s); }

}  // extern "C"
