// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::nccl_api {

/// Makes streams of its own the current ones of devices: what other calls exchange at the same time, in
/// whatever order, is not waited for.
class OwnStreams {
 public:
  explicit OwnStreams(std::span<const Device> devices) {
    for (const Device device : devices) guards_.emplace_back(std::in_place, Stream(device));
  }
  OwnStreams(const OwnStreams&) = delete;
  OwnStreams& operator=(const OwnStreams&) = delete;
  /// Makes what was current before current again: each guard restores what it has found.
  ~OwnStreams() {
    while (!guards_.empty()) guards_.pop_back();
  }

 private:
  std::deque<std::optional<StreamGuard>> guards_;
};

/// Gathers a value of every rank through the communicator, in order of ranks. `mine` are those of the local
/// members. Waits for all ranks. Throws what the communicator throws.
template <class T>
[[nodiscard]] std::vector<T> gather_values(Communicator& communicator, std::span<const T> mine) {
  const auto bytes = static_cast<std::int64_t>(sizeof(T));
  const auto ranks = static_cast<std::size_t>(communicator.member_count());
  std::vector<Tensor> inputs;
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const Device device = communicator.devices()[i];
    const auto* const values = reinterpret_cast<const std::uint8_t*>(&mine[i]);
    inputs.push_back(tensor(std::span(values, sizeof(T)), {.device = device}));
    out.push_back(empty({bytes * communicator.member_count()}, {.dtype = DType::uint8, .device = device}));
  }
  communicator.all_gather(inputs, out);
  const std::vector<std::byte> gathered = out.front().to_bytes();
  communicator.check();
  std::vector<T> all(ranks);
  std::memcpy(all.data(), gathered.data(), gathered.size());
  return all;
}

}  // namespace tutti::nccl_api
