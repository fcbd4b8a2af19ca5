// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

/// Elementwise operations given as source text, which is compiled when it is first needed.
namespace tutti {

/// A scalar argument of a jitted function, which keeps its kind: true and false, an integer, or a number.
class JitScalar {
 public:
  template <class Number>
    requires std::is_arithmetic_v<Number>
  JitScalar(Number value) {
    if constexpr (std::is_same_v<Number, bool>) {
      value_ = value;
    } else if constexpr (std::is_integral_v<Number>) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<double>(value);
    }
  }
  [[nodiscard]] const std::variant<bool, std::int64_t, double>& value() const noexcept { return value_; }

 private:
  std::variant<bool, std::int64_t, double> value_;
};

/// A scalar with the name that it is given by, as keyword arguments are: `{"alpha", 2.0}`.
struct JitArgument {
  std::string name;
  JitScalar value;
};
using JitArguments = std::vector<JitArgument>;

class JitProgram;

/// An elementwise function with one output. A cheap value: copies are the same one. Thread-safe.
class TUTTI_EXPORT JitFunction {
 public:
  /// A new dense tensor of the inputs' element type with the function applied to each element, queued on the
  /// current stream of the inputs' device.
  ///
  /// `inputs` are 1 to 8 tensors of one device and one element type: float16, bfloat16, float32, float64,
  /// bool or an integer type, with any strides. Sizes that differ are broadcast as is usual: from the last
  /// dimension on, a size of 1, or none, fits every other. `scalars` replaces defaults of the same name.
  ///
  /// The first call for an element type compiles the text, which may take seconds, and blocks meanwhile;
  /// the process keeps what it has compiled. It may be captured into graphs.
  ///
  /// Throws Error(invalid_argument) for inputs that do not fit, names that are not known or given twice, and
  /// with the compiler's words for a text that it refuses; Error(unsupported) for other element types, and
  /// where there is no compiler: on GPUs NVRTC (`libnvrtc.so`, which comes with CUDA), on virtual devices
  /// `TUTTI_JIT_CXX`, or the first of `c++`, `g++` and `clang++` that `PATH` finds. A compiler that fails
  /// itself is not the text's fault: that is Error(out_of_memory) where it, or the text, finds no room on the
  /// disk, no memory or no process, and else Error(unsupported), with how it ended and what it said. A later
  /// call tries again.
  Tensor operator()(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;
  /// Has it compiled and loaded to the device, so that a call on inputs like these, whatever their sizes,
  /// costs a launch: loading may wait for what runs on the device. Queues nothing. Throws what calls do.
  void prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;

 private:
  explicit JitFunction(std::shared_ptr<const JitProgram> program) noexcept : program_(std::move(program)) {}
  friend TUTTI_EXPORT JitFunction create_jit_fn(const std::string& source, const JitArguments& defaults);

  std::shared_ptr<const JitProgram> program_;
};

/// The same with several outputs.
class TUTTI_EXPORT MultiOutputJitFunction {
 public:
  /// As `JitFunction` does; the outputs in the order of the function's parameters.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;
  /// As `JitFunction` does.
  void prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars = {}) const;

 private:
  explicit MultiOutputJitFunction(std::shared_ptr<const JitProgram> program) noexcept
      : program_(std::move(program)) {}
  friend TUTTI_EXPORT MultiOutputJitFunction create_multi_output_jit_fn(const std::string& source,
                                                                        std::size_t num_outputs,
                                                                        const JitArguments& defaults);

  std::shared_ptr<const JitProgram> program_;
};

/// `source` is a function template in C++17 with one type, the inputs first, and behind them the scalars in
/// the order of `defaults`, up to 16:
///
///     auto fn = tutti::create_jit_fn("template <typename T> T axpy(T x, T y, T alpha) { return alpha * x +
///     y; }",
///                                    {{"alpha", 1.0}});
///     tutti::Tensor z = fn({x, y}, {{"alpha", 2.5}});
///
/// It is the last function template of the text that has a body, outside of classes; functions that it calls
/// stand before it. Behind it may stand what is no new function: classes, variables, specialisations,
/// operators, and a function that is no template if it has been declared before. The text is read as
/// compilers read it: comments and strings say nothing, macros are replaced, and what conditionals leave out
/// is not there; files that it includes are not read. A text that leaves open which function comes last, as
/// it depends on what compilers predefine or as a template that is declared before another one has its body
/// behind it, is refused: one more function template, which calls the right one, makes it clear.
///
/// Texts may call what CUDA's device code has of the standard library: the mathematical functions, by their
/// names alone. For float16 and bfloat16 the type is float, and results are rounded to nearest. Products and
/// sums are not contracted: so what is made of these and of quotients and square roots is the same on GPUs
/// and on virtual devices, bit by bit. What C++ leaves undefined, an integer divided by zero for instance,
/// ends the process on virtual devices, and gives anything on GPUs. No name of the text begins with `tutti_`.
///
/// Nothing is compiled yet. Throws Error(invalid_argument) if there is no function template in the text, if
/// it cannot be told which one comes last, or if another function comes last; for scalars without a name or
/// with the same one.
[[nodiscard]] TUTTI_EXPORT JitFunction create_jit_fn(const std::string& source,
                                                     const JitArguments& defaults = {});
/// The same for a function that returns nothing, and takes `num_outputs` outputs, 1 to 8, by reference,
/// behind the scalars:
///
///     template <typename T> void sum_and_difference(T x, T y, T& sum, T& difference) { ... }
[[nodiscard]] TUTTI_EXPORT MultiOutputJitFunction create_multi_output_jit_fn(
    const std::string& source, std::size_t num_outputs, const JitArguments& defaults = {});

}  // namespace tutti
