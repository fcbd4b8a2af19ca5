// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tutti {

/// Returns the name of the last function template in `source`, with its namespaces. The text is read as
/// compilers read it: comments and strings are skipped, macros are replaced, conditions are evaluated. Throws
/// Error(invalid_argument), naming `function`, if there is none, if another function is defined after it, or
/// if it depends on what the text does not say.
[[nodiscard]] std::string jit_function_name(std::string_view source, std::string_view function);

}  // namespace tutti
