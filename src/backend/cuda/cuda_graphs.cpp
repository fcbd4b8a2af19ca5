#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {
namespace {

cudaStream_t native(StreamRef stream) {
  return reinterpret_cast<cudaStream_t>(stream.handle);
}
cudaGraphExec_t native(GraphHandle graph) {
  return reinterpret_cast<cudaGraphExec_t>(graph);
}

/// The graph that `stream` is being captured into, nullptr if it is not.
cudaGraph_t graph_under_capture(StreamRef stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  check(cudaStreamGetCaptureInfo(native(stream), &status, nullptr, &graph, nullptr, nullptr, nullptr),
        "cudaStreamGetCaptureInfo", stream.device);
#else
  check(cudaStreamGetCaptureInfo_v2(native(stream), &status, nullptr, &graph, nullptr, nullptr),
        "cudaStreamGetCaptureInfo", stream.device);
#endif
  return status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

}  // namespace

bool CudaBackend::is_capturing(StreamRef stream) {
  if (stream.handle == nullptr) return false;  // the legacy default stream cannot be captured
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &status), "cudaStreamIsCapturing", stream.device);
  return status != cudaStreamCaptureStatusNone;
}

void CudaBackend::begin_capture(StreamRef stream) {
  // Thread-local: other threads may go on allocating while this one captures; the global mode would fail
  // them.
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
  const cudaError_t status = cudaGraphExecDestroy(native(graph));
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) at(0).late_failure = status;
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
