// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jit_text/choices.hpp"
#include "jit_text/macros.hpp"
#include "jit_text/tokens.hpp"

#include <span>
#include <string>

namespace tutti::jit_text {

/// Evaluates the condition behind `#if` or `#elif`. What neither the text nor the language says, such as
/// whether a macro is predefined, is asked of `choices`.
[[nodiscard]] bool holds(std::span<const Token> condition, const Macros& macros, Choices& choices);
/// Tells likewise whether a macro is defined.
[[nodiscard]] bool is_defined(const std::string& name, const Macros& macros, Choices& choices);

}  // namespace tutti::jit_text
