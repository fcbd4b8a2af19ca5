// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"

#include "backend/host/host_backend.hpp"
#include "base/fork_mark.hpp"
#include "device/blocking_call.hpp"
#include "device/host_waits.hpp"
#include "settings/environment.hpp"
#include "settings/log.hpp"
#include "sharing/sharing.hpp"
#include "stream/external_streams.hpp"
#include "stream_sanitizer/settings.hpp"
#include "stream_sanitizer/watched_backend.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <thread>
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

/// What the environment asks for.
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
        fmt::format("no GPU is usable, so the {} devices are virtual ones, which this machine's processors "
                    "carry out: {}. If that is wanted, set TUTTI_BACKEND=host",
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

struct Runtime::StreamPool {
  static constexpr std::size_t streams_per_priority = 32;
  struct Level {
    std::array<backend::StreamRef, streams_per_priority> streams;
    std::size_t created = 0;
    std::size_t next = 0;
  };
  std::mutex mutex;
  std::vector<Level> levels;  // one for each priority, most urgent first
};

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
  delete old;  // still the current runtime while its extensions are destroyed
  current_runtime.store(nullptr, std::memory_order_release);
  enter(make_runtime(std::move(host)));
}

Runtime::Runtime(std::unique_ptr<backend::Backend> backend, backend::VirtualMachineControl* control)
    : backend_(std::move(backend)),
      control_(control),
      device_count_(backend_->device_count()),
      generation_(last_generation.fetch_add(1) + 1),
      ended_work_(device_count_),
      events_(std::make_unique<EventPool>(*backend_, device_count_)),
      pinned_(std::make_unique<PinnedAllocator>(*backend_, *events_)),
      peer_enabled_(static_cast<std::size_t>(device_count_ * device_count_)),
      late_releases_(*backend_, *events_),
      shared_before_(std::make_unique<SharedBefore>()) {
  for (int device = 0; device < device_count_; ++device) {
    allocators_.push_back(std::make_unique<CachingAllocator>(*backend_, *events_, device, &segments_,
                                                             Environment::get().allocators));
    stream_pools_.push_back(std::make_unique<StreamPool>());
  }
}

Runtime::~Runtime() {
  late_releases_.release_all();
  destroy_extensions();
  late_releases_.release_all();
  pinned_.reset();
  allocators_.clear();
  for (const auto& pool : stream_pools_) {
    for (const StreamPool::Level& level : pool->levels) {
      for (std::size_t i = 0; i < level.created; ++i) backend_->destroy_stream(level.streams[i]);
    }
  }
}

int Runtime::clamped_priority(int device, int priority) const {
  const auto [least, greatest] = backend_->stream_priority_range(device);
  return std::clamp(priority, greatest, least);
}

backend::StreamRef Runtime::pooled_stream(int device, int priority) {
  const auto [least, greatest] = backend_->stream_priority_range(device);
  const int clamped = clamped_priority(device, priority);
  StreamPool& pool = *stream_pools_[static_cast<std::size_t>(device)];
  const std::lock_guard lock(pool.mutex);
  pool.levels.resize(static_cast<std::size_t>(least - greatest + 1));
  StreamPool::Level& level = pool.levels[static_cast<std::size_t>(clamped - greatest)];
  if (level.next == level.created) {
    level.streams[level.created] = backend_->create_stream(device, clamped);
    ++level.created;
  }
  const backend::StreamRef stream = level.streams[level.next];
  level.next = (level.next + 1) % StreamPool::streams_per_priority;
  return stream;
}

bool Runtime::owns(backend::StreamRef stream) {
  if (stream == backend_->default_stream(stream.device)) return true;
  StreamPool& pool = *stream_pools_[static_cast<std::size_t>(stream.device)];
  const std::lock_guard lock(pool.mutex);
  return std::ranges::any_of(pool.levels, [stream](const StreamPool::Level& level) {
    return std::ranges::find(level.streams, stream) != level.streams.end();
  });
}

