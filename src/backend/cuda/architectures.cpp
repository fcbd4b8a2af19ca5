// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.hpp"

#include <array>

namespace tutti::backend {

std::span<const std::string_view> compiled_architectures() noexcept {
  static constexpr auto names = std::to_array<std::string_view>({TUTTI_CUDA_ARCHITECTURE_NAMES});
  return names;
}

}  // namespace tutti::backend
