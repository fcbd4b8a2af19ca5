// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/code_calls.hpp"
#include "backend/host/host_backend.hpp"
#include "backend/norm_calls.hpp"
#include "base/fork_mark.hpp"
#include "settings/log.hpp"
#include "stream_sanitizer/settings.hpp"
#include "stream_sanitizer/touches.hpp"
#include "stream_sanitizer/watcher.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::stream_sanitizer {

/// Wraps a backend, forwards all calls to it, and reports them to the watcher.
class WatchedBackend final : public backend::Backend, public backend::CodeCalls, public backend::NormCalls {
 public:
  using StreamRef = backend::StreamRef;

  explicit WatchedBackend(std::unique_ptr<backend::Backend> inner);
  /// Wraps virtual devices, with their control.
  [[nodiscard]] static backend::HostBackend watch_machine(backend::HostBackend machine);
  ~WatchedBackend() override;

  /// Returns the wrapper in use; nullptr if devices are not watched.
  [[nodiscard]] static WatchedBackend* current() noexcept { return current_backend.load(); }
  [[nodiscard]] Watcher& watcher() noexcept { return watcher_; }
  /// Returns true if calls are checked now.
  [[nodiscard]] bool is_active() const noexcept {
    return Settings::mode() != Mode::off && !fork_mark_.is_in_child();
  }
  /// Returns where the stream's next operation is recorded; nothing if it goes into a capture that is not the
  /// library's.
  [[nodiscard]] std::optional<Watcher::Place> place_of(StreamRef stream);
  /// Queues an operation by calling `enqueue`, unless it would race and the mode is `error`.
  template <class Enqueue>
  void watch(StreamRef stream, std::string_view name, const Touches& touches, bool host_waits,
             const Enqueue& enqueue);
  /// Checks an access of the host itself.
  void host_touches(std::string_view name, const Touches& touches);
  void declare_order(StreamRef earlier, StreamRef later);
  void declare_wait(StreamRef stream);

  // Devices and telemetry.
  [[nodiscard]] BackendKind kind() const noexcept override { return inner_->kind(); }
  [[nodiscard]] int device_count() const noexcept override { return inner_->device_count(); }
  [[nodiscard]] const DeviceProperties& properties(int device) const override {
    return inner_->properties(device);
  }
  [[nodiscard]] MemoryInfo memory_info(int device) override { return inner_->memory_info(device); }
  [[nodiscard]] std::optional<int> native_device() override { return inner_->native_device(); }
  void set_current_device(int device) override { inner_->set_current_device(device); }
  [[nodiscard]] backend::NativePlace enter_device(int device) override {
    return inner_->enter_device(device);
  }
  void leave_device(const backend::NativePlace& previous) noexcept override {
    inner_->leave_device(previous);
  }
  void open_device_scope() override { inner_->open_device_scope(); }
  void close_device_scope() noexcept override { inner_->close_device_scope(); }
  [[nodiscard]] std::pair<int, int> stream_priority_range(int device) const override {
    return inner_->stream_priority_range(device);
  }
  [[nodiscard]] backend::Link link(int device, int peer) override { return inner_->link(device, peer); }
  [[nodiscard]] bool has_nvlink_to(int device, const std::string& pci_bus_id) override {
    return inner_->has_nvlink_to(device, pci_bus_id);
  }
  [[nodiscard]] bool can_access_peer(int device, int peer) override {
    return inner_->can_access_peer(device, peer);
  }
  void enable_peer_access(int device, int peer) override { inner_->enable_peer_access(device, peer); }
  void synchronize_device(int device) override;
  [[nodiscard]] int read_gauge(int device, backend::Gauge gauge) override {
    return inner_->read_gauge(device, gauge);
  }
  [[nodiscard]] ThrottleReasons throttle_reasons(int device) override {
    return inner_->throttle_reasons(device);
  }
  [[nodiscard]] std::vector<GpuProcess> processes_on(int device) override {
    return inner_->processes_on(device);
  }

