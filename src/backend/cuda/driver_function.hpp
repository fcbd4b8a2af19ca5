#pragma once

namespace tutti::backend::cuda {

/// A function of the driver's, as CUDA 12.0 has it, for what the runtime does not offer; nullptr if the
/// driver has none of that name.
[[nodiscard]] void* find_driver_function(const char* name) noexcept;

template <class Function>
[[nodiscard]] Function driver_function(const char* name) noexcept {
  return reinterpret_cast<Function>(find_driver_function(name));
}

}  // namespace tutti::backend::cuda
