// SPDX-License-Identifier: Apache-2.0
#include "jit_text/declarations.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <utility>

namespace tutti::jit_text {
namespace {

/// Words whose brackets are no parameters.
constexpr std::array<std::string_view, 13> words_with_brackets{
    "__attribute__",     "__attribute",      "__declspec",  "__align__",
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "alignas",
    "decltype",          "noexcept",         "throw",       "typeof",
    "__typeof__"};
constexpr std::array<std::string_view, 4> class_keys{"class", "struct", "union", "enum"};
constexpr std::array<std::string_view, 6> statements{"using",  "typedef", "static_assert",
                                                     "friend", "concept", "asm"};
/// Words that follow the parameters of a function.
constexpr std::array<std::string_view, 5> trailing_words{"const", "volatile", "override", "final", "mutable"};

bool is_among(const Token& token, std::span<const std::string_view> words) {
  return token.is_name() && std::ranges::find(words, token.text) != words.end();
}

/// The kind of a declaration, which the heads of templates before it tell.
enum class Kind : std::uint8_t { plain, generic, specialisation };

/// Goes through a text's declarations, and records its functions.
class Reader {
 public:
  Reader(const Tokens& tokens, Choices& choices) : tokens_(tokens), choices_(choices) {}

  std::vector<Function> read() {
    while (at_ < tokens_.size()) read_one();
    if (!scopes_.empty()) fail("a namespace without an end");
    return std::move(functions_);
  }

 private:
  /// A declaration as far as it has been read.
  struct Declarator {
    std::string name{};  ///< empty if it is no function of interest: an operator, or a class's member
    std::size_t line = 0;
    bool has_parameters = false;
    bool is_trailing = false;  ///< behind "->"
    bool is_class = false;
    bool is_odd = false;  ///< brackets that are no parameters of a function
  };

  [[noreturn]] void fail(const std::string& what) const {
    const std::size_t last = std::min(at_, tokens_.empty() ? 0 : tokens_.size() - 1);
    throw Unreadable(what, tokens_.empty() ? 1 : tokens_[last].line);
  }
  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const {
    static const Token end;
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead] : end;
  }
  [[nodiscard]] const Token& previous() const {
    static const Token begin;
    return at_ == 0 ? begin : tokens_[at_ - 1];
  }
  [[nodiscard]] bool is(std::string_view text) const { return peek().is(text); }
  bool take(std::string_view text) {
    if (!is(text)) return false;
    ++at_;
    return true;
  }

  void read_one() {
    if (take(";") || take("__extension__")) return;
    if (is("}")) {
      if (scopes_.empty()) fail("a \"}\" that closes nothing");
      scopes_.pop_back();
      ++at_;
      return;
    }
    if (is("namespace") || (is("inline") && peek(1).is("namespace"))) return read_namespace();
    if (is("extern") && peek(1).kind == TokenKind::literal) {
      at_ += 2;
      if (take("{")) scopes_.emplace_back();
      return;
    }
    if (is("template") || (is("extern") && peek(1).is("template"))) return read_template();
    if (is_among(peek(), statements)) return skip_statement();
    read_declaration(Kind::plain);
  }

  void read_namespace() {
    static_cast<void>(take("inline"));
    ++at_;
    std::string name;
    while (!is("{")) {
      if (is("=")) return skip_statement();
      if (is("[")) {
        skip_group();
        continue;
      }
      if (!peek().is_name() && !is("::")) fail("a namespace that is not understood");
      if (is("::")) name += "::";
      if (peek().is_name() && !is("inline")) {
        name += peek().text;
        namespaces_.insert(peek().text);
      }
      ++at_;
    }
    ++at_;
    scopes_.push_back(name.empty() ? name : name + "::");
  }

  void read_template() {
    if (is("extern") || !peek(1).is("<")) return skip_statement();  // an instantiation
    Kind kind = Kind::generic;
    while (take("template")) {
      if (!is("<")) fail("a template without parameters");
      if (peek(1).is(">")) kind = Kind::specialisation;
      skip_angles();
      if (is("requires")) skip_constraint();
    }
    if (is_among(peek(), statements)) return skip_statement();
    read_declaration(kind);
  }

