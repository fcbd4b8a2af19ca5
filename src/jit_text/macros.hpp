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

/// The macros that a text has defined so far.
class Macros {
 public:
  /// Takes the tokens behind `#define`.
  void define(std::span<const Token> tokens);
  void undefine(const std::string& name) { macros_[name].reset(); }
  /// Tells whether the text has defined or undefined the name; nothing if it has done neither.
  [[nodiscard]] std::optional<bool> has(const std::string& name) const {
    const auto found = macros_.find(name);
    return found == macros_.end() ? std::nullopt : std::optional(found->second.has_value());
  }

  /// `tokens` with all macros replaced. Throws Unreadable if one's arguments do not end, or where there are
  /// more than a text can mean.
  [[nodiscard]] Tokens expand(std::span<const Token> tokens) const;

 private:
  struct Macro {
    std::optional<std::vector<std::string>> parameters{};  ///< nothing if it is used without brackets
    bool is_variadic = false;                              ///< the last one takes all that is left
    Tokens body{};
  };
  using Arguments = std::vector<Tokens>;
  /// What one expansion takes, with those of arguments within it.
  struct Effort {
    int depth;
    std::size_t& replaced;  ///< tokens so far, each as often as it is hidden from a macro
  };

  [[nodiscard]] Tokens expand(std::span<const Token> tokens, Effort effort) const;
  [[nodiscard]] static std::optional<Arguments> arguments_of(const Macro& macro, const Token& name,
                                                             Tokens& rest);
  [[nodiscard]] Tokens replacement(const Macro& macro, const Token& name, const Arguments& arguments,
                                   Effort effort) const;

  std::map<std::string, std::optional<Macro>> macros_{};  ///< nothing of those that are undefined
};

}  // namespace tutti::jit_text
