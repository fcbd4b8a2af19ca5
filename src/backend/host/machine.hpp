// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/code_calls.hpp"
#include "backend/host/memory/address_space.hpp"
#include "backend/host/memory/faults.hpp"
#include "backend/host/memory/peer_access.hpp"
#include "backend/host/memory/translation.hpp"
#include "backend/host/queues/failure_log.hpp"
#include "backend/host/queues/host_event.hpp"
#include "backend/host/queues/host_graph.hpp"
#include "backend/host/queues/interleaver.hpp"
#include "backend/host/queues/stream_worker.hpp"
#include "backend/host/virtual_machine_control.hpp"
#include "backend/norm_calls.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

namespace tutti::backend::host {

class RoundCount;

/// A running virtual machine: the host implementation of the seam.
///
/// Construct with a checked description. The destructor completes all queued work first.
class Machine final : public Backend, public CodeCalls, public NormCalls, public VirtualMachineControl {
 public:
  explicit Machine(virtual_devices::VirtualMachine description);
  ~Machine() override;

  // Backend: devices.
  [[nodiscard]] BackendKind kind() const noexcept override { return BackendKind::host; }
  [[nodiscard]] int device_count() const noexcept override { return description_.device_count; }
  [[nodiscard]] const DeviceProperties& properties(int device) const override;
  [[nodiscard]] MemoryInfo memory_info(int device) override;
  void set_current_device(int /*device*/) override {}
  [[nodiscard]] std::pair<int, int> stream_priority_range(int /*device*/) const override { return {0, -5}; }
  [[nodiscard]] Link link(int device, int peer) override;
  [[nodiscard]] bool can_access_peer(int device, int peer) override;
  void enable_peer_access(int device, int peer) override;
  void synchronize_device(int device) override;

  // Backend: telemetry, which virtual devices do not have.
  [[nodiscard]] int read_gauge(int device, Gauge gauge) override;
  [[nodiscard]] ThrottleReasons throttle_reasons(int device) override;
  [[nodiscard]] std::vector<GpuProcess> processes_on(int device) override;

  // Backend: memory.
  [[nodiscard]] void* allocate_device(int device, std::size_t bytes) override;
  void free_device(int device, void* address) noexcept override;
  [[nodiscard]] std::size_t page_bytes(int /*device*/) override { return std::size_t{2} << 20; }
  [[nodiscard]] void* reserve_addresses(int device, std::size_t bytes) override;
  [[nodiscard]] bool map_pages(int device, void* address, std::size_t bytes) override;
  void unmap_pages(int device, void* address, std::size_t bytes) noexcept override;
  void release_addresses(int device, void* address, std::size_t bytes) noexcept override;
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* address) noexcept override;
  [[nodiscard]] PointerInfo pointer_info(const void* address) override;
  [[nodiscard]] MemoryOrigin origin_of(const void* address) override;
  [[nodiscard]] bool is_open_to(int peer, const void* address) override;
  [[nodiscard]] std::uint64_t identity_of(const void* address) override;
  void register_pinned(void* address, std::size_t bytes) override;
  void unregister_pinned(void* address) noexcept override { free_pinned(address); }
  [[nodiscard]] MemoryHandle share_device_memory(int device, void* address, Audience audience) override;
  [[nodiscard]] void* open_device_memory(int device, const MemoryHandle& handle) override;
  void close_device_memory(int device, void* address) noexcept override;
  [[nodiscard]] std::unique_ptr<SharedPieces> share_pieces(int device, void* address, std::size_t bytes,
                                                           Audience audience) override;
  void adopt_pieces(int device, void* address, std::size_t bytes) override;
  void disown_pieces(int /*device*/, void* /*address*/) noexcept override {}

  // Backend: streams.
  [[nodiscard]] StreamRef default_stream(int device) override;
  [[nodiscard]] StreamRef create_stream(int device, int priority) override;
  [[nodiscard]] int stream_priority(StreamRef stream) override;
  [[nodiscard]] std::optional<int> device_of(StreamRef stream) override;
  void destroy_stream(StreamRef stream) noexcept override;
  [[nodiscard]] bool query_stream(StreamRef stream) override;
  void synchronize_stream(StreamRef stream) override;
  /// Returns the handle: no other stream gets it while there is unfinished work.
  [[nodiscard]] std::uint64_t stream_id(StreamRef stream) override {
    return reinterpret_cast<std::uintptr_t>(stream.handle);
  }
  void wait_event(StreamRef stream, EventHandle event) override;
  [[nodiscard]] bool is_in_stream_work() const noexcept override;
  void wait_elsewhere() noexcept override { interleaver_->wait_elsewhere(); }
  void launch_host_function(StreamRef stream, void (*function)(void*), void* argument) override;