  void read_declaration(Kind kind) {
    const bool begins = peek().is_name() || is("::") || is("[") || peek().kind == TokenKind::literal;
    if (!begins) fail("\"" + peek().text + "\" where a declaration would begin");
    Declarator declarator;
    while (at_ < tokens_.size()) {
      if (is(";") || is("=")) {
        if (declarator.has_parameters) record(declarator, kind, false);
        return skip_statement();
      }
      if (!is("{")) {
        read_part(declarator);
        continue;
      }
      if (declarator.is_odd) fail("a function whose name is not found");
      skip_group();
      if (declarator.has_parameters) return record(declarator, kind, true);
      // Of a class, or an initial value.
      if (!declarator.is_class && !is(";") && !is(",")) fail("braces that are not understood");
    }
    fail("a declaration without an end");
  }

  /// Reads anything but ";", "=" and "{".
  void read_part(Declarator& declarator) {
    if (is("(")) return read_parameters(declarator);
    if (is("[")) return skip_attributes();
    if (is("<")) {
      if (!previous().is_name()) fail("\"<\" behind no name");
      const std::size_t name = at_ - 1;
      skip_angles();
      name_ = name;
      name_end_ = at_;
      return;
    }
    if (is(":") && declarator.has_parameters) return skip_initialisers();
    if (is("requires") && declarator.has_parameters) return skip_constraint();
    if (is("operator")) return read_operator();
    if (is_among(peek(), words_with_brackets)) {
      ++at_;
      if (is("(")) skip_group();
      return;
    }
    if (is("template") && !previous().is("::") && !previous().is("."))
      fail("a declaration that does not end before \"template\"");
    if (peek().is_name()) return read_name(declarator);
    constexpr std::array<std::string_view, 9> marks{"::", "*", "&", "&&", ",", "...", "~", ":", "->"};
    if (peek().kind == TokenKind::mark && std::ranges::find(marks, peek().text) == marks.end())
      fail("\"" + peek().text + "\" in a declaration");
    if (is("->")) declarator.is_trailing = true;
    ++at_;
  }

  /// Goes behind attributes, which may stand between a name and its parameters.
  void skip_attributes() {
    const bool is_behind_name = name_end_ == at_;
    skip_group();
    if (is_behind_name) name_end_ = at_;
  }

  void read_name(Declarator& declarator) {
    if (is_among(peek(), class_keys) && !declarator.has_parameters) declarator.is_class = true;
    // A name behind brackets: these were no parameters, but an attribute's, say.
    if (declarator.has_parameters && !declarator.is_trailing && !is_among(peek(), trailing_words))
      declarator = {.is_class = declarator.is_class, .is_odd = declarator.is_odd};
    name_ = at_++;
    name_end_ = at_;
  }

  void read_operator() {
    name_ = at_++;
    if (is("(") && peek(1).is(")")) at_ += 2;
    while (at_ < tokens_.size() && !is("(") && !is(";") && !is("{")) ++at_;
    name_end_ = at_;
  }

  void read_parameters(Declarator& declarator) {
    const bool is_named = name_end_ == at_ && at_ > 0;
    const std::size_t begin = at_;
    const Token& only = peek(1);
    skip_group();
    if (is("(") && at_ == begin + 3 && only.is_name()) {  // a name in brackets of its own
      name_ = begin + 1;
      skip_group();
    } else if (is("(")) {  // a pointer to functions, for instance
      declarator.is_odd = true;
      return skip_group();
    } else if (!is_named || (is("[") && !peek(1).is("["))) {  // a function that returns an array, say
      declarator.is_odd = true;
      return;
    }
    if (declarator.is_trailing) return;
    declarator.has_parameters = true;
    declarator.line = tokens_[name_].line;
    declarator.name = callable_name();
  }

  /// The name of the function whose name is at `name_`. Empty for operators and members of classes.
  [[nodiscard]] std::string callable_name() const {
    if (tokens_[name_].is("operator") || (name_ > 0 && tokens_[name_ - 1].is("~"))) return {};
    std::string name = tokens_[name_].text;
    for (std::size_t i = name_; i >= 2 && tokens_[i - 1].is("::"); i -= 2) {
      const Token& scope = tokens_[i - 2];
      if (!namespaces_.contains(scope.text)) return {};
      name.insert(0, scope.text + "::");
    }
    return name;
  }