void Runtime::enable_peer_access(int device, int peer) {
  if (device == peer) return;
  std::atomic<bool>& enabled = peer_enabled_[static_cast<std::size_t>(device * device_count_ + peer)];
  if (enabled.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(peer_mutex_);
  if (enabled.load(std::memory_order_relaxed)) return;
  backend_->enable_peer_access(device, peer);
  enabled.store(true, std::memory_order_release);
}

void Runtime::require_device(Device device, std::string_view function) const {
  if (device.index() < 0 || device.index() >= device_count_) [[unlikely]]
    refuse_device(device, device_count_, function);
}

void Runtime::wait_event(backend::StreamRef stream, backend::EventHandle event) {
  const std::shared_lock gate(launch_gate_);
  backend_->wait_event(stream, event);
}

void Runtime::wait_signals(backend::StreamRef stream, std::span<backend::SharedFlag> flags,
                           std::uint32_t value) {
  const std::shared_lock gate(launch_gate_);
  backend_->wait_signals(stream, flags, value);
}

void Runtime::order(backend::StreamRef earlier, backend::StreamRef later) {
  if (earlier == later) return;
  PooledEvent event(*events_, earlier.device);
  event.record(earlier);
  wait_event(later, event.handle());  // keeps to this mark, whatever is recorded next
}

void Runtime::synchronize(backend::StreamRef stream) {
  backend_->synchronize_stream(stream);
  HostWaits::count_one();
  ended_work_.report(stream.device);
}

void Runtime::finish(backend::StreamRef stream) {
  PooledEvent event(*events_, stream.device);
  event.record(stream);
  backend_->synchronize_event(event.handle());
  HostWaits::count_one();
  ended_work_.report(stream.device);
}

void Runtime::retain_until_graph_destroyed(backend::StreamRef stream, std::shared_ptr<void> resource) {
  const std::shared_ptr<GraphResources> graph = captures_.of(stream);
  if (graph != nullptr && graph->launches() == GraphLaunches::of_library) {
    graph->keep(std::move(resource));
  } else {
    retain_in_graph(stream, std::move(resource));
  }
}

void Runtime::retain_in_graph(backend::StreamRef stream, std::shared_ptr<void> resource) {
  auto ones = std::make_unique<LateReleases::Ones>(1);
  ones->front().resource = std::move(resource);
  const std::shared_ptr<void> handle(static_cast<void*>(ones.release()), [this](void* object) {
    const std::unique_ptr<LateReleases::Ones> owner(static_cast<LateReleases::Ones*>(object));
    late_releases_.add(std::move(*owner));
  });
  backend_->retain_until_graph_destroyed(stream, handle);
}

void* Runtime::find_or_add_extension(std::type_index type,
                                     const std::function<std::shared_ptr<void>()>& make) {
  const std::lock_guard lock(extensions_mutex_);
  for (const Extension& extension : extensions_) {
    if (extension.type == type) return extension.object.get();
  }
  // Pushed only when made: those it needed for that are then older, and destroyed after it.
  std::shared_ptr<void> object = make();
  return extensions_.emplace_back(Extension{type, std::move(object)}).object.get();
}

void Runtime::destroy_extensions() {
  const std::lock_guard lock(extensions_mutex_);
  while (!extensions_.empty()) {
    const std::shared_ptr<void> newest = std::move(extensions_.back().object);
    extensions_.pop_back();
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

void Runtime::await_late_releases() {
  constexpr std::chrono::seconds release_patience{10};
  constexpr std::chrono::microseconds looks_every{100};
  const auto deadline = std::chrono::steady_clock::now() + release_patience;
  for (release_collected(); late_releases_.has_any(); release_collected()) {
    if (std::chrono::steady_clock::now() > deadline) return;  // whatever it holds is found in use
    std::this_thread::sleep_for(looks_every);
  }
}

void Runtime::require_unused() {
  require_uncaptured();
  release_collected();
  destroy_extensions();
  const auto ignore_failures = [](const auto& wait) {
    try {
      wait();
    } catch (const Error&) {
      // Failures of work on devices that are about to be replaced.
    }
  };
  for (int device = 0; device < device_count_; ++device) {
    ignore_failures([&] { backend_->synchronize_device(device); });
  }
  await_late_releases();
  shared_before_->collect();
  if (const std::size_t open = shared_before_->count(); open != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("virtual_devices::start: {} tensors that were shared are still open in other "
                            "processes, expected none: have them closed first",
                            open));
  }
  for (int device = 0; device < device_count_; ++device) {
    ignore_failures([&] { allocator(device).finish_pending(); });
    const std::size_t active = allocator(device).bytes_active();
    if (active != 0) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("virtual_devices::start: {} bytes of device {} are still allocated, expected none: "
                      "destroy all tensors first",
                      active, device));
    }
  }
  if (const int opened = count_opened_tensors(); opened != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("virtual_devices::start: {} tensors of other processes are still open, expected "
                            "none: destroy all tensors first",
                            opened));
  }
  if (const std::size_t bytes = plugged_.bytes_in_use(); bytes != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("virtual_devices::start: {} bytes of the pluggable allocator are still allocated, "
                    "expected none: destroy all tensors first",
                    bytes));
  }
  ignore_failures([&] { pinned().finish_pending(); });
  if (const std::size_t active = pinned().bytes_active(); active != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("virtual_devices::start: {} bytes of pinned memory are still allocated, expected none: "
                    "destroy all tensors first",
                    active));
  }
}

}  // namespace tutti
