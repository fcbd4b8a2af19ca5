// SPDX-License-Identifier: Apache-2.0
// A source text is read as compilers read it: its last function template is found, or the text is refused.

#include "jit_text/function_name.hpp"
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/jiterator.hpp"
#include "tutti/reduce_op.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;

const std::string head = "template <typename T> ";
const std::string function = head + "T f(T a, T b) { return a + b; }\n";
const std::string helper = head + "T helper(T a, T b) { return a - b; }\n";

std::string name_in(const std::string& text) {
  try {
    return jit_function_name(text, "test");
  } catch (const Error& error) {
    return error.what();
  }
}

/// A macro called with a call of itself, and so on.
std::string nested(const std::string& macro, int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text.append(macro).append("(");
  return text.append("x").append(static_cast<std::size_t>(depth), ')');
}

void expect_f(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) EXPECT_EQ(name_in(text), "f") << text;
}

/// Checks that texts are refused, each with a fragment of the message.
void expect_refused(const std::vector<std::pair<std::string, std::string>>& texts) {
  for (const auto& [text, fragment] : texts) {
    EXPECT_TRUE(refuses([&text = text] { static_cast<void>(jit_function_name(text, "test")); },
                        ErrorCode::invalid_argument,
                        {"test: source has ", fragment, ", expected a function template of one type"}))
        << text;
  }
}

TEST(JitText, HasItsLastFunctionTemplateCalled) {
  expect_f({function, helper + function, helper + function + "\n\n", "template<class T>T f(T a){return a;}",
            "template\n<\nclass T\n>\nT\nf\n(T a)\n{ return a; }"});
}

TEST(JitText, SaysNothingByCommentsAndStrings) {
  expect_f({
      function + "// helper is the template <typename T> T helper(T a, T b) above\n",
      function + "/*\n" + helper + "*/\n",
      function + "// one template here",
      function + "// a template<> of sums\n",
      "// This template adds.\n" + function,
      function + "// goes on \\\n" + helper,
      function + "// goes on \\\r\n" + helper,
      function + "// goes on \\ \n" + helper,
      function + "/\\\n/ " + helper,
      function + "/\\\n* */ /* \" */ // '\n",
      "// /*\n" + function + "// */",
      "/* // */" + function,
      head + "T f(T a) {\n  // as template <typename T> T g(T a), but a sum\n  return a;\n}\n",
      head + "T f(T a) { T my_template = a, template_of = a; return my_template; }\n",
      head + "T f(T a) { const char* s = \"template <class T> T g(T a) { }}}\"; return a; }",
      head + "T f(T a) { const char* s = \"\\\" // \"; return a; } // \"",
      head + "T f(T a) { char c = '\"', d = '\\'', e = '{'; return a; }",
      head + "T f(T a) { auto s = R\"(\" } template <class T> T g(T a) {)\"; return a; }",
      head + "T f(T a) { auto s = u8R\"x(\\\n)\" )y\" } // )x\"; return a; }",
      "const char* const text = R\"(" + helper + ")\";\n" + function + "const char* more = LR\"--(}})--\";",
      head + "T f(T a) { return a + 1'000'000 + 0x1.8p-1 + 1e+5 + 'a'; } // '",
      "double operator\"\"_x(long double v) { return v; }\n" + head + "T f(T a) { return a + 1.5_x; }",
      head + "T f(T a) { return a + \"}\"_x + '}'_y; }",
      "const auto FR = 1; int R = 2;\n" + function,
  });
}

