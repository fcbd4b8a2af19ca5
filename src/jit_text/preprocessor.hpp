// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jit_text/choices.hpp"
#include "jit_text/macros.hpp"
#include "jit_text/tokens.hpp"

#include <optional>

namespace tutti::jit_text {

/// A text as compilers read it: its macros replaced, without directives and what these leave out.
struct Preprocessed {
  Tokens tokens{};
  Macros macros{};  ///< those at its end
};

/// Reads a text's tokens. What they alone do not say is asked of `choices`. Nothing if an `#error` comes up;
/// files that it includes are not read. Throws Unreadable.
[[nodiscard]] std::optional<Preprocessed> preprocessed(const Tokens& tokens, Choices& choices);

}  // namespace tutti::jit_text
