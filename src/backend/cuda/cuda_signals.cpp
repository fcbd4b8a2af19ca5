// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda.h>

/// Signals are stream memory operations. One costs the host about as much as an event between devices, but
/// several of one stream in a batch hardly more than one. CUDA advises that such orders be expressed by
/// events as well, since it does not know of them and may serialise the work of streams that share a queue.
/// In practice it does so in the order of the host's calls, and that is why waits must be queued after their
/// signals.
namespace tutti::backend::cuda {
namespace {

using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

BatchMemOp batch_mem_op() noexcept {
  static const auto function = reinterpret_cast<BatchMemOp>(driver_function("cuStreamBatchMemOp"));
  return function;
}

/// Pinned memory has the same address on all devices.
CUdeviceptr address_of(const SharedFlag& flag) {
  return reinterpret_cast<std::uintptr_t>(&flag.value);
}

void enqueue(StreamRef stream, std::span<CUstreamBatchMemOpParams> operations) {
  const StreamDevice current(stream);
  const auto enqueue_all = [&] {
    return batch_mem_op()(native(stream), static_cast<unsigned>(operations.size()), operations.data(), 0);
  };
  CUresult status = enqueue_all();
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    // A default stream, on a thread that has called nothing of the runtime yet: the runtime would make its
    // device current then, the driver does not.
    thread_device.set(stream.device);
    status = enqueue_all();
  }
  check(static_cast<cudaError_t>(status), "cuStreamBatchMemOp", stream.device);  // the same numbers
}

}  // namespace

SignalSupport CudaBackend::signal_support() const noexcept {
  return batch_mem_op() != nullptr && !launches_block() ? SignalSupport::cheaper : SignalSupport::none;
}

void CudaBackend::signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address_of(flag);
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // behind a fence of the whole system
  enqueue(stream, {&operation, 1});
}

void CudaBackend::wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) {
  std::array<CUstreamBatchMemOpParams, most_signals> operations{};
  for (std::size_t i = 0; i < flags.size(); ++i) {
    operations[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operations[i].waitValue.address = address_of(flags[i]);
    operations[i].waitValue.value = value;
    operations[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;  // as `has_reached`
  }
  enqueue(stream, std::span(operations).first(flags.size()));
}

}  // namespace tutti::backend::cuda
