#include "backend/cuda/cuda_backend.hpp"

#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/nvlink.hpp"
#include "tutti/error.hpp"

#include <array>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace tutti::backend::cuda {
namespace {

constexpr double nvlink_lane_gigabytes_per_s =
    25.0;  // payload, one direction, as sm_80 and sm_90 are specified

cudaStream_t native(StreamRef stream) {
  return reinterpret_cast<cudaStream_t>(stream.handle);
}
cudaEvent_t native(EventHandle event) {
  return reinterpret_cast<cudaEvent_t>(event);
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute", device);
  return value;
}

DeviceProperties read_properties(int device) {
  cudaDeviceProp native_properties{};
  check(cudaGetDeviceProperties(&native_properties, device), "cudaGetDeviceProperties", device);
  std::array<char, 32> bus_id{};
  check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
        "cudaDeviceGetPCIBusId", device);
  DeviceProperties properties;
  properties.name = native_properties.name;
  properties.major = native_properties.major;
  properties.minor = native_properties.minor;
  properties.total_memory = native_properties.totalGlobalMem;
  properties.multiprocessor_count = native_properties.multiProcessorCount;
  properties.l2_cache_size = static_cast<std::size_t>(native_properties.l2CacheSize);
  properties.max_threads_per_block = native_properties.maxThreadsPerBlock;
  properties.shared_memory_per_block = native_properties.sharedMemPerBlock;
  properties.copy_engine_count = native_properties.asyncEngineCount;
  properties.pci_bus_id = bus_id.data();
  properties.numa_node = attribute(cudaDevAttrHostNumaId, device);
  return properties;
}

/// The default stream is a device's own only while that device is current; other streams know theirs.
class StreamDevice {
 public:
  explicit StreamDevice(StreamRef stream) {
    if (stream.handle == nullptr) current_.emplace(stream.device);
  }

 private:
  std::optional<CurrentDevice> current_;
};

}  // namespace

CudaBackend::CudaBackend(int count) {
  std::vector<std::string> bus_ids;
  for (int device = 0; device < count; ++device) {
    auto state = std::make_unique<DeviceState>(device);
    state->properties = read_properties(device);
    state->largest_pitch = static_cast<std::size_t>(attribute(cudaDevAttrMaxPitch, device));
    bus_ids.push_back(state->properties.pci_bus_id);
    devices_.push_back(std::move(state));
  }
  nvlink_lanes_ = nvlink_lanes(bus_ids);
  check(cudaDeviceGetStreamPriorityRange(&priorities_.first, &priorities_.second),
        "cudaDeviceGetStreamPriorityRange");
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (driver >= large_parameters_driver) parameter_table_limit_ = large_parameter_table;
}

CudaBackend::~CudaBackend() = default;

LaunchSite CudaBackend::site(StreamRef stream, const char* work) {
  DeviceState& state = at(stream.device);
  state.last_work.store(work, std::memory_order_relaxed);
  return {native(stream), state.properties.multiprocessor_count};
}

void CudaBackend::check_work(cudaError_t status, const char* call, int device) {
  if (status == cudaSuccess) {
    if (at(device).late_failure.load(std::memory_order_relaxed) == cudaSuccess) return;
    status = at(device).late_failure.exchange(cudaSuccess);
    if (status == cudaSuccess) return;
    call = "an earlier call that could not report it";
  }
  const char* const work = at(device).last_work.load(std::memory_order_relaxed);
  throw_error(status, call, device, work == nullptr ? "" : work);
}

// Devices.

MemoryInfo CudaBackend::memory_info(int device) {
  const CurrentDevice current(device);
  MemoryInfo info;
  check(cudaMemGetInfo(&info.free, &info.total), "cudaMemGetInfo", device);
  return info;
}

Link CudaBackend::link(int device, int peer) {
  if (device == peer) return {LinkKind::self, 0, 0.0};
  if (!can_access_peer(device, peer)) return {LinkKind::host_bridge, 0, 0.0};
  const int lanes = nvlink_lanes_[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)];
  if (lanes > 0) return {LinkKind::nvlink, lanes, lanes * nvlink_lane_gigabytes_per_s};
  // Without NVML: only NVLink carries atomic operations between GPUs.
  int atomics = 0;
  check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer),
        "cudaDeviceGetP2PAttribute", device);
  return {atomics != 0 ? LinkKind::nvlink : LinkKind::pcie_p2p, 0, 0.0};
}

bool CudaBackend::can_access_peer(int device, int peer) {
  if (device == peer) return false;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer", device);
  return can != 0;
}

void CudaBackend::enable_peer_access(int device, int peer) {
  const std::scoped_lock lock(peer_mutex_);
  const CurrentDevice current(device);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("device {} cannot be given access to device {}: {} ({})", device, peer,
                          cudaGetErrorString(status), cudaGetErrorName(status)),
              static_cast<int>(status));
}

