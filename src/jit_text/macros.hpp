// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "jit_text/tokens.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::jit_text {

/// Stores the macros that a text has defined so far.
class Macros {
 public:
  /// Defines a macro from the tokens after `#define`.
  void define(std::span<const Token> tokens);
  void undefine(const std::string& name) { macros_[name].reset(); }
  /// Returns true if the text has defined the name, false if it has undefined it, and nothing if it has done
  /// neither.
  [[nodiscard]] std::optional<bool> has(const std::string& name) const {
    const auto found = macros_.find(name);
    return found == macros_.end() ? std::nullopt : std::optional(found->second.has_value());
  }

  /// Returns `tokens` with all macros replaced. Throws Unreadable if a macro's arguments do not end, or if
  /// the expansion exceeds any reasonable size.
  [[nodiscard]] Tokens expand(std::span<const Token> tokens) const;

 private:
  struct Macro {
    std::optional<std::vector<std::string>> parameters{};  ///< nothing if it is used without brackets
    bool is_variadic = false;  ///< the last parameter takes all remaining arguments
    Tokens body{};
  };
  using Arguments = std::vector<Tokens>;
  /// The cost of one expansion, including those of its arguments.
  struct Effort {
    int depth;
    std::size_t& replaced;  ///< tokens so far, each counted as often as it is hidden from a macro
  };

  [[nodiscard]] Tokens expand(std::span<const Token> tokens, Effort effort) const;
  [[nodiscard]] static std::optional<Arguments> arguments_of(const Macro& macro, const Token& name,
                                                             Tokens& rest);
  [[nodiscard]] Tokens replacement(const Macro& macro, const Token& name, const Arguments& arguments,
                                   Effort effort) const;

  std::map<std::string, std::optional<Macro>> macros_{};  ///< nothing for undefined ones
};

}  // namespace tutti::jit_text
