// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Reports to profilers through NVTX. Thread-safe. In a build without NVTX nobody listens.
namespace tutti::backend::nvtx {

/// Returns true if a tool listens. The first call looks for one, and may load it.
[[nodiscard]] bool has_listener() noexcept;

// The program's own marks and ranges, in the domain without a name.

void mark(const char* message) noexcept;
void push(const char* message) noexcept;
void pop() noexcept;

// The library's own ranges, in a domain of their own.

void push_call(const char* message, std::uint64_t bytes) noexcept;
void pop_call() noexcept;

}  // namespace tutti::backend::nvtx
