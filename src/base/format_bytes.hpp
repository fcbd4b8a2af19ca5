// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

/// Formats a size for people: "512 bytes", "1.50 GiB".
[[nodiscard]] std::string format_bytes(std::size_t bytes);

}  // namespace tutti
