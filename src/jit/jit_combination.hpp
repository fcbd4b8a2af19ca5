// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/code_calls.hpp"
#include "device/runtime.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

/// A function of two values given as source text, as the operation of a reduction: the template
/// `T combine(T accumulator, T value)`, under whichever name. Thread-safe.
class JitCombination {
 public:
  /// Keeps the source, of which nothing is compiled yet. Throws what `jit_function_name` throws, in the name
  /// of `function`.
  JitCombination(std::string source, std::string_view function);
  JitCombination(const JitCombination&) = delete;
  JitCombination& operator=(const JitCombination&) = delete;

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  /// Returns the name of the function in the text.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Queues on `stream`: each of the `count` elements of `target` becomes that of the first operand, combined
  /// with that of the second, the result with that of the third, and so on, in ascending order. All are
  /// dense, and of a device that `stream`'s can access; `target` may be one of the first 64 operands, and
  /// else overlaps none.
  ///
  /// Elements of 16 bits are combined in float32, and rounded once for each kernel, which takes 64 operands
  /// at most, and of those that follow the first one its result as one of them. Throws Error(unsupported) for
  /// complex numbers and float8, and what compiling throws, the first time.
  void run(Runtime& runtime, backend::StreamRef stream, DType dtype, void* target,
           std::span<const void* const> operands, std::size_t count) const;
  /// Compiles the operation for a device and loads it there, so that the first `run` costs only a launch.
  void prepare(Runtime& runtime, int device, DType dtype) const;

 private:
  [[nodiscard]] std::shared_ptr<const backend::CompiledCode> code_for(Runtime& runtime, int device,
                                                                      DType dtype) const;

  std::string source_;
  std::string function_;  ///< for messages
  std::string name_;
  mutable std::mutex mutex_;
  /// Compiled code, which lives as long as the process, by device and element type.
  mutable std::map<std::pair<int, DType>, std::shared_ptr<const backend::CompiledCode>> known_;
};

/// The combination of an operation.
struct ReduceOpAccess {
  /// Returns nullptr for operations that are not compiled.
  [[nodiscard]] static const JitCombination* combination(const ReduceOp& operation) noexcept {
    return operation.combination_.get();
  }
};

}  // namespace tutti