TEST(JitText, IsReadWithItsConditions) {
  expect_f({
      function + "#if 0\n" + helper + "#endif\n",
      function + "# if 0 // don't\n" + helper + "it's prose {{ \"\n#if 1\n" + helper + "#endif\n#endif\n",
      function + "#if 1\n#else\n" + helper + "#endif\n",
      "#if 1\n" + function + "#else\n" + helper + "#endif\n",
      "#if 0\n" + helper + "#elif 1\n" + function + "#elif 1\n" + helper + "#else\n" + helper + "#endif\n",
      "#if 1\n" + function + "#elif UNKNOWN\n" + helper + "#endif\n",
      "#define FAST 1\n#if FAST && !defined(SLOW_) || 1\n" + function + "#else\n" + helper + "#endif\n",
      "#define FAST\n#ifndef FAST\n" + helper + "#elif (2 > 1) == true\n" + function + "#endif\n",
      "#define FAST\n#undef FAST\n#ifdef FAST\n" + helper + "#else\n" + function + "#endif\n",
      "#if __cplusplus >= 201703L and not 0\n" + function + "#else\n" + helper + "#endif\n",
      "#ifdef __CUDACC_RTC__\n" + function + "#else\n" + function + "#endif\n",
      "#ifdef __CUDACC_RTC__\n" + helper + "#endif\n" + function,
      "#ifdef __CUDACC_RTC__\n" + function + "#endif\n",
      "#ifdef A\n#error not for A\n" + helper + "#else\n" + function + "#endif\n",
      "#ifdef A\n" + head + "T f(T a) {\n#else\n" + head + "T f(T a, T b) {\n#endif\n  return a; }\n",
      "#ifdef A\n" + function + "#endif\n#ifndef A\n" + function + "#endif\n",
      "%:if 0\n" + helper + "%:endif\n" + function,
      "/* c */ #if 0\n" + helper + "/* more\n */ # /* */ else\n" + function + "#endif",
      "#if 0 \\\n || 0\n" + helper + "#endif\n" + function,
  });
  expect_refused({
      {"#ifdef FAST\n" + function + "#else\n" + helper + "#endif\n",
       "\"f\" or \"helper\" as its last function"},
      {function + "#if __CUDA_ARCH__ >= 900\n" + helper + "#endif\n",
       "depends on what it does not say (if __CUDA_ARCH__ >= 900)"},
      {function + "#if 1\n", "a conditional without #endif (line 2)"},
      {function + "#endif\n", "#endif without #if"},
      {function + "#if 0\n#elifdef A\n#endif\n", "#elifdef, which C++17 does not have"},
      {"#error\n" + function, "an #error"},
      {function + "#ifdef A\n}\n#endif", "a \"}\" that closes nothing"},
  });
}

TEST(JitText, HasItsMacrosReplaced) {
  expect_f({
      "#define FN template <typename T> T\nFN helper(T a) { return a; }\nFN f(T a) { return a; }\n",
      ("#define OP(name, op) \\\n  template <typename T> \\\n  T name(T a, T b) { return a op b; }\n"
       "OP(helper, -)\nOP(f, +)\n"),
      ("#define OP(name, op) template <typename T> T name(T a, T b) { return a op b; }\n#define MAKE OP\n"
       "OP(helper, -)\nMAKE\n(f,\n +)\n"),
      "#define OP(name, op) template <typename T> T name(T a, T b) { return a op b; }\nOP(helper, -)\n" +
          function,
      function + "#define OP(name) template <typename T> T name(T a) { return a; }\n",
      function + "#define OP \\\n" + helper,
      "#define CAT(a, b) a##b\n" + head + "T CAT(, f)(T a) { return a; }\n",
      "#define CAT(a, b) a ## b\n#define NAME(x) CAT(x, _of)\n" + helper + "#undef CAT\n" + function,
      "#define ID(...) __VA_ARGS__\nID(template <class T, class U = int>) ID(T f)(T a) { return a; }\n",
      "#define LAST(a, rest...) rest\nLAST(x, template <class T, class U = int> T f(T a)) { return a; }\n",
      "#define CALL(name, ...) name(a, ## __VA_ARGS__)\n" + helper + head +
          "T f(T a, T b) { return CALL(g) + CALL(helper, (b)); }\n",
      "#define LIST(T, a, rest...) (T a, ##rest)\n" + head + "T f LIST(T, a) { return a; }\n",
      "#define NONE(x)\n#define TWICE(x) NONE(x x)\n" + nested("TWICE", 40) + "\n" + function,
      "_Pragma(\"GCC diagnostic push\") " + function + "_Pragma(\"GCC diagnostic pop\")\n",
      "#define TEXT(x) #x\nconst char* s = TEXT(template <class T> T g(T a) {});\n" + function,
      "#define f_name f\n" + head + "T f_name(T a) { return a; }\n",
      "#define helper helper\n" + helper + function,
      "#define DEVICE __attribute__((always_inline)) inline\n" + head + "DEVICE T f(T a) { return a; }\n",
      "#define BEGIN {\n#define END }\n" + head + "T f(T a) BEGIN return a; END\n",
      "#define EMPTY\n#define NONE()\n" + head + "T f EMPTY (T a) NONE() { return a; }\n",
      "#include <cmath>\n#pragma once\n#line 7 \"x\"\n" + function,
  });
  expect_refused({
      {"#define OP(name) template <typename T> T name(T a) { return a; }\nOP(helper)\nOP(f\n", "do not end"},
      {function + "#define f g\n", "a macro of the same name as its last function, \"f\""},
      {"#define A A B\n#define B C C\n#define C D D\n#define D A E E\n#define E F F\n" + function +
           "UNKNOWN(f)\n",
       "a declaration without an end"},
      {"#define FN template <typename T> T\n" + helper + "FN f(T a)\n#if 1\n", "without #endif"},
      {"#define A(n, ...) __VA_OPT__(n)\n" + function, "__VA_OPT__, which C++17 does not have"},
      {"#define X 1\n#pragma push_macro(\"X\")\n#undef X\n#pragma pop_macro(\"X\")\n" + helper +
           "#ifdef X\n" + function + "#endif\n",
       "a pragma push_macro, after which it is not known which macros there are (line 2)"},
      {"_Pragma(\"pop_macro(\\\"X\\\")\") " + function, "a pragma pop_macro"},
      {helper + "FROM_A_HEADER(f)\n", "a declaration without an end"},
      {helper + "FROM_A_HEADER(f) { return a; }\n", "the function \"FROM_A_HEADER\" (line 2)"},
  });
}

