// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// Counts the process's resources, for tests that nothing is left behind.
namespace tutti::test {

/// Returns the number of descriptors that stay open. Call it on one thread at a time.
[[nodiscard]] std::size_t open_descriptors();
[[nodiscard]] std::size_t threads();
/// Returns the number of mappings of memory that the library shares with other processes.
[[nodiscard]] std::size_t shared_mappings();
/// Returns how many bytes of the heap are allocated.
[[nodiscard]] std::size_t heap_bytes();

}  // namespace tutti::test
