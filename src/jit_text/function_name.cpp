// SPDX-License-Identifier: Apache-2.0
#include "jit_text/function_name.hpp"

#include "jit_text/choices.hpp"
#include "jit_text/declarations.hpp"
#include "jit_text/preprocessor.hpp"
#include "jit_text/tokens.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <ranges>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace tutti {
namespace {

using jit_text::Choices;
using jit_text::Function;
using jit_text::Tokens;
using jit_text::Unreadable;

/// The outcome of one reading of a text: the name of its function, or what is there in its place.
struct Reading {
  std::string name{};
  std::string problem{};
  bool has_template = true;
  friend bool operator==(const Reading&, const Reading&) = default;
};

/// Tells whether the whole text is refused for the problem of one reading.
bool is_refused(const Reading& reading) {
  return reading.has_template && !reading.problem.empty();
}

bool is_defined_template(const Function& function) {
  return function.is_template && function.is_defined;
}

std::string in_words(const Function& function) {
  return fmt::format("\"{}\" (line {})", function.name, function.line);
}

/// Finds a declaration without a body, before `functions[at]`, of the same function.
std::optional<std::size_t> declared_before(std::span<const Function> functions, std::size_t at) {
  const auto before = functions.first(at);
  const auto found = std::ranges::find_if(before, [&](const Function& one) {
    return !one.is_defined && one.name == functions[at].name && one.is_template == functions[at].is_template;
  });
  if (found == before.end()) return std::nullopt;
  return static_cast<std::size_t>(found - before.begin());
}

Reading without_template(std::span<const Function> functions) {
  std::string what = "no function template with a body";
  const auto plain = std::ranges::find_if(functions, &Function::is_defined);
  if (plain != functions.end()) what += ", but the function " + in_words(*plain);
  return {.problem = std::move(what), .has_template = false};
}

Reading reading_of(std::span<const Function> functions) {
  const auto from_end = std::ranges::find_if(functions.rbegin(), functions.rend(), is_defined_template);
  if (from_end == functions.rend()) return without_template(functions);
  const auto last = static_cast<std::size_t>(functions.rend() - from_end) - 1;
  for (std::size_t i = last + 1; i < functions.size(); ++i) {
    if (!functions[i].is_defined || declared_before(functions, i)) continue;
    return {.problem = fmt::format("the function {}, which is no template, behind the function template {}",
                                   in_words(functions[i]), in_words(functions[last]))};
  }
  for (std::size_t i = declared_before(functions, last).value_or(last); i < last; ++i) {
    if (!is_defined_template(functions[i]) || functions[i].name == functions[last].name) continue;
    return {.problem = fmt::format("the function template {}, and {}, which is declared before it and has "
                                   "its body behind it, so that either may be meant",
                                   in_words(functions[i]), in_words(functions[last]))};
  }
  return {.name = functions[last].name};
}

/// Gives what all of `readings` have, or a problem if they differ. Readings without a template are passed
/// over where others have one: compilers refuse what is called there.
Reading common(std::vector<Reading> readings, const Choices& choices) {
  if (choices.are_too_many()) return {.problem = fmt::format("more than {} ways to be read", Choices::most)};
  if (std::ranges::any_of(readings, &Reading::has_template))
    std::erase_if(readings, [](const Reading& one) { return !one.has_template; });
  const auto problem = std::ranges::find_if(readings, [](const Reading& one) { return one.name.empty(); });
  if (problem != readings.end()) return *problem;
  for (const Reading& reading : readings) {
    if (reading == readings.front()) continue;
    return {.problem = fmt::format("\"{}\" or \"{}\" as its last function, which depends on what it does not "
                                   "say ({})",
                                   readings.front().name, reading.name, choices.first())};
  }
  return readings.front();
}

/// Reads a text that has been preprocessed, in all ways in which its `<` can be read.
Reading reading_of(const Tokens& tokens) {
  Choices choices;
  std::vector<Reading> readings;
  std::optional<Unreadable> failure;
  do {
    try {
      readings.push_back(reading_of(jit_text::functions_of(tokens, choices)));
      if (is_refused(readings.back())) return readings.back();
    } catch (const Unreadable& error) {
      if (!failure) failure = error;
    }
  } while (choices.next());
  if (readings.empty()) return {.problem = failure->what()};
  return common(std::move(readings), choices);
}

Reading reading_of(const jit_text::Preprocessed& text) {
  Reading reading = reading_of(text.tokens);
  const std::string_view name = reading.name;
  if (text.macros.has(std::string(name.substr(name.rfind(':') + 1))).value_or(false))
    return {.problem = fmt::format("a macro of the same name as its last function, \"{}\"", name)};
  return reading;
}

Reading reading_of(std::string_view source) {
  const Tokens tokens = jit_text::tokens_of(source);
  Choices choices;
  std::vector<Reading> readings;
  do {
    if (const auto text = jit_text::preprocessed(tokens, choices)) readings.push_back(reading_of(*text));
    if (!readings.empty() && is_refused(readings.back())) return readings.back();
  } while (choices.next());
  if (readings.empty()) return {.problem = "an #error"};
  return common(std::move(readings), choices);
}

}  // namespace

std::string jit_function_name(std::string_view source, std::string_view function) {
  Reading reading;
  try {
    reading = reading_of(source);
  } catch (const Unreadable& error) {
    reading.problem = error.what();
  }
  if (reading.problem.empty()) return reading.name;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: source has {}, expected a function template of one type as its last function, "
                          "such as \"template <typename T> T sum(T a, T b) {{ return a + b; }}\"",
                          function, reading.problem));
}

}  // namespace tutti
