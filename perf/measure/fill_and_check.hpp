// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"

#include <cstdint>
#include <span>

/// Writes predictable values into the buffers of a call, and compares every element of the outputs, in chunks
/// and on several threads. All functions block; the buffers must not be in use.
namespace tutti::perf {

void fill(std::span<const Buffer> buffers);
/// Makes every element differ from its expected value, except in strided tensors, which are parts of others.
void poison(std::span<const Buffer> buffers);
/// Sets a function that gets all buffers before `count_wrong` compares them; tests damage the buffers there.
using BeforeCheck = void (*)(std::span<const Buffer>);
void set_before_check(BeforeCheck call) noexcept;
/// Returns the number of elements that differ from their expected values, over all buffers.
[[nodiscard]] std::uint64_t count_wrong(std::span<const Buffer> buffers);

}  // namespace tutti::perf
