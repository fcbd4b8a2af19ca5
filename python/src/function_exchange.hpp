// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// Exchanges messages by a function of the program.
class FunctionExchange final : public Exchange {
 public:
  /// `limit_waits` may be None.
  FunctionExchange(int rank, int size, nb::callable all_gather, nb::object limit_waits);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void limit_waits(std::chrono::milliseconds timeout) override;

 private:
  void take(const nb::bytes& bytes, std::size_t rank, std::span<std::byte> all) const;
  [[noreturn]] void refuse(const std::string& what, std::size_t rank) const;

  int rank_;
  int size_;
  nb::callable all_gather_;
  nb::object limit_waits_;
};

}  // namespace tutti::python
