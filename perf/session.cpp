#include "session.hpp"

#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "usage_error.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr int most_buffer_sets = 32;

void set_environment(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

/// An error that begins with a variable begins with the option whose value the variable has passed on.
std::string with_option_named(std::string error, const Options& options) {
  const auto rename = [&error](std::string_view variable, std::string_view option) {
    if (error.starts_with(variable)) error.replace(0, variable.size(), option);
  };
  if (!options.virtual_topology.empty()) rename("TUTTI_VIRTUAL_TOPOLOGY: ", "--topology: ");
  if (options.virtual_devices) rename("TUTTI_VIRTUAL_DEVICES: ", "--devices: ");
  return error;
}

}  // namespace

Session::Session(const Options& options) {
  // The library reads these when it is first used, which is below.
  set_environment("TUTTI_BACKEND", options.backend);
  set_environment("TUTTI_VIRTUAL_TOPOLOGY", options.virtual_topology);
  if (options.virtual_devices)
    set_environment("TUTTI_VIRTUAL_DEVICES", fmt::format("{}", *options.virtual_devices));
  try {
    init();
    self_test_peers();
    topology_ = discover_topology();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported) {
      throw UsageError(with_option_named(error.what(), options));  // an unusable backend or topology
    }
    throw;
  }

  const int available = tutti::device_count();
  const int used = options.devices_used.value_or(available);
  if (used > available) {
    throw UsageError(fmt::format("-g: {} devices asked for, but there are {} on backend {}", used, available,
                                 name_of(topology_.backend)));
  }
  if (options.root && *options.root >= used) {
    throw UsageError(
        fmt::format("-r: root {} is not one of the {} devices (0 to {})", *options.root, used, used - 1));
  }
  for (int device = 0; device < used; ++device) {
    streams_.emplace_back(device);
    set_stream(streams_.back());
    const std::size_t free = mem_get_info(device).free;
    free_bytes_ = device == 0 ? free : std::min(free_bytes_, free);
  }
}

void Session::synchronize() const {
  for (const Stream& stream : streams_) stream.synchronize();
}

int Session::buffer_sets(std::size_t payload_bytes) const {
  const std::size_t payload = std::max<std::size_t>(payload_bytes, 1);
  const std::size_t cache = topology_.devices.front().l2_cache_size;
  // Virtual devices share the host's caches: rotating shows mistakes in reuse there, not bandwidth.
  const std::size_t wanted = topology_.backend == BackendKind::host ? 2 : 2 * cache / payload + 1;
  const std::size_t affordable = free_bytes_ / 2 / (2 * payload);  // the root holds an input and an output
  return static_cast<int>(std::clamp<std::size_t>(std::min(wanted, affordable), 1, most_buffer_sets));
}

}  // namespace tutti::perf