  // Memory.
  [[nodiscard]] void* allocate_device(int device, std::size_t bytes) override {
    return inner_->allocate_device(device, bytes);
  }
  void free_device(int device, void* address) noexcept override;
  [[nodiscard]] std::size_t page_bytes(int device) override { return inner_->page_bytes(device); }
  [[nodiscard]] void* reserve_addresses(int device, std::size_t bytes) override {
    return inner_->reserve_addresses(device, bytes);
  }
  [[nodiscard]] bool map_pages(int device, void* address, std::size_t bytes) override {
    return inner_->map_pages(device, address, bytes);
  }
  void unmap_pages(int device, void* address, std::size_t bytes) noexcept override;
  void release_addresses(int device, void* address, std::size_t bytes) noexcept override {
    inner_->release_addresses(device, address, bytes);
  }
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* address) noexcept override;
  [[nodiscard]] backend::PointerInfo pointer_info(const void* address) override {
    return inner_->pointer_info(address);
  }
  [[nodiscard]] backend::MemoryOrigin origin_of(const void* address) override {
    return inner_->origin_of(address);
  }
  [[nodiscard]] bool is_open_to(int peer, const void* address) override {
    return inner_->is_open_to(peer, address);
  }
  [[nodiscard]] std::uint64_t identity_of(const void* address) override {
    return inner_->identity_of(address);
  }
  void register_pinned(void* address, std::size_t bytes) override;
  void unregister_pinned(void* address) noexcept override;
  [[nodiscard]] backend::MemoryHandle share_device_memory(int device, void* address,
                                                          Audience audience) override {
    return inner_->share_device_memory(device, address, audience);
  }
  [[nodiscard]] void* open_device_memory(int device, const backend::MemoryHandle& handle) override {
    return inner_->open_device_memory(device, handle);
  }
  void close_device_memory(int device, void* address) noexcept override;
  [[nodiscard]] std::unique_ptr<backend::SharedPieces> share_pieces(int device, void* address,
                                                                    std::size_t bytes,
                                                                    Audience audience) override;
  void adopt_pieces(int device, void* address, std::size_t bytes) override {
    inner_->adopt_pieces(device, address, bytes);
  }
  void disown_pieces(int device, void* address) noexcept override { inner_->disown_pieces(device, address); }

  // Streams and events.
  [[nodiscard]] StreamRef default_stream(int device) override { return inner_->default_stream(device); }
  [[nodiscard]] StreamRef create_stream(int device, int priority) override;
  [[nodiscard]] int stream_priority(StreamRef stream) override { return inner_->stream_priority(stream); }
  [[nodiscard]] std::optional<int> device_of(StreamRef stream) override { return inner_->device_of(stream); }
  void destroy_stream(StreamRef stream) noexcept override;
  [[nodiscard]] bool query_stream(StreamRef stream) override;
  void synchronize_stream(StreamRef stream) override;
  [[nodiscard]] std::uint64_t stream_id(StreamRef stream) override { return inner_->stream_id(stream); }
  [[nodiscard]] bool is_of_calling_thread(StreamRef stream) const noexcept override {
    return inner_->is_of_calling_thread(stream);
  }
  [[nodiscard]] bool waits_for_default_stream(StreamRef stream) override {
    return inner_->waits_for_default_stream(stream);
  }
  void wait_event(StreamRef stream, backend::EventHandle event) override;
  [[nodiscard]] bool is_in_stream_work() const noexcept override { return inner_->is_in_stream_work(); }
  void wait_elsewhere() noexcept override { inner_->wait_elsewhere(); }
  void launch_host_function(StreamRef stream, void (*function)(void*), void* argument) override;
  [[nodiscard]] backend::EventHandle create_event(int device, backend::EventTiming timing,
                                                  backend::EventWait wait) override {
    return inner_->create_event(device, timing, wait);
  }
  [[nodiscard]] backend::EventHandle create_shared_event(int device, backend::EventWait wait) override;
  [[nodiscard]] backend::SharedEventHandle share_event(backend::EventHandle event) override {
    return inner_->share_event(event);
  }
  [[nodiscard]] backend::EventHandle open_event(int device,
                                                const backend::SharedEventHandle& handle) override;
  void destroy_event(backend::EventHandle event) noexcept override;
  void record_event(backend::EventHandle event, StreamRef stream) override;
  [[nodiscard]] bool query_event(backend::EventHandle event) override;
  [[nodiscard]] bool has_passed(backend::EventHandle event) noexcept override;
  void synchronize_event(backend::EventHandle event) override;
  [[nodiscard]] float elapsed_time(backend::EventHandle start, backend::EventHandle end) override {
    return inner_->elapsed_time(start, end);
  }

  // Signals.
  [[nodiscard]] backend::SignalSupport signal_support() const noexcept override {
    return inner_->signal_support();
  }
  void signal(StreamRef stream, backend::SharedFlag& flag, std::uint32_t value) override;
  void wait_signals(StreamRef stream, std::span<backend::SharedFlag> flags, std::uint32_t value) override;
  void wait_in_kernel(StreamRef stream, backend::SharedFlag& flag, std::chrono::milliseconds longest,
                      backend::SharedFlag& outcome) override {
    inner_->wait_in_kernel(stream, flag, longest, outcome);
  }

  // Operations.
  void copy(StreamRef stream, const backend::Copy2D& copy) override;
  void fan_out(StreamRef stream, const backend::FanOut& task) override;
  void ordered_reduction(StreamRef stream, const backend::OrderedReduction& task) override;
  void convert(StreamRef stream, const backend::Convert& task) override;
  void fill(StreamRef stream, const backend::Fill& task) override;
  void random_fill(StreamRef stream, const backend::RandomFill& task) override;
  void team_round(StreamRef stream, const backend::TeamRound& task) override;
  void team_links(StreamRef stream, const backend::TeamLinks& task) override;
  void block_launches() override { inner_->block_launches(); }
  [[nodiscard]] bool launches_block() const noexcept override { return inner_->launches_block(); }
  void end_launch(StreamRef stream) override;

  // Graphs.
  [[nodiscard]] bool is_capturing(StreamRef stream) override { return inner_->is_capturing(stream); }
  [[nodiscard]] std::uint64_t capture_id(StreamRef stream) override { return inner_->capture_id(stream); }
  void begin_capture(StreamRef stream, CaptureErrorMode mode) override;
  [[nodiscard]] backend::GraphHandle end_capture(StreamRef stream, std::string* description) override;
  void launch_graph(backend::GraphHandle graph, StreamRef stream) override;
  void destroy_graph(backend::GraphHandle graph) noexcept override;
  void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) override {
    inner_->retain_until_graph_destroyed(stream, std::move(resource));
  }

  [[nodiscard]] bool has_capture_on(int device) override { return inner_->has_capture_on(device); }

  // Code.
  [[nodiscard]] std::string code_target(int device) override { return code().code_target(device); }
  [[nodiscard]] std::shared_ptr<const backend::CompiledCode> compile(int device,
                                                                     const backend::CodeText& text) override {
    return code().compile(device, text);
  }
  void load(int device, const backend::CompiledCode& compiled) override { code().load(device, compiled); }
  void run_code(StreamRef stream, const std::shared_ptr<const backend::CompiledCode>& compiled,
                const backend::CodeRun& run) override;

  // Norms.
  void square_sums(StreamRef stream, const backend::NormPieces& task, double* sums) override;
  void norm_of_sums(StreamRef stream, const backend::NormOfSums& task) override;
  void scale(StreamRef stream, const backend::NormPieces& task, const double* factor) override;

  // Accesses that the backend's other calls do not show.
  [[nodiscard]] bool is_watched() const noexcept override { return true; }
  void memory_taken(const void* address, std::size_t bytes) noexcept override;
  void memory_given_back(const void* address, std::size_t bytes) noexcept override;
  void accesses(StreamRef stream, std::string_view what,
                std::span<const backend::WatchedAccess> touched) override;
  [[nodiscard]] std::shared_ptr<void> begin_meeting(std::span<const StreamRef> streams) override;
  void end_meeting(const std::shared_ptr<void>& meeting,
                   std::span<const backend::MeetingOrder> orders) override;

  /// Forgets what used the block or range at an address, which is about to go.
  void forget_memory_at(const void* address) noexcept;

 private:
  struct HostCall;

  /// Calls `follow` if calls are checked. If it fails, for lack of memory, nothing else changes.
  template <class Follow>
  void follow(const Follow& follow) noexcept;
  /// Calls `wait`, which waits for what `clock` counts, and records that even if it then reports a failure.
  template <class Wait>
  void wait_for(const VectorClock& clock, const Wait& wait);
  [[nodiscard]] bool is_pageable(const std::byte* address);
  /// Returns the backend's code calls. Throws Error(unsupported) if it has none.
  [[nodiscard]] backend::CodeCalls& code();
  [[nodiscard]] backend::NormCalls& norms();
  // These keep the size of pinned memory, which backends need not know.
  void remember_pinned(const void* address, std::size_t bytes);
  void forget_pinned(const void* address) noexcept;
  /// Reports the findings as the mode says. Throws in mode `error`.
  void tell(const std::vector<Finding>& findings);
  void tell_of_forgetting() noexcept;
  [[nodiscard]] std::string memory_in_words(std::uintptr_t address) noexcept;

  static inline std::atomic<WatchedBackend*> current_backend{nullptr};

  const ForkMark fork_mark_;
  Watcher watcher_;
  std::mutex pinned_mutex_;
  std::map<const void*, std::size_t> pinned_bytes_;  ///< by address; guarded by `pinned_mutex_`
  std::mutex made_mutex_;
  std::atomic<bool> has_told_of_forgetting_{false};
  std::vector<StreamRef> made_;  ///< streams of the library's; guarded by `made_mutex_`
  std::unique_ptr<backend::VirtualMachineControl> control_;  ///< for virtual devices
  std::unique_ptr<backend::Backend> inner_;  ///< destroyed first, which completes what is queued
};

