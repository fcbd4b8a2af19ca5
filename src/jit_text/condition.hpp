// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jit_text/choices.hpp"
#include "jit_text/macros.hpp"
#include "jit_text/tokens.hpp"

#include <span>
#include <string>

namespace tutti::jit_text {

/// Evaluates the condition after `#if` or `#elif`. What neither the text nor the language says, such as
/// whether a macro is predefined, is asked of `choices`.
[[nodiscard]] bool holds(std::span<const Token> condition, const Macros& macros, Choices& choices);
/// Returns true if a macro is defined; asks `choices` if the text does not say.
[[nodiscard]] bool is_defined(const std::string& name, const Macros& macros, Choices& choices);

}  // namespace tutti::jit_text
