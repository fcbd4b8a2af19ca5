// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"
#include "backend/shared_flag.hpp"
#include "backend/team_round.hpp"
#include "tutti/device.hpp"
#include "tutti/dtype.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// The seam: everything the library asks of a machine. Two implementations stand behind it, `host/` and
/// `cuda/`.
///
/// Rules for all calls, unless a comment says otherwise:
///  - thread-safe; a handle may be used from any thread, whichever device is current on it;
///  - `device` indices are valid (callers check); streams, events and memory belong to the same backend;
///  - operations that take a stream enqueue and return: they run after the work already queued on that
///    stream, and everything they point to must stay valid until then (descriptor structs and spans are read
///    before returning);
///  - failures to enqueue throw `Error`; failures of enqueued work surface as Error(device_failure), naming
///    the failed operation, from the next synchronising call (`synchronize_*`, `query_*`) on that device;
///  - zero-byte operations are valid and keep stream order.
namespace tutti::backend {

struct StreamTag;
struct EventTag;
struct GraphTag;
/// Opaque handles. The cuda backend's stream handle is the `cudaStream_t` itself; nullptr is every
/// device's default stream there, so a handle alone does not name a stream: a `StreamRef` does.
using StreamHandle = StreamTag*;
using EventHandle = EventTag*;
using GraphHandle = GraphTag*;

/// A stream and the device it belongs to.
struct StreamRef {
  StreamHandle handle = nullptr;
  int device = -1;
  friend bool operator==(const StreamRef&, const StreamRef&) = default;
};

/// What a thread has current natively: a device, and the context there, nullptr if it has none yet.
struct NativePlace {
  int device = -1;
  void* context = nullptr;
};

/// What another process needs to open a block of device memory.
struct MemoryHandle {
  std::array<std::byte, 64> bytes{};
};

enum class MemoryKind : std::uint8_t { unknown, pageable, pinned, device };

/// What is known about an address.
struct PointerInfo {
  MemoryKind kind = MemoryKind::unknown;
  int device = -1;                  ///< owner, for device memory
  const std::byte* base = nullptr;  ///< start of its allocation, nullptr if unknown
  std::size_t bytes = 0;            ///< size of its allocation, 0 if unknown
};

/// How two devices are connected, best first.
enum class LinkKind : std::uint8_t { self, nvlink, pcie_p2p, host_bridge };

struct Link {
  LinkKind kind = LinkKind::host_bridge;
  int lanes = 0;                 ///< NVLink connections, 0 if not applicable or unknown
  double gigabytes_per_s = 0.0;  ///< nominal payload rate in one direction, 0 if unknown
};

/// Whether a backend has signals, and whether several of them cost the host less than as many events between
/// devices.
enum class SignalSupport : std::uint8_t { none, available, cheaper };
/// How many signals one call can wait for.
inline constexpr std::size_t most_signals = 16;

enum class EventTiming : std::uint8_t { off, on };
enum class EventWait : std::uint8_t { spin, block };  ///< what a host wait does with its CPU

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual BackendKind kind() const noexcept = 0;

  // Devices.
  [[nodiscard]] virtual int device_count() const noexcept = 0;
  [[nodiscard]] virtual const DeviceProperties& properties(int device) const = 0;
  [[nodiscard]] virtual MemoryInfo memory_info(int device) = 0;
  /// The calling thread's native current device, whoever has made it so; nothing on virtual devices, which
  /// have none.
  [[nodiscard]] virtual std::optional<int> native_device() { return std::nullopt; }
  /// Makes the calling thread's native current device follow; no-op on virtual devices.
  virtual void set_current_device(int device) = 0;
  /// The same until `leave_device` gets what this returns, on the same thread. What was current then is as it
  /// was: also a context that is the caller's own, or none, where none is made.
  [[nodiscard]] virtual NativePlace enter_device(int /*device*/) { return {}; }
  virtual void leave_device(const NativePlace& /*previous*/) noexcept {}
  /// See `DeviceScope`. No-ops on virtual devices.
  virtual void open_device_scope() {}
  virtual void close_device_scope() noexcept {}
  /// Least and greatest priority of streams as (least, greatest); numerically lower is more urgent.
  [[nodiscard]] virtual std::pair<int, int> stream_priority_range(int device) const = 0;
  [[nodiscard]] virtual Link link(int device, int peer) = 0;
  /// Whether it is NVLink, for certain, that leads to a GPU: one that this process sees, or one of another
  /// process, which must then say the same. Virtual devices have no bus.
  [[nodiscard]] virtual bool has_nvlink_to(int /*device*/, const std::string& /*pci_bus_id*/) {
    return false;
  }
  [[nodiscard]] virtual bool can_access_peer(int device, int peer) = 0;
  /// Lets `device` access the memory of `peer`. Idempotent. Throws Error(peer_unavailable) if refused.
  virtual void enable_peer_access(int device, int peer) = 0;
  /// Blocks until every stream of `device` is idle; throws the first pending failure of the device.
  virtual void synchronize_device(int device) = 0;

