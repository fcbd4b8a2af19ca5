// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/address_ranges.hpp"

#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/driver_function.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include <cuda.h>

namespace tutti::backend::cuda {
namespace {

/// The driver's functions for this: all of them, or none of use.
struct RangeFunctions {
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(driver_function(name));
  }
  decltype(&cuDeviceGetAttribute) get_attribute =
      find<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  decltype(&cuMemGetAllocationGranularity) granularity =
      find<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(&cuMemAddressReserve) reserve = find<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free = find<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemCreate) create = find<decltype(cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = find<decltype(cuMemRelease)>("cuMemRelease");
  decltype(&cuMemMap) map = find<decltype(cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = find<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = find<decltype(cuMemSetAccess)>("cuMemSetAccess");

  [[nodiscard]] bool are_there() const noexcept {
    return get_attribute != nullptr && granularity != nullptr && reserve != nullptr && free != nullptr &&
           create != nullptr && release != nullptr && map != nullptr && unmap != nullptr &&
           set_access != nullptr;
  }
};

const RangeFunctions& range_functions() {
  static const RangeFunctions functions;
  return functions;
}

/// The runtime's numbers of failures are the driver's.
cudaError_t as_runtime(CUresult status) noexcept {
  return static_cast<cudaError_t>(status);
}

CUdeviceptr number_of_address(const void* address) noexcept {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(address));
}

/// Returns true if the driver reports that the device has the attribute.
bool device_has(CUdevice_attribute which, int device) {
  int value = 0;
  return range_functions().get_attribute(&value, which, device) == CUDA_SUCCESS && value != 0;
}

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp memory{};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory.location.id = device;
  // So that network cards can reach it, as they reach other memory of the device.
  if (device_has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device))
    memory.allocFlags.gpuDirectRDMACapable = 1;
  return memory;
}

CUresult let_access(std::byte* address, std::size_t bytes, std::span<const int> devices) {
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    CUmemAccessDesc& one = access.emplace_back();
    one = {};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = device;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  return range_functions().set_access(number_of_address(address), bytes, access.data(), access.size());
}

}  // namespace

std::size_t AddressRanges::page_bytes(int device) {
  const RangeFunctions& functions = range_functions();
  if (!functions.are_there() || !device_has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
    return 0;
  const CUmemAllocationProp memory = memory_of(device);
  std::size_t bytes = 0;
  const CUresult status = functions.granularity(&bytes, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  return status == CUDA_SUCCESS ? bytes : 0;
}

void* AddressRanges::reserve(int device, std::size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult status = range_functions().reserve(&address, bytes, 0, 0, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  check(as_runtime(status), "cuMemAddressReserve", device);
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

bool AddressRanges::map(int device, void* address, std::size_t bytes) {
  const RangeFunctions& functions = range_functions();
  auto* const begin = static_cast<std::byte*>(address);
  const CUmemAllocationProp properties = memory_of(device);
  const std::lock_guard lock(mutex_);
  OfDevice& known = of(device);
  std::vector<int> accessors{device};
  accessors.insert(accessors.end(), known.accessors.begin(), known.accessors.end());
  const auto piece = known.pieces.emplace(begin, bytes).first;

  CUmemGenericAllocationHandle memory{};
  CUresult status = functions.create(&memory, bytes, &properties, 0);
  const char* call = "cuMemCreate";
  if (status == CUDA_SUCCESS) {
    status = functions.map(number_of_address(address), bytes, 0, memory, 0);
    call = "cuMemMap";
    // The piece keeps the memory from now on, until it is unmapped.
    const CUresult released = functions.release(memory);
    const bool is_mapped = status == CUDA_SUCCESS;
    if (is_mapped) {
      status = released == CUDA_SUCCESS ? let_access(begin, bytes, accessors) : released;
      call = released == CUDA_SUCCESS ? "cuMemSetAccess" : "cuMemRelease";
    }
    if (is_mapped && status != CUDA_SUCCESS)
      static_cast<void>(functions.unmap(number_of_address(address), bytes));
  }
  if (status == CUDA_SUCCESS) return true;
  known.pieces.erase(piece);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  throw_error(as_runtime(status), call, device);
}

int AddressRanges::unmap(int device, void* address, std::size_t bytes) noexcept {
  auto* const begin = static_cast<std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto& pieces = of(device).pieces;
  pieces.erase(pieces.lower_bound(begin), pieces.lower_bound(begin + bytes));
  return range_functions().unmap(number_of_address(address), bytes);
}

int AddressRanges::release(void* address, std::size_t bytes) noexcept {
  return range_functions().free(number_of_address(address), bytes);
}

void AddressRanges::give_access(int owner, int accessor) {
  const std::lock_guard lock(mutex_);
  OfDevice& known = of(owner);
  if (owner == accessor || std::ranges::count(known.accessors, accessor) > 0) return;
  const int only[] = {accessor};
  for (const auto& [address, bytes] : known.pieces)
    check(as_runtime(let_access(address, bytes, only)), "cuMemSetAccess", owner);
  known.accessors.push_back(accessor);
}

}  // namespace tutti::backend::cuda
