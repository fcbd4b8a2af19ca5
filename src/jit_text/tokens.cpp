// SPDX-License-Identifier: Apache-2.0
#include "jit_text/tokens.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace tutti::jit_text {
namespace {

constexpr std::array<std::string_view, 5> string_prefixes{"", "u8", "u", "U", "L"};
constexpr std::array<std::string_view, 5> raw_prefixes{"R", "u8R", "uR", "UR", "LR"};
/// The punctuators of several characters that matter, longer ones first.
constexpr std::array<std::string_view, 20> long_marks{"%:%:", "...", "<<=", ">>=", "::", "->", "<<",
                                                      ">>",   "<=",  ">=",  "==",  "!=", "&&", "||",
                                                      "##",   "<:",  ":>",  "<%",  "%>", "%:"};
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> digraphs{
    {{"<:", "["}, {":>", "]"}, {"<%", "{"}, {"%>", "}"}, {"%:", "#"}, {"%:%:", "##"}}};

bool begins_name(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalpha(byte) != 0 || c == '_' || c == '$' || byte >= 0x80;
}
bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool continues_name(char c) {
  return begins_name(c) || is_digit(c);
}
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f';
}

/// The length of a backslash, blanks and line end that begin at `at`, which join a line with the next one; 0
/// if there are none.
std::size_t splice_length(std::string_view text, std::size_t at) {
  if (text[at] != '\\') return 0;
  std::size_t end = at + 1;
  while (end < text.size() && is_blank(text[end])) ++end;
  if (text.substr(end).starts_with("\r\n")) return end + 2 - at;
  return end < text.size() && text[end] == '\n' ? end + 1 - at : 0;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : original_(text) {
    std::size_t line = 1;
    for (std::size_t i = 0; i < text.size();) {
      if (const std::size_t length = splice_length(text, i); length > 0) {
        i += length;
        ++line;
        continue;
      }
      if (text[i] == '\r') {
        if (!text.substr(i).starts_with("\r\n"))
          throw Unreadable("a carriage return without a line feed, which compilers read differently", line);
        ++i;
        continue;
      }
      joined_ += text[i];
      places_.push_back(i);
      lines_.push_back(line);
      if (text[i] == '\n') ++line;
      ++i;
    }
    lines_.push_back(line);
  }

  Tokens read() {
    while (at_ < joined_.size()) {
      if (skip_blank() || skip_comment()) continue;
      const std::size_t begin = at_;
      const TokenKind kind = read_token();
      std::string text = joined_.substr(begin, at_ - begin);
      if (kind == TokenKind::mark) {
        for (const auto& [digraph, meaning] : digraphs) {
          if (text == digraph) {
            text = meaning;
            break;
          }
        }
      }
      tokens_.push_back({kind, std::move(text), lines_[begin], begins_line_, is_spaced_});
      begins_line_ = is_spaced_ = false;
    }
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < joined_.size() ? joined_[at_ + ahead] : '\0';
  }
  [[nodiscard]] std::string_view rest() const { return std::string_view(joined_).substr(at_); }

  bool skip_blank() {
    const char c = peek();
    if (!is_blank(c) && c != '\n' && c != '\0') return false;
    if (c == '\n') begins_line_ = true;
    is_spaced_ = true;
    ++at_;
    return true;
  }

  bool skip_comment() {
    if (rest().starts_with("//")) {
      at_ = std::min(joined_.find('\n', at_), joined_.size());
    } else if (rest().starts_with("/*")) {
      const std::size_t end = joined_.find("*/", at_ + 2);
      if (end == std::string::npos) throw Unreadable("a comment without an end", lines_[at_]);
      at_ = end + 2;
    } else {
      return false;
    }
    return is_spaced_ = true;
  }

  TokenKind read_token() {
    const char c = peek();
    if (c == '"' || c == '\'') return read_literal();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return read_number();
    if (begins_name(c)) {
      const std::size_t begin = at_;
      while (continues_name(peek())) ++at_;
      const auto word = std::string_view(joined_).substr(begin, at_ - begin);
      if (peek() == '"' && std::ranges::find(raw_prefixes, word) != raw_prefixes.end()) return read_raw();
      const bool is_quoted = peek() == '"' || peek() == '\'';
      if (is_quoted && std::ranges::find(string_prefixes, word) != string_prefixes.end())
        return read_literal();
      return TokenKind::name;
    }
    at_ += mark_length();
    return TokenKind::mark;
  }

  [[nodiscard]] std::size_t mark_length() const {
    // "<::" is "<" and "::", unless what follows makes a digraph of it.
    if (rest().starts_with("<::") && peek(3) != ':' && peek(3) != '>') return 1;
    for (const std::string_view mark : long_marks) {
      if (rest().starts_with(mark)) return mark.size();
    }
    return 1;
  }

  TokenKind read_number() {
    while (at_ < joined_.size()) {
      const char c = peek();
      const bool is_exponent = c == 'e' || c == 'E' || c == 'p' || c == 'P';
      const bool has_sign = is_exponent && (peek(1) == '+' || peek(1) == '-');
      const bool is_separator = c == '\'' && continues_name(peek(1));
      if (has_sign || is_separator) {
        at_ += 2;
      } else if (continues_name(c) || c == '.') {
        ++at_;
      } else {
        break;
      }
    }
    return TokenKind::number;
  }

  /// Reads to the closing quote, or to the end of the line: in parts that are left out, prose has
  /// apostrophes.
  TokenKind read_literal() {
    const char quote = peek();
    for (++at_; at_ < joined_.size() && peek() != '\n' && peek() != quote; ++at_) {
      if (peek() == '\\' && peek(1) != '\n') ++at_;
    }
    at_ = std::min(at_, joined_.size());
    if (peek() == quote) read_suffix();
    return TokenKind::literal;
  }

  /// Reads a raw string, in the text as it was given: lines are not joined there.
  TokenKind read_raw() {
    const std::size_t quote = places_[at_];
    const std::size_t bracket = original_.find('(', quote);
    const auto fail = [this] { throw Unreadable("a raw string without an end", lines_[at_]); };
    if (bracket == std::string_view::npos || bracket - quote > 17) fail();
    const auto end_mark = ")" + std::string(original_.substr(quote + 1, bracket - quote - 1)) + "\"";
    const std::size_t end = original_.find(end_mark, bracket);
    if (end == std::string_view::npos) fail();
    const auto last = std::ranges::lower_bound(places_, end + end_mark.size() - 1);
    at_ = static_cast<std::size_t>(last - places_.begin());
    read_suffix();
    return TokenKind::literal;
  }

  /// Reads the closing quote, and the name behind it of a literal that users define.
  void read_suffix() {
    ++at_;
    while (continues_name(peek())) ++at_;
  }

  std::string_view original_;
  std::string joined_{};               ///< with lines that end in a backslash joined
  std::vector<std::size_t> places_{};  ///< of its characters in the original
  std::vector<std::size_t> lines_{};   ///< likewise, and of the end
  std::size_t at_ = 0;
  bool begins_line_ = true;
  bool is_spaced_ = true;
  Tokens tokens_{};
};

}  // namespace

Tokens tokens_of(std::string_view text) {
  return Lexer(text).read();
}

}  // namespace tutti::jit_text
