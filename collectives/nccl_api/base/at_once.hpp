// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/thread.hpp"

#include <cstddef>
#include <functional>

namespace tutti::nccl_api {

/// Calls `work` with each number below `count` at the same time, and returns when all calls have; for all but
/// the first, there are threads with the role. Throws the first error.
void do_at_once(std::size_t count, const backend::Thread::Role& role,
                const std::function<void(std::size_t)>& work);

}  // namespace tutti::nccl_api
