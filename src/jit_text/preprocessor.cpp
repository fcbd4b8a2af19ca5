// SPDX-License-Identifier: Apache-2.0
#include "jit_text/preprocessor.hpp"

#include "jit_text/condition.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::jit_text {
namespace {

class Preprocessor {
 public:
  explicit Preprocessor(Choices& choices) : choices_(choices) {
    result_.macros.define(tokens_of("__cplusplus 201703L"));
  }

  std::optional<Preprocessed> read(std::span<const Token> tokens) {
    std::size_t at = 0;
    while (at < tokens.size() && !has_error_) {
      const bool is_directive = is_hash(tokens[at]);
      std::size_t end = at + 1;
      while (end < tokens.size() && !(is_directive ? tokens[end].begins_line : is_hash(tokens[end]))) ++end;
      const auto part = tokens.subspan(at, end - at);
      if (is_directive) {
        direct(part.subspan(1), part.front().line);
      } else if (is_active()) {
        add(result_.macros.expand(part));
      }
      at = end;
    }
    if (has_error_) return std::nullopt;
    if (!groups_.empty()) throw Unreadable("a conditional without #endif", groups_.back().line);
    return std::move(result_);
  }

 private:
  struct Group {
    std::size_t line = 0;
    bool is_active = false;
    bool is_done = false;  ///< one of its parts has been taken, or none is to be
  };

  static bool is_hash(const Token& token) { return token.begins_line && token.is("#"); }
  [[nodiscard]] bool is_active() const { return groups_.empty() || groups_.back().is_active; }

  /// Adds tokens, without the pragmas among them.
  void add(const Tokens& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_pragma = tokens[i].is("_Pragma") && i + 3 < tokens.size() && tokens[i + 1].is("(") &&
                             tokens[i + 2].kind == TokenKind::literal && tokens[i + 3].is(")");
      if (!is_pragma) {
        result_.tokens.push_back(tokens[i]);
        continue;
      }
      require_no_macros(tokens[i + 2]);
      i += 3;
    }
  }

  /// A pragma that brings older macros back is not carried out here.
  static void require_no_macros(const Token& pragma) {
    for (const std::string name : {"push_macro", "pop_macro"}) {
      if (pragma.text.find(name) != std::string::npos)
        throw Unreadable("a pragma " + name + ", after which it is not known which macros there are",
                         pragma.line);
    }
  }

  void direct(std::span<const Token> words, std::size_t line) {
    if (words.empty()) return;
    const std::string& name = words.front().text;
    const auto rest = words.subspan(1);
    if (name == "if" || name == "ifdef" || name == "ifndef") return open(name, rest, line);
    if (name == "elif" || name == "else" || name == "endif") return go_on(name, rest, line);
    if (name == "elifdef" || name == "elifndef")
      throw Unreadable("#" + name + ", which C++17 does not have and compilers read differently", line);
    if (!is_active()) return;
    if (name == "define") result_.macros.define(rest);
    if (name == "undef" && !rest.empty()) result_.macros.undefine(rest.front().text);
    if (name == "error") has_error_ = true;
    if (name == "pragma" && !rest.empty()) require_no_macros(rest.front());
  }

  void open(const std::string& name, std::span<const Token> condition, std::size_t line) {
    const bool is_read = is_active();
    const bool is_taken = is_read && (name == "if" ? holds(condition, result_.macros, choices_)
                                                   : has(condition) == (name == "ifdef"));
    groups_.push_back({line, is_taken, is_taken || !is_read});
  }

  void go_on(const std::string& name, std::span<const Token> condition, std::size_t line) {
    if (groups_.empty()) throw Unreadable("#" + name + " without #if", line);
    Group& group = groups_.back();
    if (name == "endif") return groups_.pop_back();
    group.is_active = !group.is_done && (name == "else" || holds(condition, result_.macros, choices_));
    if (group.is_active) group.is_done = true;
  }

  bool has(std::span<const Token> macro) {
    return !macro.empty() && is_defined(macro.front().text, result_.macros, choices_);
  }

  Choices& choices_;
  Preprocessed result_{};
  std::vector<Group> groups_{};
  bool has_error_ = false;
};

}  // namespace

std::optional<Preprocessed> preprocessed(const Tokens& tokens, Choices& choices) {
  return Preprocessor(choices).read(tokens);
}

}  // namespace tutti::jit_text
