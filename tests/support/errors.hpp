// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Checks that `call` throws an Error of this code whose message contains all `fragments`.
[[nodiscard]] testing::AssertionResult refuses(const std::function<void()>& call, ErrorCode code,
                                               const std::vector<std::string>& fragments);

/// Checks that `text` contains all `fragments`.
[[nodiscard]] testing::AssertionResult mentions(const std::string& text,
                                                const std::vector<std::string>& fragments);

/// Makes calls until one fails or its work on `device` does; returns the error's message.
[[nodiscard]] std::string failure_of(int device, const std::function<void()>& call);

}  // namespace tutti::test
