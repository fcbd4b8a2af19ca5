// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"

#include "backend/host/host_backend.hpp"
#include "base/fork_mark.hpp"
#include "device/blocking_call.hpp"
#include "device/external_streams.hpp"
#include "settings/environment.hpp"
#include "settings/log.hpp"
#include "stream_sanitizer/settings.hpp"
#include "stream_sanitizer/watched_backend.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

namespace tutti {
namespace {

std::mutex boot_mutex;
std::atomic<Runtime*> current_runtime{nullptr};
std::atomic<bool> is_booting{false};
std::atomic<bool> is_forked_off{false};  ///< this process was forked when a runtime was there, or being made
std::atomic<std::uint64_t> last_generation{0};

[[nodiscard]] bool are_streams_watched() {
  return stream_sanitizer::Settings::decide(Environment::get().stream_sanitizer);
}

std::unique_ptr<Runtime> make_runtime(backend::HostBackend machine) {
  if (are_streams_watched()) machine = stream_sanitizer::WatchedBackend::watch_machine(std::move(machine));
  return std::make_unique<Runtime>(std::move(machine.backend), machine.control);
}

std::unique_ptr<Runtime> make_runtime(std::unique_ptr<backend::Backend> gpus) {
  if (are_streams_watched()) gpus = std::make_unique<stream_sanitizer::WatchedBackend>(std::move(gpus));
  return std::make_unique<Runtime>(std::move(gpus), nullptr);
}

std::unique_ptr<Runtime> boot_virtual_machine(const virtual_devices::VirtualMachine& machine) {
  return make_runtime(backend::make_host_backend(machine, Environment::read().virtual_seed));
}

/// In a child just forked: the runtime's threads are its parent's, its locks may be held forever, and GPUs
/// don't answer. It stays for what is still bound to it, such as tensors that are destroyed.
void leave_runtime_to_parent() noexcept {
  ForkMark::count_fork();
  const bool was_booting = is_booting.exchange(false);
  if (current_runtime.exchange(nullptr) != nullptr || was_booting) is_forked_off.store(true);
  new (&boot_mutex) std::mutex;  // its owner, if it has one, is a thread of the parent
}

const int no_memory_to_watch_forks = pthread_atfork(nullptr, nullptr, leave_runtime_to_parent);

/// Holds the mutex while devices are started, and has children that are forked off meanwhile know of it.
class Booting {
 public:
  Booting() : lock_(boot_mutex) {
    if (no_memory_to_watch_forks != 0) throw std::bad_alloc();
    is_booting.store(true);
  }
  Booting(const Booting&) = delete;
  Booting& operator=(const Booting&) = delete;
  ~Booting() { is_booting.store(false); }

 private:
  std::lock_guard<std::mutex> lock_;
};

/// Makes `booted` the current runtime. While booting.
Runtime& enter(std::unique_ptr<Runtime> booted) {
  if (Environment::read().launch_blocking) booted->backend().block_launches();
  Runtime* const runtime = booted.release();
  current_runtime.store(runtime, std::memory_order_release);
  return *runtime;
}

/// Makes the runtime that the environment asks for.
std::unique_ptr<Runtime> boot() {
  const BackendChoice choice = Environment::get().backend;
  if (choice != BackendChoice::host) {
    std::string reason;
    if (auto gpus = backend::make_cuda_backend(reason)) return make_runtime(std::move(gpus));
    if (choice == BackendChoice::cuda) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("TUTTI_BACKEND is cuda, but no GPU is usable: {}", reason));
    }
    const auto machine = virtual_devices::VirtualMachine::from_environment();
    auto booted = boot_virtual_machine(machine);
    log_warning(
        fmt::format("no GPU is usable, so the {} devices are virtual devices, which run on the CPU: {}. If "
                    "that is wanted, set TUTTI_BACKEND=host",
                    machine.device_count, reason));
    return booted;
  }
  return boot_virtual_machine(virtual_devices::VirtualMachine::from_environment());
}

// Not inlined are what `get` and `require_device` seldom come to: every call would save registers for them.

[[gnu::noinline]] Runtime& start() {
  if (is_forked_off.load()) {
    throw Error(
        ErrorCode::unsupported,
        "tutti: this process was forked from one that was using devices already, expected a fork before "
        "their first use, or exec after it");
  }
  const Booting booting;
  Runtime* const runtime = current_runtime.load(std::memory_order_acquire);
  return runtime != nullptr ? *runtime : enter(boot());
}

