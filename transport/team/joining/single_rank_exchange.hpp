// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::transport::team {

/// An exchange for a team of one process.
class SingleRankExchange final : public Exchange {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
};

}  // namespace tutti::transport::team