  // Memory. Allocation returns nullptr when memory is exhausted, and throws for any other failure. Addresses
  // are aligned to 512 bytes at least. Freeing waits for nothing: the caller knows that no queued work uses
  // the block. Freeing never throws; a failure is kept and surfaces like one of enqueued work.
  [[nodiscard]] virtual void* allocate_device(int device, std::size_t bytes) = 0;
  virtual void free_device(int device, void* address) noexcept = 0;
  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* address) noexcept = 0;
  [[nodiscard]] virtual PointerInfo pointer_info(const void* address) = 0;
  /// Makes whole pages of the process, for instance shared with others, usable like pinned memory until they
  /// are unregistered, which must come before they are unmapped.
  virtual void register_pinned(void* address, std::size_t bytes) = 0;
  virtual void unregister_pinned(void* address) noexcept = 0;

  // Device memory that other processes of the host use. What was opened is closed before its owner frees it.
  /// For the start of a block of `allocate_device`. Throws Error(unsupported).
  [[nodiscard]] virtual MemoryHandle share_device_memory(int device, void* address) = 0;
  /// Another process's block, for work of `device`. Throws Error(peer_unavailable).
  [[nodiscard]] virtual void* open_device_memory(int device, const MemoryHandle& handle) = 0;
  virtual void close_device_memory(int device, void* address) noexcept = 0;

  // Streams. Created ones do not synchronise with the legacy default stream.
  [[nodiscard]] virtual StreamRef default_stream(int device) = 0;
  [[nodiscard]] virtual StreamRef create_stream(int device, int priority) = 0;
  /// The device of a stream that somebody names by handle and device, which exists; nothing if there is no
  /// such stream, as far as the backend can tell.
  [[nodiscard]] virtual std::optional<int> device_of(StreamRef stream) = 0;
  /// The stream need not be idle: its work still completes.
  virtual void destroy_stream(StreamRef stream) noexcept = 0;
  [[nodiscard]] virtual bool query_stream(StreamRef stream) = 0;  ///< true if idle
  virtual void synchronize_stream(StreamRef stream) = 0;
  /// Tells streams apart that had the same handle and device one after the other, of which the earlier may
  /// have unfinished work. Not while `stream` is being captured.
  [[nodiscard]] virtual std::uint64_t stream_id(StreamRef stream) = 0;
  /// Whether the handle stands for another stream on another thread.
  [[nodiscard]] virtual bool is_of_calling_thread(StreamRef /*stream*/) const noexcept { return false; }
  /// Later work on `stream` waits for what `event` recorded last, as of this call. Never recorded: no-op.
  virtual void wait_event(StreamRef stream, EventHandle event) = 0;
  /// Whether the calling thread runs work of a stream, which must wait for no stream: that one may wait for
  /// it.
  [[nodiscard]] virtual bool is_in_stream_work() const noexcept { return false; }
  /// To be called again and again by a thread that has queued work and waits for something else, such as
  /// another process: a backend that holds work back, to have it run in some order, goes on with it. Does not
  /// block.
  virtual void wait_elsewhere() noexcept {}
  /// Runs `function(argument)` on a thread of the backend, in stream order. On GPUs it must not call into the
  /// backend, elsewhere not wait for it.
  virtual void launch_host_function(StreamRef stream, void (*function)(void*), void* argument) = 0;

  // Events. `device` is where it will be recorded.
  [[nodiscard]] virtual EventHandle create_event(int device, EventTiming timing, EventWait wait) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record_event(EventHandle event, StreamRef stream) = 0;
  [[nodiscard]] virtual bool query_event(EventHandle event) = 0;  ///< true if complete or never recorded
  /// Likewise, and true of failed work. Failures are not reported: they stay for who asks for them.
  [[nodiscard]] virtual bool has_passed(EventHandle event) noexcept = 0;
  virtual void synchronize_event(EventHandle event) = 0;
  /// Milliseconds between two completed recordings with timing on.
  [[nodiscard]] virtual float elapsed_time(EventHandle start, EventHandle end) = 0;

  // Signals: flags in pinned memory that streams set and wait for. The backend does not know who waits for
  // whom, and streams may share hardware queues: a wait must be queued after the signals it waits for, or
  // neither may ever come.
  [[nodiscard]] virtual SignalSupport signal_support() const noexcept = 0;
  /// Sets the flag once all earlier work of `stream` is done and, for devices that NVLink joins, can be seen.
  virtual void signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) = 0;
  /// Later work on `stream` waits until each of the flags has come to `value`; `most_signals` at most.
  virtual void wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) = 0;
  /// Queues a kernel that waits until `flag` is not 0 any more, for so long at most, and then sets `outcome`
  /// to 1 if it has come to that, else to 2. Both in pinned memory. Tells what work that waits for other work
  /// can rely on: nothing else does (`team_round` aside, whose waits end with its team).
  virtual void wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                              SharedFlag& outcome) = 0;

  // Operations. `copy` goes between any two memories the backend knows (copy engines on GPUs); a copy between
  // two devices needs no peer access, but is staged by the system without it. With pageable memory it may
  // block.
  virtual void copy(StreamRef stream, const Copy2D& copy) = 0;
  virtual void fan_out(StreamRef stream, const FanOut& task) = 0;
  virtual void ordered_sum(StreamRef stream, const OrderedSum& task) = 0;
  virtual void convert(StreamRef stream, const Convert& task) = 0;
  virtual void fill(StreamRef stream, const Fill& task) = 0;
  virtual void random_fill(StreamRef stream, const RandomFill& task) = 0;
  /// A member's part in a round of a team, whose other members' parts may be queued by other processes. The
  /// parts of one member come in order. Once its abort word is set it waits for nothing and leaves its
  /// outputs unspecified; on virtual devices that is a failure of enqueued work, whose code is the reason's.
  virtual void team_round(StreamRef stream, const TeamRound& task) = 0;

  // Graphs. Between `begin_capture` and `end_capture`, work enqueued on `stream`, and on streams joined to it
  // by events, is recorded instead of run. Throws Error(unsupported) where `supports_graphs()` is false.
  [[nodiscard]] virtual bool supports_graphs() const noexcept = 0;
  [[nodiscard]] virtual bool is_capturing(StreamRef stream) = 0;
  /// Of the capture that `stream` is part of: different for every one of the process. 0 if it is part of
  /// none. Throws if the capture has become invalid.
  [[nodiscard]] virtual std::uint64_t capture_id(StreamRef stream) = 0;
  virtual void begin_capture(StreamRef stream) = 0;
  /// The instantiated graph. After a failure inside the capture, throws and leaves nothing captured.
  [[nodiscard]] virtual GraphHandle end_capture(StreamRef stream) = 0;
  virtual void launch_graph(GraphHandle graph, StreamRef stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;
  /// While `stream` is being captured: keeps `resource` alive until the graph under capture, and everything
  /// made from it, is destroyed.
  virtual void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) = 0;
};

/// While it exists, calls on its thread may leave another native device current than they found; the
/// outermost one restores the caller's. Many calls about default streams would else switch to and fro. Nobody
/// else may change the thread's native device meanwhile.
class DeviceScope {
 public:
  explicit DeviceScope(Backend& backend) : backend_(backend) { backend_.open_device_scope(); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() { backend_.close_device_scope(); }

 private:
  Backend& backend_;
};

/// Architectures the cuda backend was compiled for; empty in a build without CUDA.
[[nodiscard]] std::span<const std::string_view> compiled_architectures() noexcept;

/// The GPUs of this machine; nullptr if this build has no CUDA, or no GPU is usable, and then `reason` says
/// why.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(std::string& reason);

/// How many devices `make_cuda_backend` would find, told without starting CUDA, which a process must not have
/// done before it forks children that use GPUs; nothing if it cannot be told so.
[[nodiscard]] std::optional<int> count_gpus_unstarted();

}  // namespace tutti::backend
