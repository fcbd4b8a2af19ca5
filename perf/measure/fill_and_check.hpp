// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"

#include <cstdint>
#include <span>

/// Writes predictable values into the buffers of a call and compares what came out, every element of it, in
/// chunks and on several threads. All of them block; the buffers must not be in use.
namespace tutti::perf {

void fill(std::span<const Buffer> buffers);
/// Makes every element differ from what it must become, except of strided tensors: they are parts of others.
void poison(std::span<const Buffer> buffers);
/// Has `call` see all buffers before `count_wrong` compares them: tests damage them there.
using BeforeCheck = void (*)(std::span<const Buffer>);
void set_before_check(BeforeCheck call) noexcept;
/// Elements that differ from their contents, over all buffers.
[[nodiscard]] std::uint64_t count_wrong(std::span<const Buffer> buffers);

}  // namespace tutti::perf
