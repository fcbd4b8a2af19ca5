// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/code_calls.hpp"
#include "backend/cuda/address_ranges.hpp"
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/pooled_memory.hpp"
#include "backend/cuda/table_store.hpp"
#include "backend/norm_calls.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

/// NVIDIA GPUs through the CUDA runtime.
///
/// A stream handle is the `cudaStream_t`; nullptr is the legacy default stream of the StreamRef's device, and
/// so calls with it make that device current first. Events are `cudaEvent_t`.
class CudaBackend final : public Backend, public CodeCalls, public NormCalls {
 public:
  /// Uses `count` devices, at least one.
  explicit CudaBackend(int count);
  ~CudaBackend() override;

  [[nodiscard]] BackendKind kind() const noexcept override { return BackendKind::cuda; }

  [[nodiscard]] int device_count() const noexcept override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] const DeviceProperties& properties(int device) const override {
    return at(device).properties;
  }
  [[nodiscard]] MemoryInfo memory_info(int device) override;
  [[nodiscard]] std::pair<int, int> stream_priority_range(int device) const override;
  [[nodiscard]] Link link(int device, int peer) override;
  [[nodiscard]] bool has_nvlink_to(int device, const std::string& pci_bus_id) override;
  [[nodiscard]] bool can_access_peer(int device, int peer) override;
  void enable_peer_access(int device, int peer) override;
  [[nodiscard]] std::optional<int> native_device() override;
  void set_current_device(int device) override;
  [[nodiscard]] NativePlace enter_device(int device) override;
  void leave_device(const NativePlace& previous) noexcept override;
  void open_device_scope() override;
  void close_device_scope() noexcept override;
  void synchronize_device(int device) override;

  [[nodiscard]] int read_gauge(int device, Gauge gauge) override;
  [[nodiscard]] ThrottleReasons throttle_reasons(int device) override;
  [[nodiscard]] std::vector<GpuProcess> processes_on(int device) override;

  [[nodiscard]] void* allocate_device(int device, std::size_t bytes) override;
  void free_device(int device, void* address) noexcept override;
  [[nodiscard]] std::size_t page_bytes(int device) override;
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
  void unregister_pinned(void* address) noexcept override;
  [[nodiscard]] MemoryHandle share_device_memory(int device, void* address, Audience audience) override;
  [[nodiscard]] void* open_device_memory(int device, const MemoryHandle& handle) override;
  void close_device_memory(int device, void* address) noexcept override;
  [[nodiscard]] std::unique_ptr<SharedPieces> share_pieces(int device, void* address, std::size_t bytes,
                                                           Audience audience) override;
  void adopt_pieces(int device, void* address, std::size_t bytes) override;
  void disown_pieces(int device, void* address) noexcept override;

  [[nodiscard]] StreamRef default_stream(int device) override { return {nullptr, device}; }
  [[nodiscard]] StreamRef create_stream(int device, int priority) override;
  [[nodiscard]] int stream_priority(StreamRef stream) override;
  [[nodiscard]] std::optional<int> device_of(StreamRef stream) override;
  void destroy_stream(StreamRef stream) noexcept override;
  [[nodiscard]] bool query_stream(StreamRef stream) override;
  void synchronize_stream(StreamRef stream) override;
  [[nodiscard]] std::uint64_t stream_id(StreamRef stream) override;
  [[nodiscard]] bool is_of_calling_thread(StreamRef stream) const noexcept override;
  [[nodiscard]] bool waits_for_default_stream(StreamRef stream) override;
  void wait_event(StreamRef stream, EventHandle event) override;
  void launch_host_function(StreamRef stream, void (*function)(void*), void* argument) override;

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

  [[nodiscard]] SignalSupport signal_support() const noexcept override;
  void signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) override;
  void wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) override;
  void wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                      SharedFlag& outcome) override;

  void copy(StreamRef stream, const Copy2D& copy) override;
  void fan_out(StreamRef stream, const FanOut& task) override;
  void ordered_reduction(StreamRef stream, const OrderedReduction& task) override;
  void convert(StreamRef stream, const Convert& task) override;
  void fill(StreamRef stream, const Fill& task) override;
  void random_fill(StreamRef stream, const RandomFill& task) override;
  void team_round(StreamRef stream, const TeamRound& task) override;
  void team_links(StreamRef stream, const TeamLinks& task) override;
  void block_launches() override { launches_block_.store(true); }
  [[nodiscard]] bool launches_block() const noexcept override {
    return launches_block_.load(std::memory_order_relaxed);
  }
  void end_launch(StreamRef stream) override;

  [[nodiscard]] std::string code_target(int device) override;
  [[nodiscard]] std::shared_ptr<const CompiledCode> compile(int device, const CodeText& code) override;
  void load(int device, const CompiledCode& code) override;
  void run_code(StreamRef stream, const std::shared_ptr<const CompiledCode>& code,
                const CodeRun& run) override;

  void square_sums(StreamRef stream, const NormPieces& task, double* sums) override;
  void norm_of_sums(StreamRef stream, const NormOfSums& task) override;
  void scale(StreamRef stream, const NormPieces& task, const double* factor) override;

  [[nodiscard]] bool is_capturing(StreamRef stream) override;
  [[nodiscard]] std::uint64_t capture_id(StreamRef stream) override;
  [[nodiscard]] bool has_capture_on(int device) override;
  void begin_capture(StreamRef stream, CaptureErrorMode mode) override;
  [[nodiscard]] GraphHandle end_capture(StreamRef stream, std::string* description) override;
  void launch_graph(GraphHandle graph, StreamRef stream) override;
  void destroy_graph(GraphHandle graph) noexcept override;
  void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) override;

 private:
  /// The position that a captured stream has reached.
  struct CapturePlace {
    cudaStream_t stream = nullptr;
    unsigned long long capture = 0;
    cudaGraphNode_t node = nullptr;
    friend bool operator==(const CapturePlace&, const CapturePlace&) = default;
  };
  struct CapturedRound {
    CapturePlace place;
    bool may_let_next_in = false;  ///< it is a low-latency one, whose grid fits twice
  };
  struct DeviceState {
    explicit DeviceState(int device) : tables(std::make_shared<TableStore>(device)) {}
    DeviceProperties properties;
    std::size_t largest_pitch = 0;                 ///< of two-dimensional copies, in bytes
    std::once_flag prepared;                       ///< the kernels are loaded
    bool may_launch_dependently = false;           ///< kernels of teams; known once prepared
    std::shared_ptr<TableStore> tables;            ///< shared with graphs, which may outlive the backend
    std::atomic<const char*> last_work = nullptr;  ///< name of the operation queued last
    std::atomic<cudaError_t> late_failure = cudaSuccess;  ///< of calls that may not throw
    std::mutex streams_mutex;                             ///< guards the next
    std::vector<cudaStream_t> streams;                    ///< made here
    std::vector<cudaStream_t> capture_origins;            ///< of captures that were begun here, and not ended
    CapturedRound captured_round;                         ///< the latest of a team's
  };

  /// Returns the position of the stream if it is being captured and its next work follows a single node;
  /// otherwise nothing.
  [[nodiscard]] static std::optional<CapturePlace> capture_place(StreamRef stream);
  /// Returns the team's round that the next work on the stream follows, if the stream is being captured and
  /// that is all it follows.
  [[nodiscard]] std::optional<CapturedRound> captured_round_before(StreamRef stream);
  void remember_captured_round(StreamRef stream, bool may_let_next_in);

  [[nodiscard]] DeviceState& at(int device) const { return *devices_[static_cast<std::size_t>(device)]; }
  /// Loads the kernels to a device, the first time. Everything that makes work for a device possible calls it
  /// first, so that it is done before any work is queued there.
  void prepare(int device);
  [[nodiscard]] LaunchSite site(StreamRef stream, const char* work,
                                std::uint32_t most_multiprocessors = all_multiprocessors);
  /// Throws if `status` is a failure, or if an earlier failure that could not be thrown is pending.
  void check_work(cudaError_t status, const char* call, int device);
  /// Does the same for a call about an event, which does not know its device.
  void check_event(cudaError_t status, const char* call);
  /// Keeps a failure of a call that may not throw for the next `check_work` of `device`.
  void keep_late_failure(cudaError_t status, int device) noexcept;
  /// Forgets a capture on `stream` that has ended, or has not begun.
  void forget_capture(StreamRef stream) noexcept;
  /// Calls `launch` with `table` in the form that fits it.
  template <class Launch>
  void launch_table(StreamRef stream, const char* work, const TableBlob& table, std::size_t parameter_limit,
                    const Launch& launch);

  std::vector<std::unique_ptr<DeviceState>> devices_;
  std::vector<std::vector<int>> nvlink_lanes_;
  AddressRanges ranges_;
  PooledMemory pooled_;
  std::atomic<bool> launches_block_{false};
  std::atomic<int> used_device_{-1};  ///< one that has a context; -1: none has
  mutable std::once_flag priorities_known_;
  mutable std::pair<int, int> priorities_{0, 0};
  std::size_t parameter_table_limit_ = medium_parameter_table;
  bool graphs_may_launch_dependently_ = false;
  std::mutex peer_mutex_;
};

}  // namespace tutti::backend::cuda
