// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.hpp"

namespace tutti::backend {

std::span<const std::string_view> compiled_architectures() noexcept {
  return {};
}

std::unique_ptr<Backend> make_cuda_backend(std::string& reason) {
  reason = "tutti was built without CUDA";
  return nullptr;
}

std::optional<int> count_gpus_unstarted() {
  return 0;
}

}  // namespace tutti::backend
