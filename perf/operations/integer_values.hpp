// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/positions.hpp"
#include "perf/operations/values.hpp"

namespace tutti::perf {

/// Pattern::integers: what sources contribute at these positions, reduced as `content` says, to `target`.
void fill_integers(const Content& content, Positions positions, void* target);

}  // namespace tutti::perf
