// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/report/output.hpp"

#include <functional>

namespace tutti::perf {

/// What `work` returns, an exit status. What it throws becomes a line on the standard error stream and the
/// status that goes with it.
[[nodiscard]] int guarded(const Output& output, const std::function<int()>& work);

}  // namespace tutti::perf
