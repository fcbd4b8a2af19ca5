// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"

#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/handles.hpp"
#include "backend/cuda/nvlink.hpp"
#include "os/descriptor.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

namespace tutti::backend::cuda {
namespace {

/// Nominal payload of one NVLink connection in one direction.
double nvlink_lane_gigabytes_per_s(const DeviceProperties& properties) {
  if (properties.major >= 10) return 50.0;
  return properties.major >= 7 ? 25.0 : 20.0;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute", device);
  return value;
}

/// The NUMA node a PCI device hangs on, -1 if the system does not say.
int numa_node_of(std::string pci_bus_id) {
  std::ranges::transform(pci_bus_id, pci_bus_id.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string text = first_line_of(fmt::format("/sys/bus/pci/devices/{}/numa_node", pci_bus_id));
  int node = -1;
  std::from_chars(text.data(), text.data() + text.size(), node);
  return node;
}

/// "GPU-" and the bytes in groups of 4, 2, 2, 2 and 6.
std::string uuid_in_words(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", begins_group ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
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
  properties.warp_size = native_properties.warpSize;
  properties.max_threads_per_multiprocessor = native_properties.maxThreadsPerMultiProcessor;
  properties.registers_per_block = native_properties.regsPerBlock;
  properties.registers_per_multiprocessor = native_properties.regsPerMultiprocessor;
  properties.shared_memory_per_block_optin = native_properties.sharedMemPerBlockOptin;
  properties.shared_memory_per_multiprocessor = native_properties.sharedMemPerMultiprocessor;
  properties.constant_memory = native_properties.totalConstMem;
  properties.memory_bus_width = native_properties.memoryBusWidth;
  properties.is_integrated = native_properties.integrated != 0;
  properties.is_multi_gpu_board = native_properties.isMultiGpuBoard != 0;
  properties.uuid = uuid_in_words(native_properties.uuid);
  // Newer toolkits have these as attributes only.
  properties.clock_rate = attribute(cudaDevAttrClockRate, device);
  properties.memory_clock_rate = attribute(cudaDevAttrMemoryClockRate, device);
  properties.l2_cache_size = static_cast<std::size_t>(native_properties.l2CacheSize);
  properties.max_threads_per_block = native_properties.maxThreadsPerBlock;
  properties.shared_memory_per_block = native_properties.sharedMemPerBlock;
  properties.copy_engine_count = native_properties.asyncEngineCount;
  properties.pci_bus_id = bus_id.data();
  properties.numa_node = numa_node_of(properties.pci_bus_id);
  return properties;
}

}  // namespace

CudaBackend::CudaBackend(int count) : ranges_(count) {
  std::vector<std::string> bus_ids;
  for (int device = 0; device < count; ++device) {
    auto state = std::make_unique<DeviceState>(device);
    state->properties = read_properties(device);
    state->largest_pitch = static_cast<std::size_t>(attribute(cudaDevAttrMaxPitch, device));
    bus_ids.push_back(state->properties.pci_bus_id);
    devices_.push_back(std::move(state));
  }
  nvlink_lanes_ = nvlink_lanes(bus_ids);
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  if (driver >= large_parameters_driver) parameter_table_limit_ = large_parameter_table;
  graphs_may_launch_dependently_ = driver >= dependent_graphs_driver;
}

CudaBackend::~CudaBackend() = default;

void CudaBackend::prepare(int device) {
  std::call_once(at(device).prepared, [this, device] {
    const CurrentDevice current(device);
    const RelaxedCapture relaxed;
    // A failure here fails again at the launch, where it can be reported with a meaning.
    for (const auto& preload :
         {preload_fan_out, preload_ordered_sum, preload_ordered_reduction, preload_convert, preload_fill,
          preload_random_fill, preload_norms, preload_wait, preload_team_copies, preload_team_swaps,
          preload_team_sums, preload_team_reductions, preload_links, preload_low_latency_copies,
          preload_low_latency_sums, preload_low_latency_reductions}) {
      forget(preload());
    }
    at(device).may_launch_dependently = team_kernels_may_be_dependent();
    used_device_.store(device);
  });
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

void CudaBackend::check_event(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  std::string work;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    const char* const last = devices_[device]->last_work.load(std::memory_order_relaxed);
    if (last != nullptr) work += fmt::format("{}{} on device {}", work.empty() ? "" : ", ", last, device);
  }
  throw_error(status, call, -1, work);
}

void CudaBackend::keep_late_failure(cudaError_t status, int device) noexcept {
  // The driver may be gone before the last object at process exit: nothing is left to free then.
  if (status == cudaErrorCudartUnloading) return;
  if (forget(status) != cudaSuccess) at(device).late_failure = status;
}

// Devices.

std::pair<int, int> CudaBackend::stream_priority_range(int device) const {
  // The same for all devices of today. Asking makes a context, on the device where a stream is wanted.
  std::call_once(priorities_known_, [this, device] {
    const CurrentDevice current(device);
    forget(cudaDeviceGetStreamPriorityRange(&priorities_.first, &priorities_.second));
  });
  return priorities_;
}

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
  if (lanes > 0) return {LinkKind::nvlink, lanes, lanes * nvlink_lane_gigabytes_per_s(properties(device))};
  // This needs no NVML: only NVLink carries atomic operations between GPUs.
  int atomics = 0;
  check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer),
        "cudaDeviceGetP2PAttribute", device);
  return {atomics != 0 ? LinkKind::nvlink : LinkKind::pcie_p2p, 0, 0.0};
}