template <class Follow>
void WatchedBackend::follow(const Follow& follow) noexcept {
  if (!is_active()) return;
  try {
    follow();
  } catch (const std::exception& error) {
    log_warning(error.what());  // fewer operations are checked from now on
  }
}

template <class Enqueue>
void WatchedBackend::watch(StreamRef stream, std::string_view name, const Touches& touches, bool host_waits,
                           const Enqueue& enqueue) {
  if (!is_active()) return enqueue();
  const std::optional<Watcher::Place> place = place_of(stream);
  if (!place) return enqueue();
  std::vector<Finding> findings;
  const bool stops = Settings::mode() == Mode::error;
  const OperationPtr operation = watcher_.enqueue(*place, name, touches, stops, findings);
  if (!findings.empty()) tell(findings);
  if (watcher_.take_has_forgotten()) tell_of_forgetting();
  const bool is_live = place->capture == Watcher::live;
  const bool waits = is_live && (host_waits || (inner_->launches_block() && !inner_->is_in_stream_work()));
  const VectorClock clock = waits ? watcher_.clock_of(*place) : VectorClock{};
  try {
    enqueue();
  } catch (...) {
    if (operation != nullptr) follow([&] { watcher_.take_back(*place, operation, touches); });
    throw;
  }
  if (waits) watcher_.host_waited(clock);
}

