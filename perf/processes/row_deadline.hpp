// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace tutti::perf {

/// Runs `work`, which `what` names in messages, and ends the run if it takes longer than `limit`: first
/// `check_interrupt` throws TimedOut, and `release` is called once, on another thread, to end waits for other
/// ranks; if work is still stuck some seconds later, the process ends.
void within(std::optional<std::chrono::seconds> limit, const std::string& what,
            const std::function<void()>& work, const std::function<void(const std::string& reason)>& release);

}  // namespace tutti::perf
