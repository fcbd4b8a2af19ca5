// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/code_calls.hpp"
#include "runtime.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

/// A function of two values given as source text, as the operation of a reduction: the template
/// `T combine(T accumulator, T value)`, under whichever name. Thread-safe.
class JitCombination {
 public:
  /// Nothing is compiled yet. Throws Error(invalid_argument), in the name of `function`, if `source` has no
  /// function template.
  JitCombination(std::string source, std::string_view function);

  /// Queues on `stream`: each of the `count` elements of `target` becomes that of the first operand, combined
  /// with that of the second, the result with that of the third, and so on, in ascending order. All are
  /// dense, and of a device that `stream`'s can access; `target` may be one of the operands, and else
  /// overlaps none.
  ///
  /// Elements of 16 bits are combined in float32, and rounded once for every 64 operands, which one kernel
  /// takes at most. Throws Error(unsupported) for complex numbers and float8, and what compiling throws, the
  /// first time.
  void run(Runtime& runtime, backend::StreamRef stream, DType dtype, void* target,
           std::span<const void* const> operands, std::size_t count) const;
  /// Has it compiled for a device, before `run`, which then costs a launch.
  void prepare(Runtime& runtime, int device, DType dtype) const;

 private:
  [[nodiscard]] std::shared_ptr<const backend::CompiledCode> code_for(Runtime& runtime, int device,
                                                                      DType dtype) const;

  std::string source_;
  std::string function_;  ///< for messages
  std::string name_;
};

}  // namespace tutti