void CudaBackend::set_current_device(int device) {
  check(cudaSetDevice(device), "cudaSetDevice", device);
}

void CudaBackend::synchronize_device(int device) {
  const CurrentDevice current(device);
  check_work(cudaDeviceSynchronize(), "cudaDeviceSynchronize", device);
}

// Memory.

void* CudaBackend::allocate_device(int device, std::size_t bytes) {
  const CurrentDevice current(device);
  const RelaxedCapture relaxed;
  void* address = nullptr;
  const cudaError_t status = cudaMalloc(&address, bytes);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check(status, "cudaMalloc", device);
  return address;
}

void CudaBackend::free_device(int device, void* address) noexcept {
  const cudaError_t status = cudaFree(address);
  // At process exit the driver may be gone before the last tensor: nothing is left to free then.
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) at(device).late_failure = status;
}

void* CudaBackend::allocate_pinned(std::size_t bytes) {
  const RelaxedCapture relaxed;
  void* address = nullptr;
  const cudaError_t status = cudaHostAlloc(&address, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check(status, "cudaHostAlloc");
  return address;
}

void CudaBackend::free_pinned(void* address) noexcept {
  const cudaError_t status = cudaFreeHost(address);
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) at(0).late_failure = status;
}

PointerInfo CudaBackend::pointer_info(const void* address) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  PointerInfo info;
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
      info.kind = MemoryKind::device;
      break;
    case cudaMemoryTypeHost:
      info.kind = MemoryKind::pinned;
      break;
    default:
      info.kind = MemoryKind::pageable;
      return info;
  }
  if (info.kind == MemoryKind::device) info.device = attributes.device;

  // The runtime does not tell an allocation's extent; the driver does.
  using GetAddressRange = int (*)(unsigned long long*, std::size_t*, unsigned long long);
  static const auto get_address_range = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found);
    return reinterpret_cast<GetAddressRange>(
        status == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr);
  }();
  unsigned long long base = 0;
  std::size_t bytes = 0;
  const auto place = reinterpret_cast<unsigned long long>(address);
  if (get_address_range != nullptr && info.kind == MemoryKind::device &&
      get_address_range(&base, &bytes, place) == 0) {
    info.base = static_cast<const std::byte*>(address) - (place - base);
    info.bytes = bytes;
  }
  return info;
}

// Streams and events.

