// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

namespace tutti::test {

/// Forwards every call to another exchange. Tests derive exchanges from it in which something goes wrong.
class ForwardingExchange : public Exchange {
 public:
  explicit ForwardingExchange(Exchange& exchange) : exchange_(exchange) {}

  [[nodiscard]] int rank() const override { return exchange_.rank(); }
  [[nodiscard]] int size() const override { return exchange_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    exchange_.all_gather(mine, all);
  }
  void limit_waits(std::chrono::milliseconds timeout) override { exchange_.limit_waits(timeout); }
  [[nodiscard]] std::unique_ptr<Network> network() override { return exchange_.network(); }

 private:
  Exchange& exchange_;
};

/// Forwards everything but messages: there is no network.
class ExchangeWithoutNetwork final : public ForwardingExchange {
 public:
  using ForwardingExchange::ForwardingExchange;
  [[nodiscard]] std::unique_ptr<Network> network() override { return nullptr; }
};

}  // namespace tutti::test
