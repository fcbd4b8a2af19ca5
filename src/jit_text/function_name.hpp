// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tutti {

/// The name of the function template that comes last in `source`, with its namespaces. The text is read as
/// compilers read it: comments and strings say nothing, macros are replaced, conditions are evaluated.
/// Throws Error(invalid_argument), in the name of `function`, if there is none, if another function has its
/// body behind it, and if it depends on what the text does not say.
[[nodiscard]] std::string jit_function_name(std::string_view source, std::string_view function);

}  // namespace tutti