  void record(const Declarator& declarator, Kind kind, bool is_defined) {
    if (declarator.name.empty() || kind == Kind::specialisation) return;
    std::string name;
    for (const std::string& scope : scopes_) name += scope;
    functions_.push_back({name + declarator.name, declarator.line, kind == Kind::generic, is_defined});
  }

  /// Goes to behind the next ";" that is in no brackets.
  void skip_statement() {
    while (!take(";")) {
      if (at_ == tokens_.size()) fail("a declaration without an end");
      if (is("(") || is("[") || is("{")) {
        skip_group();
      } else {
        if (is(")") || is("]") || is("}")) fail("\"" + peek().text + "\" that closes nothing");
        ++at_;
      }
    }
  }

  /// Goes from an opening bracket to behind the one that closes it.
  void skip_group() {
    const std::size_t begin = at_;
    std::string closing;
    do {
      if (at_ == tokens_.size()) {
        at_ = begin;
        fail("\"" + peek().text + "\" without an end");
      }
      if (is("(")) closing += ')';
      if (is("[")) closing += ']';
      if (is("{")) closing += '}';
      if (is(")") || is("]") || is("}")) {
        if (!is(std::string(1, closing.back()))) fail("\"" + peek().text + "\" that closes nothing");
        closing.pop_back();
      }
      ++at_;
    } while (!closing.empty());
  }

  /// Goes from "<" to behind the ">" that closes it.
  void skip_angles() {
    std::size_t open = 0;
    do {
      if (at_ == tokens_.size() || is(";") || is(")") || is("]") || is("}"))
        fail("template brackets that are not understood");
      if (is("(") || is("[") || is("{")) {
        skip_group();
        continue;
      }
      constexpr std::array<std::string_view, 5> before_template{"<", ",", "::", ".", "->"};
      if (is("template") && std::ranges::find(before_template, previous().text) == before_template.end())
        fail("template brackets that do not end before \"template\"");
      if (is("<") && (open == 0 || opens_here())) ++open;
      const std::size_t closes = is(">") ? 1 : is(">>") ? 2 : 0;
      if (closes > open) fail("template brackets that are not understood");
      open -= closes;
      ++at_;
    } while (open > 0);
  }

  /// Tells whether the "<" among template arguments is a bracket, and not "less than".
  [[nodiscard]] bool opens_here() const {
    if (previous().is("template")) return true;
    return previous().is_name() && choices_.ask("< behind " + previous().text);
  }

  /// Goes from "requires" to behind what it requires.
  void skip_constraint() {
    do {
      ++at_;
      while (take("!")) {
      }
      if (take("requires")) {
        if (is("(")) skip_group();
        if (!is("{")) fail("a requirement that is not understood");
        skip_group();
      } else if (is("(")) {
        skip_group();
      } else {
        skip_qualified_name();
      }
    } while (is("&&") || is("||") || is("and") || is("or"));
  }

  void skip_qualified_name() {
    do {
      if (!peek().is_name()) fail("a requirement that is not understood");
      ++at_;
      if (is("<")) skip_angles();
    } while (take("::"));
  }

  /// Goes from the ":" of a constructor to its body.
  void skip_initialisers() {
    do {
      ++at_;
      skip_qualified_name();
      if (!is("(") && !is("{")) fail("a constructor that is not understood");
      skip_group();
    } while (is(","));
  }

  const Tokens& tokens_;
  Choices& choices_;
  std::size_t at_ = 0;
  std::size_t name_ = 0;               ///< the last name of the declaration
  std::size_t name_end_ = 0;           ///< behind it, and behind its template arguments
  std::vector<std::string> scopes_{};  ///< that are open, as they stand before names
  std::set<std::string> namespaces_{};
  std::vector<Function> functions_{};
};

}  // namespace

std::vector<Function> functions_of(const Tokens& tokens, Choices& choices) {
  return Reader(tokens, choices).read();
}

}  // namespace tutti::jit_text
