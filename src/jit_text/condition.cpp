// SPDX-License-Identifier: Apache-2.0
#include "jit_text/condition.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::jit_text {
namespace {

using Value = std::optional<std::int64_t>;  ///< nothing if it is not known

/// Reads a decimal number, or 0. Others are not known: no condition of a text needs them.
Value number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (failure != std::errc{} || (value != 0 && text.front() == '0')) return std::nullopt;
  const bool is_plain = suffix.find_first_not_of("uUlL") == std::string_view::npos;
  return is_plain ? Value(value) : std::nullopt;
}

/// Evaluates conditions of numbers, comparisons, `!`, `&&` and `||`. The value of others is not known.
class Evaluator {
 public:
  explicit Evaluator(std::span<const Token> tokens) : tokens_(tokens) {}

  Value read() {
    const Value value = read_any();
    return at_ == tokens_.size() ? value : std::nullopt;
  }

 private:
  bool take(std::string_view mark, std::string_view word = {}) {
    if (at_ == tokens_.size()) return false;
    const bool is_there = tokens_[at_].is(mark) || (!word.empty() && tokens_[at_].is(word));
    if (is_there) ++at_;
    return is_there;
  }

  Value read_any() {
    Value value = read_all();
    while (take("||", "or")) {
      const Value other = read_all();
      if ((value && *value != 0) || (other && *other != 0)) {
        value = 1;
      } else if (!value || !other) {
        value.reset();
      }
    }
    return value;
  }

  Value read_all() {
    Value value = read_comparison();
    while (take("&&", "and")) {
      const Value other = read_comparison();
      if ((value && *value == 0) || (other && *other == 0)) {
        value = 0;
      } else if (value && other) {
        value = 1;
      } else {
        value.reset();
      }
    }
    return value;
  }

  Value read_comparison() {
    const Value left = read_one();
    for (const std::string_view mark : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!take(mark)) continue;
      const Value right = read_one();
      if (!left || !right) return std::nullopt;
      if (mark == "==") return *left == *right;
      if (mark == "!=") return *left != *right;
      if (mark == "<=") return *left <= *right;
      if (mark == ">=") return *left >= *right;
      return mark == "<" ? *left < *right : *left > *right;
    }
    return left;
  }

  Value read_one() {
    bool negates = false;
    bool is_truth = false;
    while (take("!", "not")) {
      negates = !negates;
      is_truth = true;
    }
    const Value value = read_operand();
    if (!value || !is_truth) return value;
    return (*value == 0) == negates ? 1 : 0;
  }

  Value read_operand() {
    if (depth_ < deepest && take("(")) {
      ++depth_;
      const Value value = read_any();
      --depth_;
      return take(")") ? value : std::nullopt;
    }
    if (at_ == tokens_.size()) return std::nullopt;
    const Token& token = tokens_[at_++];
    if (token.is("true")) return 1;
    if (token.is("false")) return 0;
    return token.kind == TokenKind::number ? number_in(token.text) : std::nullopt;
  }

  static constexpr int deepest = 100;

  std::span<const Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

/// Gives the condition with `defined NAME` and `defined(NAME)` as numbers.
Tokens with_definitions(std::span<const Token> condition, const Macros& macros, Choices& choices) {
  Tokens made;
  for (std::size_t i = 0; i < condition.size(); ++i) {
    const auto is_here = [&](std::size_t at, std::string_view mark) {
      return at < condition.size() && condition[at].is(mark);
    };
    const std::size_t name = i + (is_here(i + 1, "(") ? 2 : 1);
    const bool is_asked = condition[i].is("defined") && name < condition.size() && condition[name].is_name();
    if (!is_asked) {
      made.push_back(condition[i]);
      continue;
    }
    const bool is_true = is_defined(condition[name].text, macros, choices);
    made.push_back({TokenKind::number, is_true ? "1" : "0", condition[i].line});
    i = name == i + 2 ? name + 1 : name;
  }
  return made;
}

}  // namespace

bool is_defined(const std::string& name, const Macros& macros, Choices& choices) {
  const std::optional<bool> known = macros.has(name);
  return known ? *known : choices.ask("defined " + name);
}

bool holds(std::span<const Token> condition, const Macros& macros, Choices& choices) {
  const Tokens tokens = macros.expand(with_definitions(condition, macros, choices));
  if (const Value value = Evaluator(tokens).read()) return *value != 0;
  std::string question;
  for (const Token& token : tokens) question += ' ' + token.text;
  return choices.ask("if" + question);
}

}  // namespace tutti::jit_text
