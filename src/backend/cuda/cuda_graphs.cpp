#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/handles.hpp"

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {
namespace {

#if CUDART_VERSION >= 13000
cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus& status, cudaGraph_t& graph) {
  return cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr);
}
#else
cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus& status, cudaGraph_t& graph) {
  return cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr);
}
#endif

/// The graph that `stream` is being captured into, nullptr if it is not.
cudaGraph_t graph_under_capture(StreamRef stream) {
  const StreamDevice current(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  check(capture_info(native(stream), status, graph), "cudaStreamGetCaptureInfo", stream.device);
  return status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

}  // namespace

bool CudaBackend::is_capturing(StreamRef stream) {
  if (is_legacy(stream)) return false;
  const StreamDevice current(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &status), "cudaStreamIsCapturing", stream.device);
  return status != cudaStreamCaptureStatusNone;
}

void CudaBackend::begin_capture(StreamRef stream) {
  // Thread-local: other threads may go on allocating while this one captures; the global mode would fail
  // them.
  const StreamDevice current(stream);
  check(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
        stream.device);
}

GraphHandle CudaBackend::end_capture(StreamRef stream) {
  const CurrentDevice current(stream.device);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(native(stream), &graph), "cudaStreamEndCapture", stream.device);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  check(status, "cudaGraphInstantiate", stream.device);
  return reinterpret_cast<GraphHandle>(executable);
}

void CudaBackend::launch_graph(GraphHandle graph, StreamRef stream) {
  const CurrentDevice current(stream.device);
  check(cudaGraphLaunch(native(graph), site(stream, "a graph").stream), "cudaGraphLaunch", stream.device);
}

void CudaBackend::destroy_graph(GraphHandle graph) noexcept {
  keep_late_failure(cudaGraphExecDestroy(native(graph)), 0);
}

void CudaBackend::retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) {
  const cudaGraph_t graph = graph_under_capture(stream);
  if (graph == nullptr) return;
  auto holder = std::make_unique<std::shared_ptr<void>>(std::move(resource));
  const auto destroy = [](void* object) { delete static_cast<std::shared_ptr<void>*>(object); };
  cudaUserObject_t object = nullptr;
  check(cudaUserObjectCreate(&object, holder.get(), destroy, 1, cudaUserObjectNoDestructorSync),
        "cudaUserObjectCreate", stream.device);
  static_cast<void>(holder.release());  // the user object's now
  check(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), "cudaGraphRetainUserObject",
        stream.device);
}

}  // namespace tutti::backend::cuda
