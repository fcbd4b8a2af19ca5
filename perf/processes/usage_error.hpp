// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace tutti::perf {

/// A mistake on the command line, or in a file it names. `what()` is one clear line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tutti::perf