  // Backend: events.
  [[nodiscard]] EventHandle create_event(int device, EventTiming timing, EventWait wait) override;
  [[nodiscard]] EventHandle create_shared_event(int device, EventWait wait) override;
  [[nodiscard]] SharedEventHandle share_event(EventHandle event) override;
  [[nodiscard]] EventHandle open_event(int device, const SharedEventHandle& handle) override;
  void destroy_event(EventHandle event) noexcept override;
  void record_event(EventHandle event, StreamRef stream) override;
  [[nodiscard]] bool query_event(EventHandle event) override;
  [[nodiscard]] bool has_passed(EventHandle event) noexcept override;
  void synchronize_event(EventHandle event) override;
  [[nodiscard]] float elapsed_time(EventHandle start, EventHandle end) override;

  // Backend: signals.
  [[nodiscard]] SignalSupport signal_support() const noexcept override {
    return launches_block() ? SignalSupport::none : SignalSupport::available;
  }
  void signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) override;
  void wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) override;
  void wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                      SharedFlag& outcome) override;

  // Backend: operations.
  void copy(StreamRef stream, const Copy2D& copy) override;
  void fan_out(StreamRef stream, const FanOut& task) override;
  void ordered_reduction(StreamRef stream, const OrderedReduction& task) override;
  void convert(StreamRef stream, const Convert& task) override;
  void fill(StreamRef stream, const Fill& task) override;
  void random_fill(StreamRef stream, const RandomFill& task) override;
  void team_round(StreamRef stream, const TeamRound& task) override;
  void team_links(StreamRef stream, const TeamLinks& task) override;
  void block_launches() override { operations_block_.store(true); }
  [[nodiscard]] bool launches_block() const noexcept override {
    return operations_block_.load(std::memory_order_relaxed);
  }
  void end_launch(StreamRef stream) override;

  // CodeCalls.
  [[nodiscard]] std::string code_target(int /*device*/) override { return "this machine"; }
  [[nodiscard]] std::shared_ptr<const CompiledCode> compile(int device, const CodeText& code) override;
  void load(int /*device*/, const CompiledCode& /*code*/) override {}  // all devices share compiled code
  void run_code(StreamRef stream, const std::shared_ptr<const CompiledCode>& code,
                const CodeRun& run) override;

  // NormCalls.
  void square_sums(StreamRef stream, const NormPieces& task, double* sums) override;
  void norm_of_sums(StreamRef stream, const NormOfSums& task) override;
  void scale(StreamRef stream, const NormPieces& task, const double* factor) override;

  // Backend: graphs.
  [[nodiscard]] bool is_capturing(StreamRef stream) override;
  [[nodiscard]] std::uint64_t capture_id(StreamRef stream) override;
  [[nodiscard]] bool has_capture_on(int device) override;
  void begin_capture(StreamRef stream, CaptureErrorMode mode) override;
  [[nodiscard]] GraphHandle end_capture(StreamRef stream, std::string* description) override;
  void launch_graph(GraphHandle graph, StreamRef stream) override;
  void destroy_graph(GraphHandle graph) noexcept override;
  void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) override;

  // VirtualMachineControl.
  void inject(const virtual_devices::Fault& fault) override;
  void clear_faults() override { faults_.clear(); }
  [[nodiscard]] std::uint64_t operations_enqueued() const override { return operations_.load(); }
  void set_interleaving_seed(std::optional<std::uint64_t> seed) override;
  [[nodiscard]] std::optional<std::uint64_t> interleaving_seed() const override {
    return interleaver_->seed();
  }
  void set_blocking_launches(bool block) override { kernels_block_.store(block); }
  void close_to_peers(const void* address) override;
  [[nodiscard]] bool add_managed(std::byte* address, std::size_t bytes) override {
    return addresses_.add_managed(address, bytes);
  }
  void remove_managed(const std::byte* address) override { addresses_.remove_managed(address); }
  void launch(StreamRef stream, std::string_view name, std::span<const virtual_devices::Access> accesses,
              std::function<void(std::span<void* const>)> kernel) override;

 private:
  struct VirtualDevice {
    DeviceProperties properties;
    FailureLog failures;
    StreamWorker* default_stream = nullptr;
    int streams_created = 0;  ///< guarded by `streams_mutex_`
  };

  [[nodiscard]] VirtualDevice& device_at(int device) const {
    return *devices_[static_cast<std::size_t>(device)];
  }
  [[nodiscard]] virtual_devices::VirtualLink link_between(int device, int peer) const;
  /// Adds a stream; with `streams_mutex_` held.
  StreamWorker& add_stream(int device, int priority);
  [[nodiscard]] EventHandle add_event(std::unique_ptr<HostEvent> event);
  /// Throws if an injected fault says so.
  void require_event(int device);
  void reap_retired_streams();
  /// Waits until the stream has reached `position`.
  void wait_until(const std::shared_ptr<Progress>& progress, std::uint64_t position,
                  std::chrono::nanoseconds spin);
  void wait_until_idle(std::optional<int> device);
  void report_failures(int device);
  /// Returns true for memory that the machine does not know.
  [[nodiscard]] bool is_pageable(const std::byte* address) const;

  /// Throws if an injected fault says so.
  void require_signals(StreamRef stream);
  [[nodiscard]] RoundCount rounds_before(const TeamRound& task) const;
  /// Queues one round of a team, without a relay.
  void enqueue_part(StreamRef stream, const TeamRound& task);
  template <class Body>
  struct Work;
  template <class Function>
  struct CountedWork;
  /// Makes a task's function that runs `body(translation)`, an operation that faults apply to. Counts it,
  /// unless it is to be recorded.
  template <class Body>
  [[nodiscard]] auto accept(StreamRef stream, virtual_devices::Operation operation, const char* name,
                            Body body);
  /// Queues an entry, once there is room for it. Returns its position.
  std::uint64_t submit(StreamWorker& worker, std::unique_ptr<Task> task);
  /// Waits until the stream has fewer than `longest_queue` unfinished entries, as long as it goes on at all.
  void make_room(StreamWorker& worker);
  /// Queues an operation. Returns its position.
  template <class Body>
  std::uint64_t enqueue(StreamRef stream, virtual_devices::Operation operation, const char* name, Body body);
  template <class Body>
  void enqueue_kernel(StreamRef stream, const char* name, Body body) {
    enqueue(stream, virtual_devices::Operation::kernel, name, std::move(body));
    end_kernel(stream);
  }
  /// Waits for a kernel that has been queued, if kernels block, or all operations do.
  void end_kernel(StreamRef stream);
  [[nodiscard]] Translation::Machine translated_by() { return {addresses_, peers_, faults_}; }

  /// Makes a task's function that counts as an operation, now or, if it is to be recorded, at each launch.
  template <class Function>
  [[nodiscard]] auto counted(StreamRef stream, Function function);

  // Captures. Functions with the name of a call refuse it, by an Error that begins with that name, and
  // invalidate a capture that it would disturb.
  /// Returns the open capture of the stream, with `captures_mutex_` held; nullptr if the stream is part of
  /// none.
  [[nodiscard]] std::shared_ptr<Capture> open_capture_of(const StreamWorker& stream);
  /// Returns the open capture of the stream, with `captures_mutex_` held; throws if there is none or it is
  /// invalid.
  [[nodiscard]] Capture& valid_capture_of(const StreamWorker& stream, std::string_view call);
  /// Returns true if a capture has taken the task.
  [[nodiscard]] bool record_if_captured(const StreamWorker& stream, std::unique_ptr<Task>& task);
  [[nodiscard]] bool mark_if_captured(const StreamWorker& stream, HostEvent& event);
  /// Returns true if the stream is part of the event's capture, now at least.
  [[nodiscard]] bool wait_if_captured(StreamWorker& stream, const Ticket& ticket);
  void require_uncaptured(const StreamWorker& stream, std::string_view call);
  void require_uncaptured(const Ticket& ticket, std::string_view call);
  void require_uncaptured_device(int device, std::string_view call);
  void leave_capture(StreamWorker& stream) noexcept;
  /// Ends the capture, with `captures_mutex_` held, and returns its recording.
  [[nodiscard]] Recording close(Capture& capture);
  /// Returns the streams of a launch by lane, all ready to take entries. The graph's mutex must be held.
  [[nodiscard]] std::vector<StreamWorker*> streams_for_launch(HostGraph& graph, StreamWorker& target);

  /// Throws Error(peer_unavailable) unless `device` can open memory that belongs to device `owner`.
  void require_reach(int device, std::int64_t owner);
  [[nodiscard]] void* open_pieces(int device, const MemoryHandle& handle);
  /// Counts one more opening of what is open already; nullptr if it is not. `opened_mutex_` must be held.
  [[nodiscard]] void* open_again(int device, const MemoryHandle& handle);

  /// A block of another process that is open for a device.
  struct OpenedMemory {
    int device;
    MemoryHandle handle;
    void* address;
    int times;  ///< how often it has been opened
  };

  const virtual_devices::VirtualMachine description_;
  const pid_t process_;  ///< the process that has the workers; a forked child has none
  AddressSpace addresses_;
  PeerAccess peers_;
  Faults faults_;
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<bool> kernels_block_{false};
  std::atomic<bool> operations_block_{false};
  std::atomic<std::uint64_t> queued_by_work_{0};  ///< operations queued by streams' work
  std::vector<std::unique_ptr<VirtualDevice>> devices_;
  std::unique_ptr<Interleaver> interleaver_ = std::make_unique<Interleaver>();

  std::mutex streams_mutex_;
  std::vector<std::unique_ptr<StreamWorker>> streams_;
  std::mutex events_mutex_;
  /// Events that were not destroyed live as long as the machine.
  std::unordered_map<const HostEvent*, std::unique_ptr<HostEvent>> events_;  ///< guarded by `events_mutex_`
  std::vector<std::unique_ptr<StreamWorker>> retired_;  ///< destroyed by the user, still finishing their work
  std::mutex captures_mutex_;
  std::vector<std::shared_ptr<Capture>> captures_;  ///< guarded by `captures_mutex_`, as are those below
  std::unordered_map<const HostGraph*, std::unique_ptr<HostGraph>> graphs_;
  std::uint64_t last_capture_ = 0;
  std::atomic<std::size_t> captures_open_{0};
  std::mutex opened_mutex_;
  std::vector<OpenedMemory> opened_;  ///< guarded by `opened_mutex_`
};

