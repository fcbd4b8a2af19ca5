// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace tutti::transport::team {

/// What a rank is built from. All versions of the library tell it first, in this form.
struct BuildMark {
  std::array<char, 56> version{};
  std::uint64_t layout = 0;  ///< of all that ranks share

  [[nodiscard]] static BuildMark own();
  [[nodiscard]] std::string string() const;
  friend bool operator==(const BuildMark&, const BuildMark&) = default;
};
static_assert(sizeof(BuildMark) == 64);

/// Collective. Throws Error(invalid_argument) on all ranks, with both marks, if a rank's build is another one
/// than that of rank 0: they would read different things from the same bytes.
void require_same_build(Exchange& exchange);

}  // namespace tutti::transport::team
