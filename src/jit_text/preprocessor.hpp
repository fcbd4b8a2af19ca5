// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jit_text/choices.hpp"
#include "jit_text/macros.hpp"
#include "jit_text/tokens.hpp"

#include <optional>

namespace tutti::jit_text {

/// The result of preprocessing: macros are replaced; directives and what they exclude are gone.
struct Preprocessed {
  Tokens tokens{};
  Macros macros{};  ///< those at its end
};

/// Preprocesses a text's tokens. What they do not say is asked of `choices`. Returns nothing if an `#error`
/// is reached; included files are not read. Throws Unreadable.
[[nodiscard]] std::optional<Preprocessed> preprocessed(const Tokens& tokens, Choices& choices);

}  // namespace tutti::jit_text
