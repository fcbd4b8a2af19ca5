// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/shared_pieces.hpp"
#include "base/rounding.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <optional>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

/// Memory of GPUs, pinned memory, and sharing with other processes.
namespace tutti::backend::cuda {

void* CudaBackend::allocate_device(int device, std::size_t bytes) {
  prepare(device);
  const CurrentDevice current(device);
  const RelaxedCapture relaxed;
  void* address = nullptr;
  const cudaError_t status = forget(cudaMalloc(&address, bytes));
  if (status == cudaErrorMemoryAllocation) return nullptr;
  check(status, "cudaMalloc", device);
  return address;
}

void CudaBackend::free_device(int device, void* address) noexcept {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  keep_late_failure(cudaFree(address), device);
}

std::size_t CudaBackend::page_bytes(int device) {
  prepare(device);
  const CurrentDevice current(device);
  return ranges_.page_bytes(device);
}

void* CudaBackend::reserve_addresses(int device, std::size_t bytes) {
  const CurrentDevice current(device);
  const RelaxedCapture relaxed;
  return ranges_.reserve(device, bytes);
}

bool CudaBackend::map_pages(int device, void* address, std::size_t bytes) {
  const CurrentDevice current(device);
  const RelaxedCapture relaxed;
  return ranges_.map(device, address, bytes);
}

void CudaBackend::unmap_pages(int device, void* address, std::size_t bytes) noexcept {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  keep_late_failure(static_cast<cudaError_t>(ranges_.unmap(device, address, bytes)), device);
}

void CudaBackend::release_addresses(int device, void* address, std::size_t bytes) noexcept {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  keep_late_failure(static_cast<cudaError_t>(ranges_.release(address, bytes)), device);
}

void* CudaBackend::allocate_pinned(std::size_t bytes) {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  void* address = nullptr;
  const cudaError_t status = forget(cudaHostAlloc(&address, bytes, cudaHostAllocPortable));
  if (status == cudaErrorMemoryAllocation) return nullptr;
  check(status, "cudaHostAlloc");
  return address;
}

void CudaBackend::free_pinned(void* address) noexcept {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  keep_late_failure(cudaFreeHost(address), 0);
}

void CudaBackend::register_pinned(void* address, std::size_t bytes) {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  check(cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
        "cudaHostRegister");
}

void CudaBackend::unregister_pinned(void* address) noexcept {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  keep_late_failure(cudaHostUnregister(address), 0);
}

MemoryHandle CudaBackend::share_device_memory(int device, void* address, Audience /*audience*/) {
  static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle));
  const RelaxedCapture relaxed;
  const CurrentDevice current(device);
  cudaIpcMemHandle_t handle{};
  const cudaError_t status = cudaIpcGetMemHandle(&handle, address);
  if (status != cudaSuccess) {
    forget(cudaGetLastError());
    throw Error(ErrorCode::unsupported,
                fmt::format("device {} cannot share its memory with other processes: {}", device,
                            cudaGetErrorString(status)),
                status);
  }
  return std::bit_cast<MemoryHandle>(handle);
}

void* CudaBackend::open_device_memory(int device, const MemoryHandle& handle) {
  const RelaxedCapture relaxed;
  const CurrentDevice current(device);
  if (const std::optional<SharedPieces::Opened> pieces = SharedPieces::open(handle)) {
    return pieces->range.origin == MemoryOrigin::pool ? pooled_.open(device, *pieces)
                                                      : ranges_.open(device, *pieces);
  }
  void* address = nullptr;
  const cudaError_t status = cudaIpcOpenMemHandle(&address, std::bit_cast<cudaIpcMemHandle_t>(handle),
                                                  cudaIpcMemLazyEnablePeerAccess);
  if (status != cudaSuccess) {
    forget(cudaGetLastError());
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("device {} cannot open another process's device memory: {}", device,
                            cudaGetErrorString(status)),
                status);
  }
  return address;
}

void CudaBackend::close_device_memory(int device, void* address) noexcept {
  const RelaxedCapture relaxed;
  try {
    const CurrentDevice current(device);
    int status = 0;
    if (!ranges_.close(address, status) && !pooled_.close(address, status))
      status = cudaIpcCloseMemHandle(address);
    keep_late_failure(static_cast<cudaError_t>(status), device);
  } catch (const Error&) {
    // The process is ending, and CUDA with it.
  }
}

std::unique_ptr<SharedPieces> CudaBackend::share_pieces(int device, void* address, std::size_t bytes,
                                                        Audience audience) {
  const RelaxedCapture relaxed;
  const CurrentDevice current(device);
  return PooledMemory::pool_of(address) != nullptr ? PooledMemory::share(device, address, bytes, audience)
                                                   : AddressRanges::share(device, address, bytes, audience);
}

void CudaBackend::adopt_pieces(int device, void* address, std::size_t bytes) {
  const RelaxedCapture relaxed;
  const CurrentDevice current(device);
  ranges_.adopt(device, address, bytes);
}

void CudaBackend::disown_pieces(int device, void* address) noexcept {
  ranges_.disown(device, address);
}

PointerInfo CudaBackend::pointer_info(const void* address) {
  const AnyContext context(used_device_);
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  PointerInfo info;
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
      info.kind = MemoryKind::device;
      info.is_managed = attributes.type == cudaMemoryTypeManaged;
      break;
    case cudaMemoryTypeHost:
      info.kind = MemoryKind::pinned;
      break;
    default:
      info.kind = MemoryKind::pageable;
      return info;
  }
  if (info.kind == MemoryKind::pinned) return info;
  // Managed memory that prefers the host belongs to no device.
  info.device = std::max(attributes.device, -1);

  // The runtime does not tell an allocation's extent; the driver does.
  using GetAddressRange = int (*)(unsigned long long*, std::size_t*, unsigned long long);
  static const auto get_address_range =
      reinterpret_cast<GetAddressRange>(driver_function("cuMemGetAddressRange"));
  std::optional<CurrentDevice> current;
  if (info.device >= 0) current.emplace(info.device);
  unsigned long long base = 0;
  std::size_t bytes = 0;
  const auto place = reinterpret_cast<unsigned long long>(address);
  if (get_address_range != nullptr && get_address_range(&base, &bytes, place) == 0) {
    info.base = static_cast<const std::byte*>(address) - (place - base);
    // Programs go beyond the end of managed memory, where nothing else is up to the next aligned address.
    constexpr std::size_t alignment = 256;  // of all allocations
    info.bytes = info.is_managed && base % alignment == 0 ? round_up(bytes, alignment) : bytes;
  }
  return info;
}

MemoryOrigin CudaBackend::origin_of(const void* address) {
  const AnyContext context(used_device_);
  return AddressRanges::origin_of(address);
}

bool CudaBackend::is_open_to(int peer, const void* address) {
  const AnyContext context(used_device_);
  const RelaxedCapture relaxed;
  return AddressRanges::is_open_to(peer, address);
}

std::uint64_t CudaBackend::identity_of(const void* address) {
  const AnyContext context(used_device_);
  return AddressRanges::identity_of(address);
}

}  // namespace tutti::backend::cuda