[[nodiscard]] inline StreamWorker& worker_of(StreamRef stream) {
  return *reinterpret_cast<StreamWorker*>(stream.handle);
}

/// The function of a task that runs `body(translation)`: an operation that faults apply to.
template <class Body>
struct Machine::Work {
  Machine* machine;
  virtual_devices::Operation operation;
  Mover mover;
  int device;
  const char* name;
  Body body;
  Faults::Disturbance disturbance;

  /// Counts the operation as it is queued. Throws if a fault refuses it.
  void begin_launch() {
    disturbance = machine->faults_.disturb(operation, device);
    if (disturbance.refused) {
      throw Error(ErrorCode::device_failure, std::string(name) + " on device " + std::to_string(device) +
                                                 " was refused by an injected fault");
    }
    ++machine->operations_;
  }
  void operator()() {
    if (disturbance.delay.count() != 0) std::this_thread::sleep_for(disturbance.delay);
    if (disturbance.failing) throw Error(ErrorCode::device_failure, "an injected fault");
    Translation translation(machine->translated_by(), mover, device);
    body(translation);
    if (machine->faults_.any()) translation.corrupt_crossings(operation);
  }
};

template <class Body>
auto Machine::accept(StreamRef stream, virtual_devices::Operation operation, const char* name, Body body) {
  const StreamWorker& worker = worker_of(stream);
  const Mover mover = operation == virtual_devices::Operation::copy ? Mover::copy_engine : Mover::kernel;
  Work<Body> work{this, operation, mover, worker.device(), name, std::move(body), {}};
  if (!worker.is_captured()) work.begin_launch();
  return work;
}

/// The result of `counted`.
template <class Function>
struct Machine::CountedWork {
  Machine* machine;
  Function function;
  void begin_launch() const { ++machine->operations_; }
  void operator()() { function(); }
};

template <class Function>
auto Machine::counted(StreamRef stream, Function function) {
  CountedWork<Function> work{this, std::move(function)};
  if (!worker_of(stream).is_captured()) work.begin_launch();
  return work;
}

template <class Body>
std::uint64_t Machine::enqueue(StreamRef stream, virtual_devices::Operation operation, const char* name,
                               Body body) {
  auto work = accept(stream, operation, name, std::move(body));
  return submit(worker_of(stream), make_task(name, std::move(work)));
}

}  // namespace tutti::backend::host
