// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"

#include <initializer_list>
#include <vector>

namespace tutti::perf {

/// Parses a command line.
inline Options parsed(std::initializer_list<const char*> words, Mode mode = Mode::single_process) {
  std::vector<const char*> argv{"tutti-perf"};
  argv.insert(argv.end(), words);
  return parse_options(static_cast<int>(argv.size()), argv.data(), mode);
}

}  // namespace tutti::perf