TEST(JitText, HasTemplateParametersOfAllKinds) {
  expect_f({
      "template <typename T, int N = 4, bool B = (N > 2)> T f(T a) { return a; }",
      "template <typename T, bool B = 1 < 2> T f(T a) { return a; }",
      "template <typename T, int N = 3, bool B = N < 8> T f(T a) { return a; }",
      "constexpr int limit = 3;\ntemplate <class T, bool B = limit < 4> T f(T a) { return a > 0 ? a : -a; }",
      "template <typename T, bool B = sizeof(T) < 8> T f(T a) { return a; }",
      "template <typename T, int N = (8 >> 1), int M = 1 << 2> T f(T a) { return a; }",
      "template <class T, class = typename enable<is_same<T, float>::value, pair<int, T>>::type> T f(T a) {}",
      "template <class T, enable_if_t<(sizeof(T) > 2), int> = 0> T f(T a) { return a; }",
      "template <class T, enable_if_t<is_float_v<T> && !is_wide_v<T>>* = nullptr> T f(T a) { return a; }",
      "template <class T, template <class, int> class C = box> T f(T a) { return a; }",
      "template <class T, class U = decltype([](int a) { return a > 2; })> T f(T a) { return a; }",
      "template <class T, auto L = [](int a) { return a; }> T f(T a) { return a; }",
      "template <class T, class... Rest> T f(T a, Rest... rest) { return a; }",
      "template <class T, class U = box<::pair<T>>> T f(T a) { return a; }",
      "template <class T, class U = box<::other> > T f(T a) { return a; }",
      "template <class T, class U = typename T::template rebind<int>> T f(T a) { return a; }",
      "template <class T, bool B = (1, 2 > 1), class U = box<int{3}>> T f(T a) { return a; }",
      helper + "template <class T, class U = helper_of<T>, class V = box<pair<U, U>>> T f(T a) { return a; }",
  });
  expect_refused({
      {"template <class T T f(T a) { return a; }", "template brackets that are not understood"},
  });
}

