// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// What this process holds, for tests that nothing is left behind.
namespace tutti::test {

/// Those that stay open; one thread at a time.
[[nodiscard]] std::size_t open_descriptors();
[[nodiscard]] std::size_t threads();
/// Mappings of memory that the library shares with other processes.
[[nodiscard]] std::size_t shared_mappings();

}  // namespace tutti::test
