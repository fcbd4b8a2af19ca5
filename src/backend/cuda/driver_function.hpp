// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::backend::cuda {

/// A function of the driver, in the form it has since CUDA 12.0; nullptr if the driver has none of that name.
/// The library links with the runtime alone, which finds the driver where there is one.
[[nodiscard]] void* driver_function(const char* name) noexcept;

}  // namespace tutti::backend::cuda
