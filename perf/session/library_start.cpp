// SPDX-License-Identifier: Apache-2.0
#include "perf/session/library_start.hpp"

#include "perf/processes/usage_error.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

void set_environment(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

/// An error that begins with a variable begins with the option whose value the variable has passed on.
std::string with_option_named(std::string error, const Options& options) {
  const auto rename = [&error](std::string_view variable, std::string_view option) {
    if (error.starts_with(variable)) error.replace(0, variable.size(), option);
  };
  if (!options.virtual_topology.empty()) rename("TUTTI_VIRTUAL_TOPOLOGY: ", "--topology: ");
  if (options.backend == "cuda") rename("TUTTI_BACKEND is ", "--backend is ");
  if (options.virtual_devices) rename("TUTTI_VIRTUAL_DEVICES: ", "--devices: ");
  return error;
}

}  // namespace

Topology start_library(const Options& options, bool are_ranks) {
  // The library reads these when it is first used, which is below.
  set_environment("TUTTI_BACKEND", options.backend);
  set_environment("TUTTI_VIRTUAL_TOPOLOGY", options.virtual_topology);
  if (options.virtual_devices)
    set_environment("TUTTI_VIRTUAL_DEVICES", fmt::format("{}", *options.virtual_devices));
  // A rank has few devices; every virtual one it does not use would cost threads.
  const bool limits = are_ranks && std::getenv("TUTTI_VIRTUAL_TOPOLOGY") == nullptr &&
                      std::getenv("TUTTI_VIRTUAL_DEVICES") == nullptr;
  if (limits) set_environment("TUTTI_VIRTUAL_DEVICES", fmt::format("{}", options.devices_used.value_or(1)));
  try {
    init();
    if (limits) unsetenv("TUTTI_VIRTUAL_DEVICES");  // results record what was asked for
    // A rank's devices are seldom each other's peers, and a test would take memory on all that it sees.
    if (!are_ranks) self_test_peers();
    return discover_topology();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported) {
      throw UsageError(with_option_named(error.what(), options));  // an unusable backend or topology
    }
    throw;
  }
}

}  // namespace tutti::perf
