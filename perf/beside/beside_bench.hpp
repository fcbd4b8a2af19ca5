// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/beside/contention.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Collectives of all devices of this process, and matrix products that go on beside them.
namespace tutti::perf {

/// A product of two square matrices of bfloat16 on a stream of its own: what a layer of a model takes.
class Product {
 public:
  Product(Device device, std::int64_t order);

  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }
  [[nodiscard]] const Tensor& result() const noexcept { return result_; }

  /// Throws Error(device_failure) with what cuBLAS says.
  void enqueue() const;

 private:
  Stream stream_;
  std::int64_t order_;
  Tensor left_;
  Tensor right_;
  Tensor result_;
};

/// One collective of all devices, with its bound.
struct Measured {
  std::string operation;
  std::optional<int> multiprocessors;
  Contender contender;
  std::vector<Tensor> outputs;
  std::vector<std::vector<std::byte>> expected;  ///< of the outputs
};

/// The devices, their operands, and what is made of these.
class Bench {
 public:
  /// Operands of `bytes` of float32 on each device, and products of matrices of that order.
  Bench(std::int64_t order, std::uint64_t bytes);

  /// One on each device.
  [[nodiscard]] Contender product() const;
  /// The results of the last ones, once they are done.
  [[nodiscard]] std::vector<std::vector<std::byte>> products() const;
  /// Calls `visit` for each collective and bound. There is one communicator at a time, as each
  /// takes its share of the devices.
  void for_each_collective(const std::function<void(const Measured&)>& visit);

 private:
  [[nodiscard]] std::vector<std::byte> sum_of_inputs() const;
  [[nodiscard]] std::vector<std::byte> gathered_inputs() const;
  void broadcast_inputs(std::optional<int> bound) const;

  std::vector<Device> devices_;
  std::vector<std::unique_ptr<Product>> products_;
  std::vector<Stream> streams_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> parts_;  ///< of the inputs
  std::vector<Tensor> sums_;
  std::vector<Tensor> gathered_;
  std::vector<Tensor> copies_;
};

}  // namespace tutti::perf
