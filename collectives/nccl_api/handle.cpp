// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/handle.hpp"

#include "base/hash.hpp"
#include "collectives/nccl_api/base/errors.hpp"

#include <utility>

#include <fmt/format.h>

namespace tutti::nccl_api {

ncclComm_t give_out(std::shared_ptr<ncclComm> handle) noexcept {
  const ncclComm_t comm = handle.get();
  comm->self = std::move(handle);
  return comm;
}

std::shared_ptr<ncclComm> take_back(ncclComm_t comm) noexcept {
  comm->mark.store(0);
  comm->is_given_back.store(true);
  return std::move(comm->self);
}

void require_communicator(const char* function, ncclComm_t comm) {
  require(function, comm, "comm");
  if (comm->mark.load() == ncclComm::live && (comm->clique || comm->nccl != nullptr)) return;
  throw Refusal{
      ncclInvalidArgument,
      fmt::format("{}: comm is no communicator that has been made, or it has been destroyed", function)};
}

}  // namespace tutti::nccl_api

const tutti::Stream& ncclComm::stream(cudaStream_t handle) {
  constexpr std::size_t most = 8;
  for (const KnownStream& known : streams_) {
    if (known.handle == handle) return known.stream;
  }
  const tutti::Stream stream = handle == nullptr ? tutti::default_stream(device)
                                                 : tutti::Stream(tutti::ExternalStream(handle, device));
  if (streams_.size() < most) return streams_.emplace_back(KnownStream{handle, stream}).stream;
  oldest_stream_ = (oldest_stream_ + 1) % most;
  streams_[oldest_stream_] = {handle, stream};
  return streams_[oldest_stream_].stream;
}

tutti::Tensor ncclComm::tensor(const void* data, tutti::DType dtype, std::size_t count) {
  const std::uint64_t hash = tutti::mix(tutti::mix(0, count), static_cast<std::uint64_t>(dtype));
  KnownLayout& known = layouts_[hash % layouts_.size()];
  // Inputs are only read, whatever their type says.
  void* const address = const_cast<void*>(data);
  if (known.layout && known.count == count && known.dtype == dtype)
    return tutti::Tensor(tutti::TensorView(address, known.layout, device));
  const tutti::TensorView view(address, dtype, {static_cast<std::int64_t>(count)}, device);
  known = {.count = count, .dtype = dtype, .layout = view.layout()};
  return tutti::Tensor(view);
}
