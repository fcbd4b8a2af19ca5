// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

/// Compiles elementwise operations from source text when they are first needed.
namespace tutti {

/// A scalar argument of a compiled function. It keeps its kind: bool, integer or floating-point number.
class JitScalar {
 public:
  template <class Number>
    requires std::is_arithmetic_v<Number>
  JitScalar(Number value) {
    if constexpr (std::is_same_v<Number, bool>) {
      value_ = value;
    } else if constexpr (std::is_integral_v<Number>) {
      if (std::is_signed_v<Number> || static_cast<std::uint64_t>(value) <= largest_signed) {
        value_ = static_cast<std::int64_t>(value);
      } else {
        value_ = static_cast<std::uint64_t>(value);
      }
    } else {
      value_ = static_cast<double>(value);
    }
  }
  /// Returns the value; an integer is unsigned only if no `int64_t` can hold it.
  [[nodiscard]] const std::variant<bool, std::int64_t, double, std::uint64_t>& value() const noexcept {
    return value_;
  }

 private:
  static constexpr std::uint64_t largest_signed = std::numeric_limits<std::int64_t>::max();

  std::variant<bool, std::int64_t, double, std::uint64_t> value_;
};

/// A named scalar argument, as in `{"alpha", 2.0}`.
struct JitArgument {
  std::string name;
  JitScalar value;
};
using JitArguments = std::vector<JitArgument>;

class JitProgram;

/// An elementwise function with one output. A cheap value: copies are the same one. Thread-safe.
class TUTTI_EXPORT JitFunction {
 public:
  /// Applies the function to each element on the current stream of the inputs' device, and returns the
  /// results as a new dense tensor of the inputs' element type.
  ///
  /// `inputs` are 1 to 8 tensors of one device and one element type: float16, bfloat16, float32, float64,
  /// bool or an integer type, with any strides. Sizes that differ are broadcast by the usual rules: counted
  /// from the last dimension, a missing dimension or a size of 1 matches any other. `scalars` replaces
  /// defaults of the same name.
  ///
  /// The first call for an element type compiles the text, which may take seconds, and blocks meanwhile; the
  /// process keeps the compiled code. Calls may be captured into graphs.
  ///
  /// Throws Error(invalid_argument) for inputs that do not fit, names that are unknown or given twice, and,
  /// with the compiler's message, for a text that does not compile; Error(unsupported) for other element
  /// types, and if there is no compiler. The compiler is NVRTC on GPUs (`libnvrtc.so`, which comes with
  /// CUDA); on virtual devices it is `TUTTI_JIT_CXX`, or the first of `c++`, `g++` and `clang++` in `PATH`.
  /// If the compiler itself fails, that is Error(out_of_memory) if the disk is full or memory or processes
  /// run out, and else Error(unsupported), with its exit status and output; a compiler of virtual devices
  /// that has not ended after two minutes is ended. A later call tries again.
  Tensor operator()(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;
  /// Compiles the function and loads it to the device, so that a call on inputs of this kind, of any sizes,
  /// only costs a launch. (Loading may wait for work that runs on the device.) Queues nothing. Throws what
  /// calls throw.
  void prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;

 private:
  explicit JitFunction(std::shared_ptr<const JitProgram> program) noexcept : program_(std::move(program)) {}
  friend TUTTI_EXPORT JitFunction create_jit_fn(const std::string& source, const JitArguments& defaults);

  std::shared_ptr<const JitProgram> program_;
};

/// An elementwise function with several outputs; otherwise like `JitFunction`.
class TUTTI_EXPORT MultiOutputJitFunction {
 public:
  /// Applies the function as `JitFunction` does; the outputs are in the order of the function's parameters.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;
  /// Prepares a call as `JitFunction::prepare` does.
  void prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;

 private:
  explicit MultiOutputJitFunction(std::shared_ptr<const JitProgram> program) noexcept
      : program_(std::move(program)) {}
  friend TUTTI_EXPORT MultiOutputJitFunction create_multi_output_jit_fn(const std::string& source,
                                                                        std::size_t num_outputs,
                                                                        const JitArguments& defaults);

  std::shared_ptr<const JitProgram> program_;
};

/// Makes an elementwise function from source text. `source` is a function template in C++17 with one type
/// parameter; it takes the inputs first, and after them the scalars in the order of `defaults`, up to 16:
///
///     auto fn = tutti::create_jit_fn("template <typename T> T axpy(T x, T y, T alpha) { return alpha * x +
///     y; }",
///                                    {{"alpha", 1.0}});
///     tutti::Tensor z = fn({x, y}, {{"alpha", 2.5}});
///
/// The function is the last function template of the text that has a body, outside of classes; functions that
/// it calls come before it. No new function may follow it, but classes, variables, specialisations,
/// operators, and a non-template function that has been declared before may. The text is parsed as compilers
/// do: comments and strings are ignored, macros are expanded, and parts that conditionals exclude are
/// skipped; included files are not read. A text is refused if it is unclear which function comes last,
/// because that depends on predefined macros, or because a template that is declared before another one is
/// defined after it. In that case, append a function template that calls the right one.
///
/// Texts may call the mathematical functions of the standard library that CUDA's device code offers, by their
/// unqualified names. For float16 and bfloat16 the type is float, and results are rounded to nearest.
/// Products and sums are not contracted, so that results of sums, products, quotients and square roots are
/// bitwise the same on GPUs and on virtual devices. Undefined behaviour, such as an integer division by zero,
/// ends the process on virtual devices, and gives any value on GPUs. No name in the text may begin with
/// `tutti_`.
///
/// The call compiles nothing yet. It throws Error(invalid_argument) if there is no function template in the
/// text, if it is unclear which one comes last, or if another function comes last; for scalars without a name
/// or with the same one.
[[nodiscard]] TUTTI_EXPORT JitFunction create_jit_fn(const std::string& source,
                                                     const JitArguments& defaults = {});
/// Does the same for a function that returns void and takes `num_outputs` outputs, 1 to 8, by reference,
/// after the scalars:
///
///     template <typename T> void sum_and_difference(T x, T y, T& sum, T& difference) { ... }
[[nodiscard]] TUTTI_EXPORT MultiOutputJitFunction create_multi_output_jit_fn(
    const std::string& source, std::size_t num_outputs, const JitArguments& defaults = {});

}  // namespace tutti
