// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/failure.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {

/// Returns the message of the UsageError that `action` throws; if it throws none, fails and returns "".
template <class Action>
std::string usage_error_of(Action&& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UsageError";
  return "";
}

}  // namespace tutti::perf