StreamRef CudaBackend::create_stream(int device, int priority) {
  const CurrentDevice current(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority", device);
  return {reinterpret_cast<StreamHandle>(stream), device};
}

void CudaBackend::destroy_stream(StreamRef stream) noexcept {
  const cudaError_t status = cudaStreamDestroy(native(stream));
  if (status != cudaSuccess && status != cudaErrorCudartUnloading) at(stream.device).late_failure = status;
}

bool CudaBackend::query_stream(StreamRef stream) {
  const StreamDevice current(stream);
  const cudaError_t status = cudaStreamQuery(native(stream));
  if (status == cudaErrorNotReady) return false;
  check_work(status, "cudaStreamQuery", stream.device);
  return true;
}

void CudaBackend::synchronize_stream(StreamRef stream) {
  const StreamDevice current(stream);
  check_work(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize", stream.device);
}

void CudaBackend::wait_event(StreamRef stream, EventHandle event) {
  const StreamDevice current(stream);
  check(cudaStreamWaitEvent(native(stream), native(event), 0), "cudaStreamWaitEvent", stream.device);
}

void CudaBackend::launch_host_function(StreamRef stream, void (*function)(void*), void* argument) {
  const StreamDevice current(stream);
  check(cudaLaunchHostFunc(site(stream, "a host function").stream, function, argument), "cudaLaunchHostFunc",
        stream.device);
}

EventHandle CudaBackend::create_event(int device, EventTiming timing, EventWait wait) {
  const CurrentDevice current(device);
  unsigned flags = timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming;
  if (wait == EventWait::block) flags |= cudaEventBlockingSync;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags", device);
  return reinterpret_cast<EventHandle>(event);
}

void CudaBackend::destroy_event(EventHandle event) noexcept {
  static_cast<void>(cudaEventDestroy(native(event)));
}

void CudaBackend::record_event(EventHandle event, StreamRef stream) {
  const StreamDevice current(stream);
  check(cudaEventRecord(native(event), native(stream)), "cudaEventRecord", stream.device);
}

bool CudaBackend::query_event(EventHandle event) {
  const RelaxedCapture relaxed;
  const cudaError_t status = cudaEventQuery(native(event));
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

void CudaBackend::synchronize_event(EventHandle event) {
  check(cudaEventSynchronize(native(event)), "cudaEventSynchronize");
}

float CudaBackend::elapsed_time(EventHandle start, EventHandle end) {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, native(start), native(end)), "cudaEventElapsedTime");
  return milliseconds;
}

// Operations.

void CudaBackend::copy(StreamRef stream, const Copy2D& copy) {
  if (copy.rows == 0 || copy.row_bytes == 0) return;
  const StreamDevice current(stream);
  const cudaStream_t queue = site(stream, "a copy").stream;
  if (copy.rows == 1) {
    check(cudaMemcpyAsync(copy.target, copy.source, copy.row_bytes, cudaMemcpyDefault, queue),
          "cudaMemcpyAsync", stream.device);
    return;
  }
  const std::size_t largest = at(stream.device).largest_pitch;
  if (copy.target_pitch <= largest && copy.source_pitch <= largest) {
    check(cudaMemcpy2DAsync(copy.target, copy.target_pitch, copy.source, copy.source_pitch, copy.row_bytes,
                            copy.rows, cudaMemcpyDefault, queue),
          "cudaMemcpy2DAsync", stream.device);
    return;
  }
  for (std::size_t row = 0; row < copy.rows; ++row) {  // rows of gigabytes: one call each is nothing
    check(cudaMemcpyAsync(copy.target + row * copy.target_pitch, copy.source + row * copy.source_pitch,
                          copy.row_bytes, cudaMemcpyDefault, queue),
          "cudaMemcpyAsync", stream.device);
  }
}

void CudaBackend::launch_table(StreamRef stream, const char* work, const SegmentTable& table,
                               const std::function<cudaError_t(const TableArgument&)>& launch) {
  if (table.shape.tile_count == 0) return;
  if (table.bytes <= parameter_table_limit_) {
    check(launch({table.blob.data(), table.bytes, nullptr}), work, stream.device);
    return;
  }
  const std::shared_ptr<TableStore>& store = at(stream.device).tables;
  std::unique_ptr<TableStore::Slot> slot = store->acquire(table.bytes);
  std::memcpy(slot->pinned, table.blob.data(), table.bytes);
  check(cudaMemcpyAsync(slot->device, slot->pinned, table.bytes, cudaMemcpyHostToDevice, native(stream)),
        "cudaMemcpyAsync", stream.device);
  check(launch({table.blob.data(), table.bytes, slot->device}), work, stream.device);
  if (is_capturing(stream)) {
    // The graph copies the table anew at every launch.
    const std::shared_ptr<TableStore::Slot> kept(slot.release(), [store](TableStore::Slot* raw) {
      store->release(std::unique_ptr<TableStore::Slot>(raw));
    });
    retain_until_graph_destroyed(stream, kept);
  } else {
    store->release_after(std::move(slot), native(stream));
  }
}

void CudaBackend::fan_out(StreamRef stream, const FanOut& task) {
  thread_local SegmentTable table;
  const CurrentDevice current(stream.device);
  const LaunchSite where = site(stream, "a fan-out");
  build_table(task, where.multiprocessors, table);
  launch_table(stream, "fan-out kernel", table,
               [&](const TableArgument& argument) { return launch_fan_out(where, argument, table.shape); });
}

void CudaBackend::ordered_sum(StreamRef stream, const OrderedSum& task) {
  thread_local SegmentTable table;
  const CurrentDevice current(stream.device);
  const LaunchSite where = site(stream, "an ordered sum");
  build_table(task, where.multiprocessors, table);
  launch_table(stream, "ordered sum kernel", table, [&](const TableArgument& argument) {
    return launch_ordered_sum(where, task, argument, table.shape);
  });
}

void CudaBackend::convert(StreamRef stream, const Convert& task) {
  const CurrentDevice current(stream.device);
  check(launch_convert(site(stream, "a conversion"), task), "conversion kernel", stream.device);
}

void CudaBackend::fill(StreamRef stream, const Fill& task) {
  const CurrentDevice current(stream.device);
  check(launch_fill(site(stream, "a fill"), task), "fill kernel", stream.device);
}

void CudaBackend::random_fill(StreamRef stream, const RandomFill& task) {
  const CurrentDevice current(stream.device);
  check(launch_random_fill(site(stream, "a random fill"), task), "random fill kernel", stream.device);
}

}  // namespace tutti::backend::cuda

namespace tutti::backend {

std::unique_ptr<Backend> make_cuda_backend(std::string& reason) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    reason = status == cudaSuccess ? "CUDA sees no device"
                                   : fmt::format("CUDA reports: {}", cudaGetErrorString(status));
    return nullptr;
  }
  return std::make_unique<cuda::CudaBackend>(count);
}

}  // namespace tutti::backend
