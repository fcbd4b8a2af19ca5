// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"

#include "device/runtime.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tutti::test {

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr double build_scale = 0.1;
constexpr double build_patience = 4.0;
#elif defined(__SANITIZE_ADDRESS__)
constexpr double build_scale = 0.25;
constexpr double build_patience = 2.0;
#else
constexpr double build_scale = 1.0;
constexpr double build_patience = 1.0;
#endif

double number_from_environment(const char* name, double standard) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::stod(text) : standard;
}

/// Returns ctest's limit for this program; 0 if it is not known.
std::chrono::milliseconds ctest_limit() {
  static const double seconds = number_from_environment("TUTTI_TEST_TIMEOUT", 0);
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

}  // namespace

std::vector<Device> first_devices(int wanted) {
  std::vector<Device> devices;
  for (int index = 0; index < std::min(wanted, device_count()); ++index) devices.emplace_back(index);
  return devices;
}

std::int64_t scaled(std::int64_t count) {
  static const double scale = build_scale * number_from_environment("TUTTI_TEST_SCALE", 1.0);
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(count) * scale));
}

std::chrono::milliseconds patient(std::chrono::milliseconds time) {
  static const double patience = build_patience * number_from_environment("TUTTI_TEST_PATIENCE", 1.0);
  return std::chrono::milliseconds(std::llround(static_cast<double>(time.count()) * patience));
}

std::chrono::milliseconds hang_limit(std::chrono::milliseconds time) {
  return std::max(patient(time), ctest_limit() / 2);
}

std::chrono::milliseconds process_limit(std::chrono::milliseconds time) {
  const std::chrono::milliseconds of_ctest = ctest_limit();
  return of_ctest > std::chrono::milliseconds(0) ? of_ctest * 3 / 4 : patient(time);
}

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("TUTTI_TEST_SEED");
    return text != nullptr && *text != '\0' ? std::stoull(text) : 20260401ULL;
  }();
  return seed;
}

double test_seconds(double standard) {
  return number_from_environment("TUTTI_TEST_SECONDS", standard);
}

bool is_under_a_tool() {
  const char* const launcher = std::getenv("TUTTI_TEST_LAUNCHER");
  return launcher != nullptr && *launcher != '\0';
}

bool asks_for_gpus() {
  const char* const backend = std::getenv("TUTTI_BACKEND");
  return backend != nullptr && std::string_view(backend) == "cuda";
}

bool on_virtual_devices() {
  return backend_kind() == BackendKind::host;
}

std::size_t free_memory(int device) {
  return Runtime::get().backend().memory_info(device).free;
}

std::uint64_t operations_enqueued() {
  return on_virtual_devices() ? virtual_devices::operations_enqueued() : 0;
}

void synchronize_all() {
  for (int device = 0; device < device_count(); ++device) synchronize(device);
}

}  // namespace tutti::test
