// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::jit_text {

/// Reports that a text cannot be read. The message names the line, and completes "source has".
class Unreadable : public std::runtime_error {
 public:
  Unreadable(const std::string& what, std::size_t line)
      : std::runtime_error(what + " (line " + std::to_string(line) + ")") {}
};

enum class TokenKind : std::uint8_t { name, number, literal, mark };

/// A preprocessing token of C++17: an identifier or keyword, a number, a string or character, or a
/// punctuator. Digraphs are replaced.
struct Token {
  TokenKind kind = TokenKind::mark;
  std::string text{};
  std::size_t line = 0;
  bool begins_line = false;                ///< no other token stands before it on its line
  bool is_spaced = false;                  ///< a blank or a comment stands before it
  std::vector<std::string> hidden_from{};  ///< macros that do not replace it, as it comes from them

  [[nodiscard]] bool is(std::string_view wanted) const noexcept {
    return kind != TokenKind::literal && text == wanted;
  }
  [[nodiscard]] bool is_name() const noexcept { return kind == TokenKind::name; }
};
using Tokens = std::vector<Token>;

/// Splits a text into tokens, by the first three phases of translation: lines that end in a backslash are
/// joined, except in raw strings, and comments are blanks. Throws Unreadable for comments and raw strings
/// without an end.
[[nodiscard]] Tokens tokens_of(std::string_view text);

}  // namespace tutti::jit_text
