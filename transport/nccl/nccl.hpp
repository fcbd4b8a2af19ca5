// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <string>

namespace tutti::transport::nccl {

/// NCCL's version, for instance "2.28.9", or why it cannot be used: not built in, library not found (the path
/// tried and the loader's message), too old, or virtual devices. `availability` loads the library (once).
struct Availability {
  bool available = false;
  std::string detail;
};
[[nodiscard]] Availability availability(Runtime& runtime);
/// Returns why there is no NCCL, as far as is known without its library: virtual devices, or a build without
/// NCCL. Empty if there may be one. Loads nothing.
[[nodiscard]] std::string absence(Runtime& runtime);

/// Returns why NCCL cannot carry `problem`; empty if it can. It needs all operands on devices, each device at
/// most once per role, contiguous flows (one row), element types that NCCL has where it sums, and no bitwise
/// determinism. Connects the devices on first use, which may take seconds, and returns the reason if that
/// fails.
[[nodiscard]] std::string refusal(Runtime& runtime, const Problem& problem);

/// Returns a plan of the problem as one grouped call; `refusal` must be empty.
[[nodiscard]] Plan lower(Runtime& runtime, const Problem& problem);

}  // namespace tutti::transport::nccl
