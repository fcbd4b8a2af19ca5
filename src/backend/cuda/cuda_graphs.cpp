// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/handles.hpp"
#include "os/descriptor.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace tutti::backend::cuda {
namespace {

/// The state of a stream's capture.
struct Capture {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;  ///< if active, as all that follows
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* before = nullptr;  ///< what comes next follows these
  std::size_t before_count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;  ///< from these
#endif

  /// Throws nothing.
  [[nodiscard]] cudaError_t ask(cudaStream_t stream) noexcept {
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &before, &edges, &before_count);
#else
    return cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &before, &before_count);
#endif
  }
};

Capture capture_of(StreamRef stream) {
  const StreamDevice current(stream);
  Capture capture;
  check(capture.ask(native(stream)), "cudaStreamGetCaptureInfo", stream.device);
  return capture;
}

/// Returns whether the stream is being captured. Takes a few nanoseconds, because every request for memory
/// asks. Returns nothing if the driver does not say, as on a thread without a context, and for
/// `cudaStreamPerThread`, whose device the driver would need to know.
std::optional<bool> driver_says_capturing(cudaStream_t stream) {
  using IsCapturing = int (*)(cudaStream_t, int*);
  static const auto ask = reinterpret_cast<IsCapturing>(driver_function("cuStreamIsCapturing"));
  int status = 0;  // the same numbers as the runtime's
  if (ask == nullptr || stream == cudaStreamPerThread || ask(stream, &status) != 0) return std::nullopt;
  return status != cudaStreamCaptureStatusNone;
}

/// A graph's handle refers to this: what is launched, and what it was made of, which becomes part of larger
/// graphs.
struct InstantiatedGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
};

InstantiatedGraph& instantiated(GraphHandle graph) {
  return *reinterpret_cast<InstantiatedGraph*>(graph);
}

/// Makes `graph` the next work of a stream that is being captured: CUDA captures no launches of graphs.
void add_to_capture(cudaGraph_t graph, StreamRef stream) {
  const Capture capture = capture_of(stream);
  if (capture.status != cudaStreamCaptureStatusActive)
    check(cudaErrorStreamCaptureInvalidated, "cudaStreamGetCaptureInfo", stream.device);
  cudaGraphNode_t node = nullptr;
#if CUDART_VERSION >= 13000
  cudaGraphNodeParams child{};
  child.type = cudaGraphNodeTypeGraph;
  child.graph.graph = graph;
  check(cudaGraphAddNode(&node, capture.graph, capture.before, capture.edges, capture.before_count, &child),
        "cudaGraphAddNode", stream.device);
  check(cudaStreamUpdateCaptureDependencies(native(stream), &node, nullptr, 1,
                                            cudaStreamSetCaptureDependencies),
        "cudaStreamUpdateCaptureDependencies", stream.device);
#else
  check(cudaGraphAddChildGraphNode(&node, capture.graph, capture.before, capture.before_count, graph),
        "cudaGraphAddChildGraphNode", stream.device);
  check(cudaStreamUpdateCaptureDependencies(native(stream), &node, 1, cudaStreamSetCaptureDependencies),
        "cudaStreamUpdateCaptureDependencies", stream.device);
#endif
}

cudaStreamCaptureMode to_native(CaptureErrorMode mode) {
  switch (mode) {
    case CaptureErrorMode::global:
      return cudaStreamCaptureModeGlobal;
    case CaptureErrorMode::thread:
      return cudaStreamCaptureModeThreadLocal;
    case CaptureErrorMode::relaxed:
      break;
  }
  return cudaStreamCaptureModeRelaxed;
}

/// CUDA writes to files only.
std::string describe(cudaGraph_t graph, int device) {
  const char* const directory = std::getenv("TMPDIR");
  std::string path =
      fmt::format("{}/tutti-graph-XXXXXX", directory == nullptr || *directory == 0 ? "/tmp" : directory);
  const Descriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (!file.is_open()) {
    throw Error(ErrorCode::device_failure,
                fmt::format("cannot make a file {} for a graph's description", path));
  }
  const cudaError_t status = cudaGraphDebugDotPrint(graph, path.c_str(), cudaGraphDebugDotFlagsVerbose);
  std::optional<std::string> text = contents_of(path);
  static_cast<void>(std::remove(path.c_str()));
  check(status, "cudaGraphDebugDotPrint", device);
  return std::move(text).value_or("");
}

}  // namespace

bool CudaBackend::is_capturing(StreamRef stream) {
  if (is_legacy(stream)) return false;
  if (const std::optional<bool> answer = driver_says_capturing(native(stream))) return *answer;
  const StreamDevice current(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &status), "cudaStreamIsCapturing", stream.device);
  return status != cudaStreamCaptureStatusNone;
}

std::uint64_t CudaBackend::capture_id(StreamRef stream) {
  if (is_legacy(stream)) return 0;
  const Capture capture = capture_of(stream);
  if (capture.status == cudaStreamCaptureStatusInvalidated)
    check(cudaErrorStreamCaptureInvalidated, "cudaStreamGetCaptureInfo", stream.device);
  return capture.status == cudaStreamCaptureStatusActive ? capture.id : 0;
}

std::optional<CudaBackend::CapturePlace> CudaBackend::capture_place(StreamRef stream) {
  const StreamDevice current(stream);
  Capture capture;
  const bool is_known = forget(capture.ask(native(stream))) == cudaSuccess;
  if (!is_known || capture.status != cudaStreamCaptureStatusActive || capture.before_count != 1)
    return std::nullopt;
  return CapturePlace{.stream = native(stream), .capture = capture.id, .node = capture.before[0]};
}

