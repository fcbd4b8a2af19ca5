// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <string>

namespace tutti::transport::nccl {

/// NCCL's version, for instance "2.28.9", or why it cannot be used: not built in, library not found (the path
/// tried and the loader's message), too old, or virtual devices. Loads the library (never twice).
struct Availability {
  bool available = false;
  std::string detail;
};
[[nodiscard]] Availability availability(Runtime& runtime);
/// Why there is no NCCL here, as far as can be said without its library: virtual devices, a build without.
/// Empty if there may be one. Loads nothing.
[[nodiscard]] std::string absence(Runtime& runtime);

/// Why NCCL cannot carry `problem`; empty if it can. It carries: all operands on devices, each device at most
/// once per role, contiguous flows (one row), element types NCCL has where it sums, and only without bitwise
/// determinism. Connects the devices on first use, which may take seconds; if that fails, it is why.
[[nodiscard]] std::string refusal(Runtime& runtime, const Problem& problem);

/// The problem as one grouped call, when `refusal` is empty.
[[nodiscard]] Plan lower(Runtime& runtime, const Problem& problem);

}  // namespace tutti::transport::nccl