[[noreturn, gnu::noinline]] void refuse_device(Device device, int device_count, std::string_view function) {
  const std::string given = device.is_host() ? "the host" : std::to_string(device.index());
  const std::string expected =
      device_count == 0 ? "but there are no devices" : fmt::format("expected 0 to {}", device_count - 1);
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: device is {}, {}", function, given, expected));
}

}  // namespace

Runtime& Runtime::get() {
  Runtime* const runtime = get_if_initialized();
  return runtime != nullptr ? *runtime : start();
}

int Runtime::count_devices() {
  if (const Runtime* const runtime = get_if_initialized()) return runtime->device_count();
  if (is_forked_off.load()) return 0;
  const BackendChoice choice = Environment::get().backend;
  if (choice != BackendChoice::host) {
    const std::optional<int> gpus = backend::count_gpus_unstarted();
    if (gpus.value_or(0) > 0) return *gpus;
    if (!gpus) {
      try {
        return get().device_count();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::unsupported) return 0;
        throw;
      }
    }
    if (choice == BackendChoice::cuda) return 0;
  }
  return virtual_devices::VirtualMachine::from_environment().device_count;
}

Runtime* Runtime::get_if_initialized() noexcept {
  return current_runtime.load(std::memory_order_acquire);
}

void Runtime::replace(const virtual_devices::VirtualMachine& machine) {
  const BlockingCall blocks("virtual_devices::start");
  const Booting booting;
  Runtime* old = get_if_initialized();
  if (old != nullptr) old->require_unused();
  // Made before the old one goes, so that a machine that contradicts itself leaves everything as it was.
  backend::HostBackend host = backend::make_host_backend(machine, Environment::read().virtual_seed);
  delete old;  // still the current runtime while its parts are destroyed
  current_runtime.store(nullptr, std::memory_order_release);
  enter(make_runtime(std::move(host)));
}

Runtime::Runtime(std::unique_ptr<backend::Backend> backend, backend::VirtualMachineControl* control)
    : backend_(std::move(backend)),
      control_(control),
      device_count_(backend_->device_count()),
      generation_(last_generation.fetch_add(1) + 1) {}

Runtime::~Runtime() {
  settle(Settling::given_up);
  destroy_loose_parts();
  for (std::atomic<RuntimePart*>& place : fixed_) {
    delete place.load();
    place.store(nullptr);
  }
}

void Runtime::require_device(Device device, std::string_view function) const {
  if (device.index() < 0 || device.index() >= device_count_) [[unlikely]]
    refuse_device(device, device_count_, function);
}

RuntimePart& Runtime::add_fixed(PartSlot slot, RuntimePart* (*make)(Runtime&)) {
  const std::lock_guard lock(parts_mutex_);
  std::atomic<RuntimePart*>& place = fixed_[static_cast<std::size_t>(slot)];
  if (RuntimePart* const made = place.load(std::memory_order_relaxed)) return *made;
  RuntimePart* const part = make(*this);
  place.store(part, std::memory_order_release);
  return *part;
}

void* Runtime::find_or_add(std::type_index type, std::shared_ptr<void> (*make)(Runtime&)) {
  const std::lock_guard lock(parts_mutex_);
  for (const LoosePart& part : loose_) {
    if (part.type == type) return part.object.get();
  }
  // Pushed only when made: those it needed for that are then older, and destroyed after it.
  std::shared_ptr<void> object = make(*this);
  return loose_.emplace_back(LoosePart{type, std::move(object)}).object.get();
}

void Runtime::settle(Settling how) {
  for (const std::atomic<RuntimePart*>& place : fixed_) {
    if (RuntimePart* const part = place.load(std::memory_order_acquire)) part->settle(how);
  }
}

void Runtime::destroy_loose_parts() {
  const std::lock_guard lock(parts_mutex_);
  while (!loose_.empty()) {
    const std::shared_ptr<void> newest = std::move(loose_.back().object);
    loose_.pop_back();
  }
}

void Runtime::require_uncaptured() {
  for (int device = 0; device < device_count_; ++device) {
    if (!has_capture_on(*backend_, device)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("virtual_devices::start: a stream of device {} is being captured, expected none: "
                            "end the capture first",
                            device));
  }
}

void Runtime::require_unused() {
  require_uncaptured();
  settle(Settling::at_once);
  destroy_loose_parts();
  for (int device = 0; device < device_count_; ++device) {
    try {
      backend_->synchronize_device(device);
    } catch (const Error&) {
      // Failures of work on devices that are about to be replaced.
    }
  }
  settle(Settling::awaited);
  for (const std::atomic<RuntimePart*>& place : fixed_) {
    if (RuntimePart* const part = place.load(std::memory_order_acquire)) part->require_unused();
  }
}

}  // namespace tutti
