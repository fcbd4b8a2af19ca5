// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace tutti::transport::team {

/// Identifies the build of a rank's library. Every version of the library exchanges it first, in this form.
struct BuildMark {
  std::array<char, 56> version{};
  std::uint64_t layout = 0;  ///< hash of the layout of all shared structures

  [[nodiscard]] static BuildMark own();
  [[nodiscard]] std::string string() const;
  friend bool operator==(const BuildMark&, const BuildMark&) = default;
};
static_assert(sizeof(BuildMark) == 64);

/// Throws Error(invalid_argument) on all ranks, with both marks, if a rank's build differs from rank 0's:
/// they would read different things from the same bytes. Collective.
void require_same_build(Exchange& exchange);

}  // namespace tutti::transport::team