TEST(JitText, HasDeclaratorsOfAllKinds) {
  expect_f({
      "template <class T> auto f(T a) -> decltype(a * 2) { return a * 2; }",
      "template <class T> auto f(T a) -> typename box<T, (1 > 0)>::type { return a; }",
      "template <class T> decltype(T() + T()) f(T a, T b) { return a + b; }",
      "template <class T> decltype(auto) f(T a) { return a; }",
      "template <class T> typename enable_if<(sizeof(T) > 2), T>::type f(T a) { return a; }",
      "template <class T> fixed<size(4), box<T>> f(T a) { return a; }",
      "template <class T> table<N < 4, T(int)> f(T a) { return a; }",
      "template <class T> [[nodiscard, gnu::pure]] static inline constexpr T f(T a) noexcept { return a; }",
      "template <class T> __attribute__((noinline)) T f(T a) __attribute__((pure)) { return a; }",
      "template <class T> T f [[gnu::cold]] (T a) noexcept(noexcept(a + a)) { return a; }",
      "template <class T> T (f)(T a) { return a; }",
      "template <class T> const T& f(const T& a) throw() { return a; }",
      "template <class T> struct box<T> f(T a) { return {}; }",
      "template <class T> LAUNCH(128) T f(T a) { return a; }",
      ("template <class T> void f(T a, T& out = (g)(1), int (*call)(int) = [](int b) { return b; }) { out = "
       "a; }"),
      "template <class T> requires (sizeof(T) < 8) && number<T> T f(T a) { return a; }",
      "template <class T> requires requires(T x) { x + x; } || std::integral<T> T f(T a) { return a; }",
      "template <class T> T f(T a) requires number<T> && requires(T x) { x > 1; } { return a; }",
      "template <class T> T f(T a) { return a < 1 ? a : a > 2 ? a : T{}; };;",
      "extern \"C++\" template <class T> T f(T a) { return a; }",
      "extern \"C\" int puts(const char*); __extension__ template <class T> T f(T a) { return a; }",
      "template <typename T> T f(T a) <% return a <: 0 :>; %>",
  });
  expect_refused({
      {"template <class T> T (*f(T a))(T) { return nullptr; }", "a function whose name is not found"},
      {"template <class T> T (&f(T a))[3] { return *g; }", "a function whose name is not found"},
  });
}

TEST(JitText, MayHaveOtherThingsBehindTheFunction) {
  expect_f({
      function + "struct box {\n  " + helper + "  template <class T> struct in { " + helper + " };\n};\n",
      function + "template <class T> struct box : base<T> { template <class U> U g(U u) { return u; } };\n"
                 "template <class T> box<T>::~box() {}\ntemplate <class T> template <class U> U box<T>::g(U "
                 "u) { return u; }\n",
      function + "struct box { box(); int n; };\nbox::box() : n{1}, m(2) { n = 2; }\n",
      function + "template <> float f<float>(float a, float b) { return a; }\n",
      helper + function + "template <> float helper(float a, float b) { return a; }\n",
      helper + function + "template float helper<float>(float, float);\n",
      helper + function + "extern template float helper(float, float);\n",
      function + "template <class T> T declared(T a);\nfloat also_declared(float);\n",
      function + "template <class T> T deleted(T a) = delete;\n",
      function + "template <class T> constexpr T half = T(0.5);\n",
      function + "template <class T> constexpr auto twice = [](T a) { return a + a; };\n",
      function + "template <class T> using pair_of = pair<T, box<T>>;\nusing namespace std;\n",
      function + "template <class T> box(T, T) -> box<T>;\n",
      function + "template <class T> concept number = requires(T a) { a + a; };\n",
      function + "static_assert(1 < 2, \"};\");\ntypedef int number; enum class e : int { a, b };\n",
      function + "int count{3}, more[2] = {1, 2}; float (*call)(float) = nullptr; int (&row)[2] = more;\n",
      function + "struct { int a; } one = {1}, two{2};\nnamespace other = ::std;\n",
      function + "template <class T> box<T> operator+(box<T> a, box<T> b) { return a; }\n"
                 "bool operator()(int);\nbool operator<(box<int> a, box<int> b) { return true; }\n"
                 "unsigned operator\"\"_u(unsigned long long n) { return n; }\n",
      "float plain(float a) { return a; }\n" + function + "float plain(float a, float b);\n",
      "float plain(float);\n" + function + "float plain(float a) { return a; }\n",
  });
}

TEST(JitText, MayHaveItsFunctionInANamespace) {
  expect_f({
      "namespace detail {\n" + helper + "}\n" + function,
      "namespace {\n" + helper + function + "}\n",
      "extern \"C++\" {\n" + function + "}\n",
  });
  EXPECT_EQ(name_in("namespace a::b {\n" + function + "}\n"), "a::b::f");
  EXPECT_EQ(name_in("inline namespace [[x]] a { namespace { namespace b {\n" + function + "} } }\n"),
            "a::b::f");
  EXPECT_EQ(name_in(helper + "namespace a { template <class T> T f(T a); }\n"
                             "template <class T> T a::f(T a) { return a; }"),
            "a::f");
}

