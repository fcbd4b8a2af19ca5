// SPDX-License-Identifier: Apache-2.0
#include "tutti/device.hpp"

#include "base/quoted_text.hpp"
#include "device/current_device.hpp"
#include "tutti/error.hpp"

#include <charconv>
#include <exception>
#include <ostream>
#include <system_error>

#include <fmt/format.h>

namespace tutti {

std::string_view name_of(BackendKind kind) noexcept {
  switch (kind) {
    case BackendKind::host:
      return "host";
    case BackendKind::cuda:
      return "cuda";
  }
  return "unknown";
}

std::string to_string(Device device) {
  if (device.is_host()) return "host";
  return device.is_current() ? "the current device" : fmt::format("device:{}", device.index());
}

std::ostream& operator<<(std::ostream& stream, Device device) {
  return stream << to_string(device);
}

Device Device::parse(std::string_view text) {
  if (text == "host" || text == "cpu") return host();
  for (const std::string_view kind : {"device", "cuda"}) {
    if (!text.starts_with(kind)) continue;
    std::string_view rest = text.substr(kind.size());
    if (rest.empty()) return current();
    // A number has one spelling: without a sign, and without zeros in front.
    if (!rest.starts_with(':') || (rest.size() > 2 && rest[1] == '0')) break;
    rest.remove_prefix(1);
    int index = -1;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
    if (failure != std::errc() || end != rest.data() + rest.size() || rest.front() == '-') break;
    return Device(index);
  }
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("Device::parse: text is \"{}\", expected host, cpu, or device or cuda, alone or with a "
                  "number, as in cuda:1",
                  quoted_text(text)));
}

bool is_available() noexcept {
  try {
    return Runtime::count_devices() > 0;
  } catch (const std::exception&) {
    return false;  // whoever goes on to use a device is told why
  }
}

bool is_initialized() noexcept {
  return Runtime::get_if_initialized() != nullptr;
}

void init() {
  static_cast<void>(Runtime::get());
}

BackendKind backend_kind() {
  return Runtime::get().backend().kind();
}

int device_count() {
  return Runtime::count_devices();
}

int current_device() {
  return current_index(Runtime::get());
}

void set_device(Device device) {
  if (device.index() < 0) return;
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "set_device");
  runtime.backend().set_current_device(index);
  thread_device(runtime) = index;
}

const DeviceProperties& get_device_properties(Device device) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().properties(index_of(runtime, device, "get_device_properties"));
}

std::string get_device_name(Device device) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().properties(index_of(runtime, device, "get_device_name")).name;
}

std::pair<int, int> get_device_capability(Device device) {
  Runtime& runtime = Runtime::get();
  const DeviceProperties& properties =
      runtime.backend().properties(index_of(runtime, device, "get_device_capability"));
  return {properties.major, properties.minor};
}

std::vector<std::string> get_arch_list() {
  const auto architectures = backend::compiled_architectures();
  return {architectures.begin(), architectures.end()};
}

std::string get_gencode_flags() {
  std::string flags;
  for (const std::string_view architecture : backend::compiled_architectures()) {
    // "sm_90" is machine code for, and "compute_90" PTX of, the virtual architecture compute_90.
    const std::string_view version = architecture.substr(architecture.find('_') + 1);
    flags +=
        fmt::format("{}-gencode arch=compute_{},code={}", flags.empty() ? "" : " ", version, architecture);
  }
  return flags;
}

bool can_device_access_peer(Device device, Device peer) {
  Runtime& runtime = Runtime::get();
  const int here = index_of(runtime, device, "can_device_access_peer");
  const int there = index_of(runtime, peer, "can_device_access_peer");
  return here != there && runtime.backend().can_access_peer(here, there);
}

MemoryInfo mem_get_info(Device device) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().memory_info(index_of(runtime, device, "mem_get_info"));
}

DeviceGuard::DeviceGuard(Device device) : restores_(device.index() >= 0) {
  if (!restores_) {
    // It does nothing where there is no device, too, and starts nothing.
    Runtime* const runtime = Runtime::get_if_initialized();
    if (runtime != nullptr && runtime->device_count() > 0) original_ = current_index(*runtime);
    return;
  }
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "DeviceGuard");
  int& current = thread_device(runtime);
  const backend::NativePlace previous = runtime.backend().enter_device(index);
  context_ = previous.context;
  original_ = previous.device >= 0 ? previous.device : current;
  current = index;
}

DeviceGuard::~DeviceGuard() {
  if (!restores_) return;
  // Of devices that were replaced within the scope nothing is left to restore.
  Runtime* const runtime = Runtime::get_if_initialized();
  if (runtime == nullptr) return;
  runtime->backend().leave_device({.device = original_, .context = context_});
  if (original_ >= runtime->device_count()) return;
  thread_device(*runtime) = original_;
}

}  // namespace tutti
