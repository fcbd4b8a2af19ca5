// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::backend::cuda {

/// Returns a function of the driver, in the form it has since CUDA 12.0; nullptr if the driver has none of
/// that name. The library links with the runtime only, which finds the driver if there is one.
[[nodiscard]] void* driver_function(const char* name) noexcept;

}  // namespace tutti::backend::cuda
