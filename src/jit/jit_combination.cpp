// SPDX-License-Identifier: Apache-2.0
#include "jit/jit_combination.hpp"

#include "jit/code_cache.hpp"
#include "jit/jit_source.hpp"
#include "jit_text/function_name.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti {

JitCombination::JitCombination(std::string source, std::string_view function)
    : source_(std::move(source)), function_(function), name_(jit_function_name(source_, function)) {}

std::shared_ptr<const backend::CompiledCode> JitCombination::code_for(Runtime& runtime, int device,
                                                                      DType dtype) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find({device, dtype}); known != known_.end()) return known->second;
  }
  require_jit_dtype(dtype, function_);
  auto code = compiled(runtime.backend(), device, combination_text(source_, name_, dtype));
  const std::lock_guard lock(mutex_);
  return known_[{device, dtype}] = std::move(code);
}

void JitCombination::prepare(Runtime& runtime, int device, DType dtype) const {
  static_cast<void>(code_for(runtime, device, dtype));
}

void JitCombination::run(Runtime& runtime, backend::StreamRef stream, DType dtype, void* target,
                         std::span<const void* const> operands, std::size_t count) const {
  if (operands.empty() || count == 0) return;
  const auto code = code_for(runtime, stream.device, dtype);
  const std::size_t bytes = count * size_of(dtype);
  using Places = CombinationPlaces;
  bool has_begun = false;
  while (!operands.empty()) {
    std::array<std::uint64_t, Places::total> words{};
    std::vector<backend::CodeMemory> memory{{Places::target, bytes, true}};
    std::size_t taken = 0;
    const auto add = [&](const void* operand) {
      words[Places::operands + taken] = reinterpret_cast<std::uint64_t>(operand);
      memory.push_back({Places::operands + taken, bytes, false});
      ++taken;
    };
    if (has_begun) add(target);
    const std::size_t next = std::min(operands.size(), most_combined - taken);
    std::ranges::for_each(operands.first(next), add);
    operands = operands.subspan(next);
    has_begun = true;
    words[Places::count] = count;
    words[Places::operands_count] = taken;
    words[Places::target] = reinterpret_cast<std::uint64_t>(target);
    code_calls_of(runtime.backend())
        .run_code(stream, code, {.parameters = words, .memory = memory, .count = count});
  }
}

}  // namespace tutti
