// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <string_view>

#include <fmt/format.h>

namespace tutti {

/// Throws Error(invalid_argument) unless `value` is an enumerator, numbered from 0 to `last`. The message
/// begins with `function` and calls the value `argument`.
template <class Enum>
void require_enumerator(Enum value, Enum last, std::string_view function, std::string_view argument) {
  if (static_cast<unsigned>(value) <= static_cast<unsigned>(last)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} is {}, expected one of the enumerators, 0 to {}", function, argument,
                          static_cast<unsigned>(value), static_cast<unsigned>(last)));
}

}  // namespace tutti
