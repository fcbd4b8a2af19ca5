// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/handles.hpp"
#include "tutti/error.hpp"

#include <bit>
#include <mutex>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

/// Streams and events of GPUs.
namespace tutti::backend::cuda {

StreamRef CudaBackend::create_stream(int device, int priority) {
  prepare(device);
  const CurrentDevice current(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority", device);
  try {
    const std::lock_guard lock(at(device).streams_mutex);
    at(device).streams.push_back(stream);
  } catch (...) {
    keep_late_failure(cudaStreamDestroy(stream), device);
    throw;
  }
  return {reinterpret_cast<StreamHandle>(stream), device};
}

int CudaBackend::stream_priority(StreamRef stream) {
  const StreamDevice current(stream);
  int priority = 0;
  check(cudaStreamGetPriority(native(stream), &priority), "cudaStreamGetPriority", stream.device);
  return priority;
}

std::optional<int> CudaBackend::device_of(StreamRef stream) {
  if (is_legacy(stream) || native(stream) == cudaStreamPerThread) return stream.device;
  return device_of_stream(native(stream), stream.device);
}

void CudaBackend::destroy_stream(StreamRef stream) noexcept {
  {
    DeviceState& state = at(stream.device);
    const std::lock_guard lock(state.streams_mutex);
    std::erase(state.streams, native(stream));
    std::erase(state.capture_origins, native(stream));
  }
  keep_late_failure(cudaStreamDestroy(native(stream)), stream.device);
}

bool CudaBackend::query_stream(StreamRef stream) {
  const StreamDevice current(stream);
  const cudaError_t status = forget(cudaStreamQuery(native(stream)));
  if (status == cudaErrorNotReady) return false;
  check_work(status, "cudaStreamQuery", stream.device);
  return true;
}

void CudaBackend::synchronize_stream(StreamRef stream) {
  const StreamDevice current(stream);
  check_work(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize", stream.device);
}

std::uint64_t CudaBackend::stream_id(StreamRef stream) {
  if (is_legacy(stream)) return 0;  // lives as long as its device
  const StreamDevice current(stream);
  unsigned long long id = 0;
  check(cudaStreamGetId(native(stream), &id), "cudaStreamGetId", stream.device);
  return id;
}

bool CudaBackend::is_of_calling_thread(StreamRef stream) const noexcept {
  return native(stream) == cudaStreamPerThread;
}

bool CudaBackend::waits_for_default_stream(StreamRef stream) {
  if (is_legacy(stream)) return false;
  const StreamDevice current(stream);
  unsigned flags = 0;
  check(cudaStreamGetFlags(native(stream), &flags), "cudaStreamGetFlags", stream.device);
  return (flags & cudaStreamNonBlocking) == 0;
}

void CudaBackend::wait_event(StreamRef stream, EventHandle event) {
  const StreamDevice current(stream);
  check(cudaStreamWaitEvent(native(stream), native(event), 0), "cudaStreamWaitEvent", stream.device);
}

void CudaBackend::launch_host_function(StreamRef stream, void (*function)(void*), void* argument) {
  const StreamDevice current(stream);
  check(cudaLaunchHostFunc(site(stream, "a host function").stream, function, argument), "cudaLaunchHostFunc",
        stream.device);
  end_launch(stream);
}

EventHandle CudaBackend::create_event(int device, EventTiming timing, EventWait wait) {
  prepare(device);
  const CurrentDevice current(device);
  unsigned flags = timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming;
  if (wait == EventWait::block) flags |= cudaEventBlockingSync;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags", device);
  return reinterpret_cast<EventHandle>(event);
}

EventHandle CudaBackend::create_shared_event(int device, EventWait wait) {
  prepare(device);
  const CurrentDevice current(device);
  unsigned flags = cudaEventInterprocess | cudaEventDisableTiming;
  if (wait == EventWait::block) flags |= cudaEventBlockingSync;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags", device);
  return reinterpret_cast<EventHandle>(event);
}

SharedEventHandle CudaBackend::share_event(EventHandle event) {
  static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(SharedEventHandle));
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  cudaIpcEventHandle_t handle{};
  const cudaError_t status = forget(cudaIpcGetEventHandle(&handle, native(event)));
  if (status != cudaSuccess) {
    throw Error(ErrorCode::unsupported,
                fmt::format("an event cannot be shared with other processes: {}", cudaGetErrorString(status)),
                status);
  }
  return std::bit_cast<SharedEventHandle>(handle);
}

EventHandle CudaBackend::open_event(int device, const SharedEventHandle& handle) {
  prepare(device);
  const CurrentDevice current(device);
  const RelaxedCapture relaxed;
  cudaEvent_t event = nullptr;
  const cudaError_t status =
      forget(cudaIpcOpenEventHandle(&event, std::bit_cast<cudaIpcEventHandle_t>(handle)));
  if (status != cudaSuccess) {
    // The two that CUDA documents for a handle that is not one of another process's event of this device.
    const bool is_wrong = status == cudaErrorInvalidValue || status == cudaErrorInvalidResourceHandle;
    throw Error(
        is_wrong ? ErrorCode::invalid_argument : ErrorCode::peer_unavailable,
        fmt::format("device {} cannot open another process's event: {}", device, cudaGetErrorString(status)),
        status);
  }
  return reinterpret_cast<EventHandle>(event);
}

void CudaBackend::destroy_event(EventHandle event) noexcept {
  const AnyContext context(used_device_);
  forget(cudaEventDestroy(native(event)));
}

void CudaBackend::record_event(EventHandle event, StreamRef stream) {
  const StreamDevice current(stream);
  check(cudaEventRecord(native(event), native(stream)), "cudaEventRecord", stream.device);
}

bool CudaBackend::query_event(EventHandle event) {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  const cudaError_t status = forget(cudaEventQuery(native(event)));
  if (status == cudaErrorNotReady) return false;
  check_event(status, "cudaEventQuery");
  return true;
}

bool CudaBackend::has_passed(EventHandle event) noexcept {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  return forget(cudaEventQuery(native(event))) != cudaErrorNotReady;
}

void CudaBackend::synchronize_event(EventHandle event) {
  const AnyContext context(used_device_);
  check_event(cudaEventSynchronize(native(event)), "cudaEventSynchronize");
}

float CudaBackend::elapsed_time(EventHandle start, EventHandle end) {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, native(start), native(end)), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace tutti::backend::cuda
