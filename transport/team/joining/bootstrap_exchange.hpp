// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"
#include "tutti/exchange.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace tutti::transport::team {

/// Wraps the exchange over which ranks form a team: bounds its waits by the team's timeout, and adds to
/// errors about missing ranks the step that they have not done.
class BootstrapExchange final : public Exchange {
 public:
  BootstrapExchange(Exchange& exchange, std::chrono::milliseconds timeout) : exchange_(exchange) {
    exchange.limit_waits(timeout);
  }

  /// Names the step that all ranks do next, as in "while the ranks ...".
  void begin(std::string_view step) noexcept { step_ = step; }

  [[nodiscard]] int rank() const override { return exchange_.rank(); }
  [[nodiscard]] int size() const override { return exchange_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    named([&] { exchange_.all_gather(mine, all); });
  }
  [[nodiscard]] std::unique_ptr<Network> network() override {
    std::unique_ptr<Network> network;
    named([&] { network = exchange_.network(); });
    return network;
  }

 private:
  template <class Work>
  void named(const Work& work) const {
    try {
      work();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout && error.code() != ErrorCode::peer_unavailable) throw;
      constexpr std::string_view prefix = "Communicator: ";
      std::string_view what = error.what();
      if (what.starts_with(prefix)) what.remove_prefix(prefix.size());
      throw Error(error.code(), fmt::format("{}while the ranks {}: {}", prefix, step_, what),
                  error.native_code());
    }
  }

  Exchange& exchange_;
  std::string_view step_ = "come together";
};

}  // namespace tutti::transport::team
