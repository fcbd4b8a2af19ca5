// SPDX-License-Identifier: Apache-2.0
#include "perf/beside/beside_bench.hpp"

#include "tutti/cuda_libraries.hpp"
#include "tutti/tutti.hpp"

#include <fmt/format.h>

namespace tutti::perf {

Product::Product(Device device, std::int64_t order)
    : stream_(device),
      order_(order),
      left_(randn({order, order}, {.dtype = DType::bfloat16, .device = device})),
      right_(randn({order, order}, {.dtype = DType::bfloat16, .device = device})),
      result_(empty({order, order}, {.dtype = DType::bfloat16, .device = device})) {
  synchronize(device);
}

void Product::enqueue() const {
  const StreamGuard guard(stream_);
  const float one = 1;
  const float zero = 0;
  const int n = static_cast<int>(order_);
  const cublasStatus_t status =
      cublasGemmEx(current_blas_handle(stream_.device()), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one,
                   left_.data(), CUDA_R_16BF, n, right_.data(), CUDA_R_16BF, n, &zero, result_.data(),
                   CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorCode::device_failure, fmt::format("cublasGemmEx: {}", cublasGetStatusString(status)));
}

Bench::Bench(std::int64_t order, std::uint64_t bytes) {
  const auto elements = static_cast<std::int64_t>(bytes / size_of(DType::float32));
  for (int device = 0; device < device_count(); ++device) {
    devices_.emplace_back(device);
    products_.push_back(std::make_unique<Product>(Device(device), order));
    streams_.emplace_back(Device(device), -1);
    const TensorOptions options{.device = Device(device)};
    // Whole numbers, so that every order of adding comes to the same.
    inputs_.push_back(tutti::full({elements}, device + 1, options));
    sums_.push_back(tutti::empty({elements}, options));
    gathered_.push_back(tutti::empty({elements / device_count() * device_count()}, options));
    parts_.push_back(inputs_.back().narrow(0, 0, elements / device_count()));
    copies_.push_back(tutti::empty({elements}, options));
  }
  for (const Device device : devices_) synchronize(device);
}

Contender Bench::product() const {
  Contender contender;
  for (const auto& product : products_) contender.streams.push_back(product->stream());
  contender.enqueue = [this] {
    for (const auto& product : products_) product->enqueue();
  };
  return contender;
}

std::vector<std::vector<std::byte>> Bench::products() const {
  std::vector<std::vector<std::byte>> all;
  for (const auto& product : products_) all.push_back(product->result().to_bytes());
  return all;
}

void Bench::for_each_collective(const std::function<void(const Measured&)>& visit) {
  const auto for_all = [this](const std::vector<std::byte>& bytes) {
    return std::vector<std::vector<std::byte>>(devices_.size(), bytes);
  };
  for (const std::optional<int> bound : {std::optional<int>{}, {64}, {32}, {16}, {8}, {4}, {2}}) {
    Communicator communicator({.devices = devices_, .multiprocessors = bound});
    visit(Measured{"all_reduce_add",
                   bound,
                   {streams_, [&] { communicator.all_reduce_add(inputs_, sums_, streams_); }},
                   sums_,
                   for_all(sum_of_inputs())});
    visit(Measured{"all_gather",
                   bound,
                   {streams_, [&] { communicator.all_gather(parts_, gathered_, streams_); }},
                   gathered_,
                   for_all(gathered_inputs())});
  }
  for (const std::optional<int> bound : {std::optional<int>{}, {16}, {0}}) {
    visit(Measured{"broadcast",
                   bound,
                   {streams_, [&] { broadcast_inputs(bound); }},
                   copies_,
                   for_all(inputs_[0].to_bytes())});
  }
}

std::vector<std::byte> Bench::sum_of_inputs() const {
  const double count = static_cast<double>(devices_.size());
  return tutti::full(inputs_[0].sizes(), count * (count + 1) / 2).to_bytes();
}

std::vector<std::byte> Bench::gathered_inputs() const {
  std::vector<std::byte> all;
  for (const Tensor& part : parts_) {
    const std::vector<std::byte> bytes = part.to_bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void Bench::broadcast_inputs(std::optional<int> bound) const {
  std::vector<std::unique_ptr<StreamGuard>> guards;
  for (const Stream& stream : streams_) guards.push_back(std::make_unique<StreamGuard>(stream));
  tutti::broadcast(inputs_[0], copies_, {.multiprocessors = bound});
}

}  // namespace tutti::perf
