// SPDX-License-Identifier: Apache-2.0
#include "jit_text/macros.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace tutti::jit_text {
namespace {

constexpr std::size_t most_replaced = 200'000;

/// The literal that `#` makes of an argument. What it says matters to nobody here.
Token in_quotes(const Tokens& tokens, std::size_t line) {
  std::string text = "\"";
  for (const Token& token : tokens) text += token.text;
  return {.kind = TokenKind::literal, .text = text + '"', .line = line};
}

/// Joins two tokens as `##` does; the result replaces the first.
void paste(Token& first, const Token& second) {
  if (first.text.empty()) first.kind = second.kind;
  first.text += second.text;
}

}  // namespace

void Macros::define(std::span<const Token> tokens) {
  if (tokens.empty() || !tokens.front().is_name()) return;  // compilers refuse it
  const Token& name = tokens.front();
  Macro macro;
  std::size_t body = 1;
  if (tokens.size() > 1 && tokens[1].is("(") && !tokens[1].is_spaced) {
    macro.parameters.emplace();
    for (body = 2; body < tokens.size() && !tokens[body].is(")"); ++body) {
      const Token& token = tokens[body];
      if (token.is("...")) macro.is_variadic = true;
      if (token.is("...") && tokens[body - 1].is_name()) continue;
      if (token.is("...")) macro.parameters->emplace_back("__VA_ARGS__");
      if (token.is_name()) macro.parameters->push_back(token.text);
    }
    ++body;
  }
  if (body <= tokens.size())
    macro.body.assign(tokens.begin() + static_cast<std::ptrdiff_t>(body), tokens.end());
  const auto has_options = [](const Token& token) { return token.is("__VA_OPT__"); };
  if (macro.is_variadic && std::ranges::any_of(macro.body, has_options))
    throw Unreadable("__VA_OPT__, which C++17 does not have and compilers read differently", name.line);
  macros_[name.text] = std::move(macro);
}

/// Takes the arguments from the end of `rest`, which is in reverse. Nothing if no bracket follows the name.
std::optional<Macros::Arguments> Macros::arguments_of(const Macro& macro, const Token& name, Tokens& rest) {
  if (rest.empty() || !rest.back().is("(")) return std::nullopt;
  rest.pop_back();
  Arguments arguments(1);
  int open = 1;
  while (!rest.empty()) {
    Token token = std::move(rest.back());
    rest.pop_back();
    if (token.is("(")) ++open;
    if (token.is(")") && --open == 0) return arguments;
    const bool is_last = macro.is_variadic && arguments.size() == macro.parameters->size();
    if (token.is(",") && open == 1 && !is_last) {
      arguments.emplace_back();
    } else {
      arguments.back().push_back(std::move(token));
    }
  }
  throw Unreadable("the macro " + name.text + ", whose arguments do not end before the next directive",
                   name.line);
}

Tokens Macros::replacement(const Macro& macro, const Token& name, const Arguments& arguments,
                           Effort effort) const {
  const auto argument_of = [&](const Token& token) -> const Tokens* {
    if (!macro.parameters || !token.is_name()) return nullptr;
    static const Tokens none;
    const auto found = std::ranges::find(*macro.parameters, token.text);
    if (found == macro.parameters->end()) return nullptr;
    const auto index = static_cast<std::size_t>(found - macro.parameters->begin());
    return index < arguments.size() ? &arguments[index] : &none;
  };
  // Each argument is expanded once: nested ones would take twice as long at every level.
  std::map<const Tokens*, Tokens> expanded;
  const auto expansion_of = [&](const Tokens& argument) -> const Tokens& {
    const auto [found, is_new] = expanded.try_emplace(&argument);
    if (is_new) found->second = expand(argument, {effort.depth + 1, effort.replaced});
    return found->second;
  };
  const auto is_rest = [&](const Token& token) {
    return macro.is_variadic && token.is_name() && token.text == macro.parameters->back();
  };
  Tokens made;
  bool pastes = false;
  for (std::size_t i = 0; i < macro.body.size(); ++i) {
    const Token& token = macro.body[i];
    if (token.is("##") && i > 0) {
      pastes = true;
      continue;
    }
    const bool is_pasted = pastes || (i + 1 < macro.body.size() && macro.body[i + 1].is("##"));
    Tokens part{token};
    if (token.is("#") && macro.parameters && i + 1 < macro.body.size() &&
        argument_of(macro.body[i + 1]) != nullptr) {
      part = {in_quotes(*argument_of(macro.body[++i]), name.line)};
    } else if (const Tokens* const argument = argument_of(token)) {
      part = is_pasted ? *argument : expansion_of(*argument);
      // A comma is not pasted to the rest of the arguments, but is gone where there is none.
      if (pastes && is_rest(token) && !made.empty() && made.back().is(",")) {
        pastes = false;
        if (part.empty()) made.pop_back();
      }
      // A placeholder for what is pasted to nothing.
      if (is_pasted && part.empty()) part = {Token{.line = name.line}};
    }
    auto first = part.begin();
    if (std::exchange(pastes, false) && !made.empty() && first != part.end()) paste(made.back(), *first++);
    made.insert(made.end(), first, part.end());
  }
  std::erase_if(made, [](const Token& token) { return token.text.empty(); });
  for (Token& token : made) {
    token.line = name.line;
    token.hidden_from.insert(token.hidden_from.end(), name.hidden_from.begin(), name.hidden_from.end());
    token.hidden_from.push_back(name.text);
    effort.replaced += token.hidden_from.size();
  }
  return made;
}

Tokens Macros::expand(std::span<const Token> tokens) const {
  std::size_t replaced = 0;
  return expand(tokens, {0, replaced});
}

Tokens Macros::expand(std::span<const Token> tokens, Effort effort) const {
  constexpr int deepest = 50;
  Tokens rest(tokens.rbegin(), tokens.rend());
  Tokens made;
  while (!rest.empty()) {
    Token token = std::move(rest.back());
    rest.pop_back();
    const auto macro = token.is_name() ? macros_.find(token.text) : macros_.end();
    if (macro == macros_.end() || !macro->second ||
        std::ranges::find(token.hidden_from, token.text) != token.hidden_from.end()) {
      made.push_back(std::move(token));
      continue;
    }
    std::optional<Arguments> arguments(std::in_place);
    if (macro->second->parameters) arguments = arguments_of(*macro->second, token, rest);
    if (!arguments) {
      made.push_back(std::move(token));
      continue;
    }
    const Tokens body = replacement(*macro->second, token, *arguments, effort);
    ++effort.replaced;
    if (effort.depth > deepest || effort.replaced > most_replaced)
      throw Unreadable("the macro " + token.text + ", which becomes too much to read", token.line);
    rest.insert(rest.end(), body.rbegin(), body.rend());
  }
  return made;
}

}  // namespace tutti::jit_text
