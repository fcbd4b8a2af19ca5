#include "tutti/device.hpp"

#include "host_waits.hpp"
#include "thread_current.hpp"

#include <exception>

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
  return device.is_host() ? std::string("host") : fmt::format("device:{}", device.index());
}

bool is_available() noexcept {
  try {
    return Runtime::get().device_count() > 0;
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
  return Runtime::get().device_count();
}

int current_device() {
  return thread_current(Runtime::get()).device;
}

void set_device(int device) {
  if (device < 0) return;
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "set_device");
  // Also when tutti's current device stays the same: somebody may have called CUDA in between.
  runtime.backend().set_current_device(device);
  thread_current(runtime).device = device;
}

const DeviceProperties& get_device_properties(int device) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "get_device_properties");
  return runtime.backend().properties(device);
}

std::string get_device_name(int device) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "get_device_name");
  return runtime.backend().properties(device).name;
}

std::pair<int, int> get_device_capability(int device) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "get_device_capability");
  const DeviceProperties& properties = runtime.backend().properties(device);
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

bool can_device_access_peer(int device, int peer) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "can_device_access_peer");
  runtime.require_device(peer, "can_device_access_peer");
  return device != peer && runtime.backend().can_access_peer(device, peer);
}

void synchronize(int device) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "synchronize");
  runtime.release_collected();
  runtime.backend().synchronize_device(device);
  HostWaits::count_one();
}

void synchronize() {
  synchronize(current_device());
}

MemoryInfo mem_get_info(int device) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "mem_get_info");
  return runtime.backend().memory_info(device);
}

DeviceGuard::DeviceGuard(Device device) : restores_(device.index() >= 0) {
  // A guard that does nothing does so where there is no device, too.
  original_ = restores_ || is_available() ? current_device() : -1;
  if (restores_) set_device(device.index());
}

DeviceGuard::~DeviceGuard() {
  if (!restores_) return;
  try {
    set_device(original_);
  } catch (const std::exception&) {
    // Fails only if the device has failed, or was replaced within the scope: nothing is left to restore.
  }
}

}  // namespace tutti
