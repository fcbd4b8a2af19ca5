// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::test {

/// Returns the words that cuRAND's Philox gives from `curand_init(seed, subsequence, offset)` on; empty if
/// the GPU cannot be used.
[[nodiscard]] std::vector<std::uint32_t> curand_words(std::uint64_t seed, std::uint64_t subsequence,
                                                      std::uint64_t offset, std::size_t count);

}  // namespace tutti::test
