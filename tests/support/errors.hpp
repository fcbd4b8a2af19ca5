#pragma once

#include "tutti/error.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// `call` throws an Error of this code whose message contains all `fragments`.
[[nodiscard]] testing::AssertionResult refuses(const std::function<void()>& call, ErrorCode code,
                                               const std::vector<std::string>& fragments);

}  // namespace tutti::test
