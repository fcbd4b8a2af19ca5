// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/rounding.hpp"
#include "device/runtime.hpp"
#include "support/errors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

/// Memory that the program has allocated itself, by `register_memory` and without it.
namespace tutti::test {

/// A number of int32 elements that calls read where they lie: more than 4 MiB.
inline constexpr std::int64_t own_count = 1'200'000;

/// The two ways in which a program gets memory of a device.
enum class Origin : std::uint8_t { block, pieces };

/// A device's memory as a program gets it without tutti.
class OwnMemory {
 public:
  explicit OwnMemory(int device, Origin origin = Origin::block, std::int64_t elements = own_count)
      : device_(device), elements_(elements), address_(allocate(origin)) {}
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  ~OwnMemory() { free(); }

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements_) * sizeof(std::int32_t);
  }
  [[nodiscard]] std::byte* address() const { return static_cast<std::byte*>(address_); }
  [[nodiscard]] Tensor tensor() const { return tensor(0, elements_); }
  [[nodiscard]] Tensor tensor(std::size_t offset, std::int64_t elements) const {
    return from_blob(address() + offset, {elements}, {.dtype = DType::int32, .device = Device(device_)});
  }
  [[nodiscard]] Tensor full_of(int value) const {
    Tensor tensor = this->tensor();
    tensor.fill_(value);
    return tensor;
  }
  [[nodiscard]] MemoryRegistration registered() const { return register_memory(address_, bytes()); }
  void free() {
    void* const freed = std::exchange(address_, nullptr);
    if (freed == nullptr) return;
    synchronize(device_);
    if (range_ == nullptr) return backend().free_device(device_, freed);
    unmap();
    backend().release_addresses(device_, std::exchange(range_, nullptr), range_bytes_);
  }
  /// Exchanges the memory of pieces for other memory at the same addresses.
  void map_anew() {
    unmap();
    map();
  }

 private:
  static constexpr std::size_t before = 4096;  ///< bytes of the first piece that are not used

  [[nodiscard]] static backend::Backend& backend() { return Runtime::get().backend(); }
  void map() {
    for (std::size_t at = 0; at < range_bytes_; at += page_)
      EXPECT_TRUE(backend().map_pages(device_, range_ + at, page_));
  }
  void unmap() {
    for (std::size_t at = 0; at < range_bytes_; at += page_)
      backend().unmap_pages(device_, range_ + at, page_);
  }
  [[nodiscard]] void* allocate(Origin origin) {
    if (origin == Origin::block) return backend().allocate_device(device_, bytes());
    page_ = backend().page_bytes(device_);
    range_bytes_ = round_up(before + bytes(), page_);
    range_ = static_cast<std::byte*>(backend().reserve_addresses(device_, range_bytes_));
    map();
    return range_ + before;
  }

  int device_;
  std::int64_t elements_;
  std::size_t page_ = 0;
  std::size_t range_bytes_ = 0;
  std::byte* range_ = nullptr;  ///< of memory by pieces
  void* address_;
};

/// The origins as parameters of tests.
[[nodiscard]] inline auto each_origin() {
  return testing::Values(Origin::block, Origin::pieces);
}
[[nodiscard]] inline std::string name_of_origin(const testing::TestParamInfo<Origin>& tested) {
  return tested.param == Origin::block ? "Block" : "Pieces";
}

[[nodiscard]] inline int device_of(const Exchange& exchange) {
  return exchange.rank() % device_count();
}

[[nodiscard]] inline Communicator make(Exchange& exchange, std::optional<bool> opens_foreign_memory = {}) {
  return Communicator(exchange, {.devices = {Device(device_of(exchange))},
                                 .timeout = std::chrono::seconds(30),
                                 .transport = TransportKind::p2p,
                                 .opens_foreign_memory = opens_foreign_memory});
}
/// Makes a communicator whose ranks open one another's memory by themselves. On GPUs, blocks must outlive it.
[[nodiscard]] inline Communicator make_opening(Exchange& exchange) {
  return make(exchange, true);
}

[[nodiscard]] inline bool is_in_place(const Communicator& communicator) {
  const std::string algorithm = communicator.last_plan().algorithm;
  EXPECT_TRUE(mentions(algorithm, {"direct"}));
  return algorithm.find("through stand-ins") == std::string::npos;
}

/// Sums the members' memory in place, which is filled with the ranks' numbers, and expects `sum`.
inline void expect_sum(Communicator& communicator, const OwnMemory& own, int rank, int sum) {
  const Tensor mine = own.full_of(rank);
  communicator.all_reduce({mine}, {mine});
  EXPECT_TRUE(holds(mine, sum));
}

}  // namespace tutti::test
