// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "allocator/late_releases.hpp"
#include "allocator/pinned_allocator.hpp"
#include "allocator/pluggable_allocator.hpp"
#include "backend/backend.hpp"
#include "base/cache_line.hpp"
#include "device/ended_work.hpp"
#include "stream/event_pool.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <typeindex>
#include <vector>

namespace tutti {

namespace backend {
class VirtualMachineControl;
}
class SharedBefore;

/// The process-wide state behind all modules: one backend and what belongs to it.
///
/// Created by the first call that needs it, never destroyed at process exit (work may still be in flight, and
/// static objects may still hold tensors); `replace` swaps it for a freshly booted virtual machine.
class Runtime {
 public:
  /// The runtime; creates it on first use. Thread-safe; one atomic load once created.
  [[nodiscard]] static Runtime& get();
  /// nullptr before first use.
  [[nodiscard]] static Runtime* get_if_initialized() noexcept;
  /// How many devices the runtime has; before first use, will have. Creates it only if that cannot be told
  /// otherwise. 0 where `get` would throw Error(unsupported).
  [[nodiscard]] static int count_devices();
  /// Implements `virtual_devices::start`. Destroys the extensions even if it then finds memory in use and
  /// throws; they are made again when they are needed.
  static void replace(const virtual_devices::VirtualMachine& machine);

  explicit Runtime(std::unique_ptr<backend::Backend> backend, backend::VirtualMachineControl* control);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  [[nodiscard]] backend::Backend& backend() noexcept { return *backend_; }
  /// nullptr on GPUs.
  [[nodiscard]] backend::VirtualMachineControl* virtual_machine() noexcept { return control_; }
  [[nodiscard]] int device_count() const noexcept { return device_count_; }
  /// Different for every runtime of the process: tells thread-local state of an earlier one.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

  [[nodiscard]] CachingAllocator& allocator(int device) {
    return *allocators_[static_cast<std::size_t>(device)];
  }
  /// The segments of all devices' allocators.
  [[nodiscard]] SegmentIndex& segments() noexcept { return segments_; }
  /// What this process has shared and shares no more, while others have it open.
  [[nodiscard]] SharedBefore& shared_before() noexcept { return *shared_before_; }
  /// What tensors get device memory from instead, if anything.
  [[nodiscard]] PluggedAllocator& plugged() noexcept { return plugged_; }
  [[nodiscard]] PinnedAllocator& pinned() noexcept { return *pinned_; }
  [[nodiscard]] EventPool& events() noexcept { return *events_; }
  [[nodiscard]] GraphCaptures& captures() noexcept { return captures_; }
  /// Work that has been ended, which devices do not tell of: asked after every wait of the program's.
  [[nodiscard]] EndedWork& ended_work() noexcept { return ended_work_; }
  /// The priority a stream of `device` gets that asks for `priority`: the nearest one in its range.
  [[nodiscard]] int clamped_priority(int device, int priority) const;
  /// The next pooled stream of `device` at `priority` (clamped), round robin over 32, made on first use.
  [[nodiscard]] backend::StreamRef pooled_stream(int device, int priority);
  /// Whether `stream` is the library's, and lives as long as the runtime: a default stream or a pooled one.
  [[nodiscard]] bool owns(backend::StreamRef stream);
  /// `enable_peer_access` once per ordered pair; afterwards one atomic load.
  void enable_peer_access(int device, int peer);

  /// Throws Error(invalid_argument) "<function>: device is 9, expected 0 to 7" unless `device` exists. The
  /// host is no device.
  void require_device(Device device, std::string_view function) const;

  // What makes one stream wait for another, and what queues kernels of several streams that wait for one
  // another, keep apart, process-wide: if a stream of theirs were made to wait for another of theirs between
  // the first kernel and the last, the last would wait behind the first, which waits for it.

