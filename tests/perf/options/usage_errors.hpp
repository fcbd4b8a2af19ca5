// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/usage_error.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {

/// The message of the UsageError that `action` throws; a failure, and "", if it throws none.
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