TEST(JitText, IsRefusedWhereItsFunctionCannotBeTold) {
  expect_refused({
      {"", "no function template with a body"},
      {"template <class T> struct Type;", "no function template with a body"},
      {"template <class T> T f(T a);", "no function template with a body"},
      {"// " + function, "no function template with a body"},
      {"float plain(float a) { return a; }",
       "no function template with a body, but the function \"plain\" (line 1)"},
      {helper + "float f(float a, float b) { return helper(a, b); }",
       "the function \"f\" (line 2), which is no template, behind the function template \"helper\" (line 1)"},
      {function + "inline float f(float a, float b) { return a; }", "\"f\" (line 2), which is no template"},
      {head + "T helper(T a, T b);\n" + function + helper, "\"f\" (line 2), and \"helper\" (line 3)"},
      {function + "/* " + helper, "a comment without an end (line 2)"},
      {function + "auto s = R\"(" + helper + ")x\";", "a raw string without an end (line 2)"},
      {function + "}", "a \"}\" that closes nothing (line 2)"},
      {"namespace a {\n" + function, "a namespace without an end"},
      {head + "T f(T a) { return (a; }", "\"}\" that closes nothing"},
      {head + "T f(T a) { return a;", "\"{\" without an end"},
      {function + "// old\r" + helper, "a carriage return without a line feed"},
      {"template", "a declaration without an end"},
  });
}

/// Whatever the text, it ends in a name or in one error.
TEST(JitText, EndsWhateverIsCutOffOrChanged) {
  const std::string text =
      "#define OP(a, b) a##b(#a)\n#if defined(A) && OP(1, 2) > (3)\nnamespace a::b {\n#endif\n" + helper +
      "template <class T, class U = box<T, (1 < 2)>> requires x<T> auto f(T a) noexcept(1) -> T { return "
      "R\"(a)\"; }\n";
  const auto outcome = [](const std::string& changed) {
    try {
      EXPECT_FALSE(jit_function_name(changed, "test").empty());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  };
  for (std::size_t i = 0; i <= text.size(); ++i) {
    outcome(text.substr(0, i));
    outcome(text.substr(i));
    for (const std::string_view piece :
         {"(", "}", "<", ">>", "\n#", "\"", "template ", "::", ";", "OP(", "\\\n"})
      outcome(std::string(text).insert(i, piece));
  }
  for (const std::string_view piece :
       {"(", "{", "<", "a<", "!", "template<", "#if (", "OP(", "operator", "::", "->"}) {
    std::string many = "#define OP(x) x x\n";
    for (int i = 0; i < 5000; ++i) many += piece;
    outcome(many);
    outcome(std::string("#if ").append(many).append("\n#endif\n").append(function));
  }
  std::string doubling = "#define NONE(x)\n#define LEAVES_OUT(x) NONE(x)\n#define A0(x) x\n";
  for (int i = 1; i < 40; ++i) {
    const std::string one = " A" + std::to_string(i - 1) + "(x)";
    doubling.append("#define A").append(std::to_string(i)).append("(x) LEAVES_OUT(");
    doubling.append(one).append(one).append(")\n");
  }
  expect_refused({{doubling + "A39(1)\n" + function, "which becomes too much to read"}});
  std::string conditions;
  for (int i = 0; i < 30; ++i) conditions += "#ifdef A" + std::to_string(i) + "\n#endif\n";
  expect_refused({{conditions + function, "ways to be read"}});
}

/// All functions that take source texts read them alike.
TEST(JitText, IsReadWhereverItIsGiven) {
  const std::string wrong = helper + "float f(float a, float b) { return a; }";
  for (const auto& [call, name] :
       {std::pair<std::function<void()>, std::string>{[&] { static_cast<void>(create_jit_fn(wrong)); },
                                                      "create_jit_fn"},
        {[&] { static_cast<void>(create_multi_output_jit_fn(wrong, 1)); }, "create_multi_output_jit_fn"},
        {[&] { static_cast<void>(ReduceOp::compiled(wrong)); }, "ReduceOp::compiled"}})
    EXPECT_TRUE(
        refuses(call, ErrorCode::invalid_argument, {name + ": source has the function \"f\" (line 2)"}));
}

}  // namespace
}  // namespace tutti