bool CudaBackend::has_nvlink_to(int device, const std::string& pci_bus_id) {
  for (int peer = 0; peer < device_count(); ++peer) {
    if (properties(peer).pci_bus_id != pci_bus_id) continue;
    int atomics = 0;  // only NVLink carries them
    check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer),
          "cudaDeviceGetP2PAttribute", device);
    return atomics != 0;
  }
  return nvlink_leads_to_switches(properties(device).pci_bus_id);
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
  const RelaxedCapture relaxed;
  const cudaError_t status = forget(cudaDeviceEnablePeerAccess(peer, 0));
  if (status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled)
    return ranges_.give_access(peer, device);
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("device {} cannot be given access to device {}: {} ({})", device, peer,
                          cudaGetErrorString(status), cudaGetErrorName(status)),
              static_cast<int>(status));
}

std::optional<int> CudaBackend::native_device() {
  return thread_device.callers();
}

NativePlace CudaBackend::enter_device(int device) {
  const NativePlace previous = ask_place();
  if (previous.device != device) thread_device.enter(device);
  return previous;
}

void CudaBackend::leave_device(const NativePlace& previous) noexcept {
  thread_device.restore(previous);
}

void CudaBackend::set_current_device(int device) {
  thread_device.set(device);
}

void CudaBackend::open_device_scope() {
  thread_device.open_scope();
}

void CudaBackend::close_device_scope() noexcept {
  thread_device.close_scope();
}

void CudaBackend::synchronize_device(int device) {
  const CurrentDevice current(device);
  check_work(cudaDeviceSynchronize(), "cudaDeviceSynchronize", device);
}

}  // namespace tutti::backend::cuda

namespace tutti::backend {

std::unique_ptr<Backend> make_cuda_backend(std::string& reason) {
  int count = 0;
  const cudaError_t status = cuda::forget(cudaGetDeviceCount(&count));
  if (status != cudaSuccess || count == 0) {
    reason = status == cudaSuccess ? "CUDA sees no device"
                                   : fmt::format("CUDA reports: {}", cudaGetErrorString(status));
    return nullptr;
  }
  try {
    return std::make_unique<cuda::CudaBackend>(count);
  } catch (const Error& error) {
    reason = error.what();
    return nullptr;
  }
}

}  // namespace tutti::backend