/// Wraps the control of virtual devices, so that what programs launch on them is checked, too.
class WatchedControl final : public backend::VirtualMachineControl {
 public:
  WatchedControl(backend::VirtualMachineControl& inner, WatchedBackend& backend)
      : inner_(inner), backend_(backend) {}
  void inject(const virtual_devices::Fault& fault) override { inner_.inject(fault); }
  void clear_faults() override { inner_.clear_faults(); }
  [[nodiscard]] std::uint64_t operations_enqueued() const override { return inner_.operations_enqueued(); }
  void set_interleaving_seed(std::optional<std::uint64_t> seed) override;
  [[nodiscard]] std::optional<std::uint64_t> interleaving_seed() const override {
    return inner_.interleaving_seed();
  }
  void set_blocking_launches(bool block) override { inner_.set_blocking_launches(block); }
  void close_to_peers(const void* address) override { inner_.close_to_peers(address); }
  [[nodiscard]] bool add_managed(std::byte* address, std::size_t bytes) override {
    return inner_.add_managed(address, bytes);
  }
  void remove_managed(const std::byte* address) override;
  void launch(backend::StreamRef stream, std::string_view name,
              std::span<const virtual_devices::Access> accesses,
              std::function<void(std::span<void* const>)> kernel) override;

 private:
  backend::VirtualMachineControl& inner_;
  WatchedBackend& backend_;
};

}  // namespace tutti::stream_sanitizer