  /// Held while kernels that wait for one another are queued, one by one. Without waiting for streams.
  [[nodiscard]] std::unique_lock<std::shared_mutex> launch_together() {
    return std::unique_lock(launch_gate_);
  }
  /// The backend's, for all other code: not from a thread that launches together.
  void wait_event(backend::StreamRef stream, backend::EventHandle event);
  void wait_signals(backend::StreamRef stream, std::span<backend::SharedFlag> flags, std::uint32_t value);
  /// Makes work queued later on `later` wait for work queued so far on `earlier`. Nothing if they are one
  /// stream.
  void order(backend::StreamRef earlier, backend::StreamRef later);
  /// Waits for a stream on behalf of the program: throws what has failed on its device, or has been ended.
  void synchronize(backend::StreamRef stream);
  /// Waits for the work queued so far on `stream`, and for nothing else.
  void finish(backend::StreamRef stream);

  /// What is let go of at one of the library's next calls from an ordinary thread (`release_collected`).
  [[nodiscard]] LateReleases& late_releases() noexcept { return late_releases_; }
  /// While `stream` is being captured: keeps `resource` until the graph, and everything made from it, is
  /// destroyed, and lets go of it late, as graphs may be destroyed on threads of the driver's. Of graphs that
  /// the library launches, once their launches are done.
  void retain_until_graph_destroyed(backend::StreamRef stream, std::shared_ptr<void> resource);
  /// The same, whoever launches the graph: what is retained does not go by `captures`.
  void retain_in_graph(backend::StreamRef stream, std::shared_ptr<void> resource);
  /// Lets go of what may go of `late_releases`. One atomic load when there is nothing.
  bool release_collected() { return late_releases_.release(); }

  /// The one object of type T that belongs to this runtime: state of layers above (plan cache, communicators,
  /// …). Made by `T(Runtime&)` on first use; destroyed before the backend, newest first. Thread-safe.
  template <class T>
  [[nodiscard]] T& extension();

 private:
  struct Extension {
    std::type_index type;
    std::shared_ptr<void> object;
  };
  struct StreamPool;

  [[nodiscard]] void* find_or_add_extension(std::type_index type,
                                            const std::function<std::shared_ptr<void>()>& make);
  /// Newest first.
  void destroy_extensions();
  /// Waits for the devices, and for what is let go of when their work is done. Throws Error(invalid_argument)
  /// if device or pinned memory is in use, by other processes too, or something is being captured.
  void require_unused();
  void require_uncaptured();
  void await_late_releases();

  std::unique_ptr<backend::Backend> backend_;
  backend::VirtualMachineControl* control_;
  int device_count_;
  std::uint64_t generation_;
  EndedWork ended_work_;
  std::unique_ptr<EventPool> events_;
  GraphCaptures captures_{*this};
  SegmentIndex segments_;
  alignas(cache_line_bytes) PluggedAllocator plugged_{*this};  // which nobody writes to but the first request
  std::vector<std::unique_ptr<CachingAllocator>> allocators_;
  std::unique_ptr<PinnedAllocator> pinned_;
  std::vector<std::unique_ptr<StreamPool>> stream_pools_;
  std::vector<std::atomic<bool>> peer_enabled_;
  std::mutex peer_mutex_;
  alignas(cache_line_bytes) std::shared_mutex
      launch_gate_;  // written at every wait: nothing that hits read is beside it
  alignas(cache_line_bytes) LateReleases late_releases_;
  std::recursive_mutex extensions_mutex_;  // making one extension may need another
  std::vector<Extension> extensions_;
  const std::unique_ptr<SharedBefore> shared_before_;  ///< no extension: what others have open outlives those
};

/// The library's view of public handles.
struct StreamAccess {
  [[nodiscard]] static backend::StreamRef ref(const Stream& stream) noexcept {
    return {static_cast<backend::StreamHandle>(stream.native_handle()), stream.device()};
  }
  [[nodiscard]] static Stream make(backend::StreamRef stream, int priority = 0) noexcept {
    return Stream(stream.handle, stream.device, priority);
  }
};

/// The calling thread's current stream of `device`, which exists: a few nanoseconds.
[[nodiscard]] backend::StreamRef current_stream_ref(Runtime& runtime, int device);

template <class T>
T& Runtime::extension() {
  return *static_cast<T*>(find_or_add_extension(
      typeid(T), [this]() -> std::shared_ptr<void> { return std::make_shared<T>(*this); }));
}

}  // namespace tutti
