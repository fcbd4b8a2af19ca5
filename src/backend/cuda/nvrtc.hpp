// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tutti::backend::cuda {

/// Compiles machine code for GPUs of compute capability `major`.`minor`, by NVRTC, which is loaded for it.
/// Throws Error(unsupported) if there is no NVRTC, it does not know these GPUs or fails itself,
/// Error(out_of_memory) if it has no memory left, and Error(invalid_argument) with its message if it refuses
/// the text.
[[nodiscard]] std::vector<char> compile_with_nvrtc(const std::string& text, int major, int minor);

}  // namespace tutti::backend::cuda
