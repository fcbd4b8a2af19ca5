// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"

#include <string_view>

namespace tutti::perf {

/// Takes what the library does, and the names of other libraries. Throws UsageError, a sentence that begins
/// with `where` and names all types there are.
[[nodiscard]] DType parse_element_type(std::string_view text, std::string_view where);

}  // namespace tutti::perf