std::optional<CudaBackend::CapturedRound> CudaBackend::captured_round_before(StreamRef stream) {
  const std::optional<CapturePlace> place = capture_place(stream);
  DeviceState& state = at(stream.device);
  const std::lock_guard lock(state.streams_mutex);
  if (!place || state.captured_round.place != *place) return std::nullopt;
  return state.captured_round;
}

void CudaBackend::remember_captured_round(StreamRef stream, bool may_let_next_in) {
  const std::optional<CapturePlace> place = capture_place(stream);
  DeviceState& state = at(stream.device);
  const std::lock_guard lock(state.streams_mutex);
  state.captured_round = {.place = place.value_or(CapturePlace{}), .may_let_next_in = may_let_next_in};
}

bool CudaBackend::has_capture_on(int device) {
  DeviceState& state = at(device);
  const std::lock_guard lock(state.streams_mutex);
  if (!state.capture_origins.empty()) return true;
  try {
    // Of streams that were made elsewhere, CUDA tells whether one is captured that waits for the legacy
    // default stream, as those do that nobody has asked not to.
    const CurrentDevice current(device);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (forget(cudaStreamIsCapturing(cudaStreamLegacy, &status)) == cudaErrorStreamCaptureImplicit)
      return true;
    return std::ranges::any_of(state.streams, [this, device](cudaStream_t stream) {
      return is_capturing({reinterpret_cast<StreamHandle>(stream), device});
    });
  } catch (const Error&) {
    return false;  // who waits for the device is told what is wrong with it
  }
}

void CudaBackend::begin_capture(StreamRef stream, CaptureErrorMode mode) {
  const StreamDevice current(stream);
  DeviceState& state = at(stream.device);
  // Entered before it begins, so that nobody comes to wait for the device in between.
  {
    const std::lock_guard lock(state.streams_mutex);
    state.capture_origins.push_back(native(stream));
  }
  const cudaError_t status = cudaStreamBeginCapture(native(stream), to_native(mode));
  if (status != cudaSuccess) forget_capture(stream);
  check(status, "cudaStreamBeginCapture", stream.device);
}

void CudaBackend::forget_capture(StreamRef stream) noexcept {
  DeviceState& state = at(stream.device);
  const std::lock_guard lock(state.streams_mutex);
  const auto origin = std::ranges::find(state.capture_origins, native(stream));
  if (origin != state.capture_origins.end()) state.capture_origins.erase(origin);
}

GraphHandle CudaBackend::end_capture(StreamRef stream, std::string* description) {
  const CurrentDevice current(stream.device);
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(native(stream), &graph);
  forget_capture(stream);
  check(status, "cudaStreamEndCapture", stream.device);
  std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(graph, cudaGraphDestroy);
  if (description != nullptr) *description = describe(graph, stream.device);
  auto made = std::make_unique<InstantiatedGraph>();
  const RelaxedCapture relaxed;  // this thread may be capturing another one
  check(cudaGraphInstantiate(&made->executable, graph, 0), "cudaGraphInstantiate", stream.device);
  made->graph = owner.release();
  return reinterpret_cast<GraphHandle>(made.release());
}

void CudaBackend::launch_graph(GraphHandle graph, StreamRef stream) {
  const CurrentDevice current(stream.device);
  if (is_capturing(stream)) return add_to_capture(instantiated(graph).graph, stream);
  check(cudaGraphLaunch(instantiated(graph).executable, site(stream, "a graph").stream), "cudaGraphLaunch",
        stream.device);
  end_launch(stream);
  if (!launches_block()) return;
  // The launch is over on other devices too, and what failed there is its own failure.
  for (int device = 0; device < device_count(); ++device) {
    if (device == stream.device || at(device).last_work.load(std::memory_order_relaxed) == nullptr) continue;
    const CurrentDevice other(device);
    MemoryInfo memory;  // asked for as any call tells of such failures, and this one of nothing else
    check_work(forget(cudaMemGetInfo(&memory.free, &memory.total)), "cudaMemGetInfo", device);
  }
}

void CudaBackend::destroy_graph(GraphHandle graph) noexcept {
  const std::unique_ptr<InstantiatedGraph> owner(&instantiated(graph));
  const RelaxedCapture relaxed;  // this thread may be capturing another one
  keep_late_failure(cudaGraphExecDestroy(owner->executable), 0);
  keep_late_failure(cudaGraphDestroy(owner->graph), 0);
}

void CudaBackend::retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) {
  const Capture capture = capture_of(stream);
  if (capture.status != cudaStreamCaptureStatusActive) return;
  auto holder = std::make_unique<std::shared_ptr<void>>(std::move(resource));
  const auto destroy = [](void* object) { delete static_cast<std::shared_ptr<void>*>(object); };
  cudaUserObject_t object = nullptr;
  check(cudaUserObjectCreate(&object, holder.get(), destroy, 1, cudaUserObjectNoDestructorSync),
        "cudaUserObjectCreate", stream.device);
  static_cast<void>(holder.release());  // the user object's now
  check(cudaGraphRetainUserObject(capture.graph, object, 1, cudaGraphUserObjectMove),
        "cudaGraphRetainUserObject", stream.device);
}

}  // namespace tutti::backend::cuda
