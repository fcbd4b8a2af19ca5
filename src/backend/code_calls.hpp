// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti::backend {

/// The result of compiling a text for one kind of device. Work that was queued, or recorded into a graph,
/// keeps what it needs of it.
class CompiledCode {
 public:
  CompiledCode() = default;
  CompiledCode(const CompiledCode&) = delete;
  CompiledCode& operator=(const CompiledCode&) = delete;
  virtual ~CompiledCode() = default;
};

/// C++ source text with one entry, which is called with a block of parameters, all of them words of 8 bytes.
///
/// On GPUs the entry is `extern "C" __global__ void ENTRY(PARAMETERS)`, whose threads share the elements in
/// any way; on virtual devices `extern "C" void ENTRY(const PARAMETERS*)`, which processes all of them. The
/// text distinguishes the two by `__CUDACC_RTC__`.
struct CodeText {
  std::string text;
  std::string entry;
  std::string compiler = {};  ///< for virtual devices; empty: one of the usual names
};

/// Memory that a run uses.
struct CodeMemory {
  std::size_t word = 0;  ///< index of the parameter that is its address
  std::size_t bytes = 0;
  bool is_written = false;
};

/// One run; all of it is read before the call returns.
struct CodeRun {
  std::span<const std::uint64_t> parameters;  ///< `most_code_parameters` at most
  std::span<const CodeMemory> memory;
  std::size_t count = 0;  ///< elements
};
inline constexpr std::size_t most_code_parameters = 480;

/// Compiles and runs kernels at run time. A `Backend` may offer it in addition (`code_calls_of`).
class CodeCalls {
 public:
  CodeCalls(const CodeCalls&) = delete;
  CodeCalls& operator=(const CodeCalls&) = delete;

  /// Returns the target of a device: devices with the same target run the same compiled code.
  [[nodiscard]] virtual std::string code_target(int device) = 0;
  /// Compiles a text; may take seconds. Throws Error(unsupported) if there is no compiler, saying what was
  /// looked for, or it fails itself; Error(out_of_memory) if the system refuses it room or memory; and
  /// Error(invalid_argument) with the compiler's message if it refuses the text.
  [[nodiscard]] virtual std::shared_ptr<const CompiledCode> compile(int device, const CodeText& code) = 0;
  /// Loads code of the device's target there, so that its first run need not, which may wait for what runs
  /// there meanwhile.
  virtual void load(int device, const CompiledCode& code) = 0;
  /// Queues a run on `stream`, whose device has the target that `code` was compiled for.
  virtual void run_code(StreamRef stream, const std::shared_ptr<const CompiledCode>& code,
                        const CodeRun& run) = 0;

 protected:
  CodeCalls() = default;
  ~CodeCalls() = default;
};

}  // namespace tutti::backend
