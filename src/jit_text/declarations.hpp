// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jit_text/choices.hpp"
#include "jit_text/tokens.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::jit_text {

/// A function that a text declares outside of classes.
struct Function {
  std::string name{};  ///< with its namespaces, as it can be called
  std::size_t line = 0;
  bool is_template = false;
  bool is_defined = false;  ///< it has a body
};

/// Returns all functions and function templates of a preprocessed text, in its order, without operators,
/// specialisations and instantiations (whose templates have been declared). Whether a `<` among template
/// arguments is a bracket depends on what the name before it is: that is asked of `choices`. Throws
/// Unreadable.
[[nodiscard]] std::vector<Function> functions_of(const Tokens& tokens, Choices& choices);

}  // namespace tutti::jit_text
