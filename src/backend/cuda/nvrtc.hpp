// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tutti::backend::cuda {

/// Machine code for GPUs of compute capability `major`.`minor`, made by NVRTC, which is loaded for it. Throws
/// Error(unsupported) if there is no NVRTC, or it does not know these GPUs, and Error(invalid_argument) with
/// what it says if it refuses the text.
[[nodiscard]] std::vector<char> compile_with_nvrtc(const std::string& text, int major, int minor);

}  // namespace tutti::backend::cuda
