// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/program_memory.hpp"

#include <stdexcept>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace tutti::test {
namespace {

template <class Status>
void check(Status status, const char* call) {
  if (static_cast<int>(status) != 0)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(static_cast<cudaError_t>(status)));
}

/// Calls a function of the driver.
template <class Function, class... Arguments>
void drive(const char* name, Arguments... arguments) {
  void* const found = backend::cuda::driver_function(name);
  if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  check(reinterpret_cast<Function*>(found)(arguments...), name);
}

constexpr std::size_t before = 4096;  ///< bytes of the first piece that are not used

OwnedMemory map_pieces(int device, std::size_t bytes, CUmemAllocationHandleType type) {
  CUmemAllocationProp memory{};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory.location.id = device;
  memory.requestedHandleTypes = type;
  std::size_t page = 0;
  drive<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", &page, &memory,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const std::size_t size = (bytes + before + page - 1) / page * page;
  CUdeviceptr range = 0;
  drive<decltype(cuMemAddressReserve)>("cuMemAddressReserve", &range, size, 0, 0, 0);
  for (std::size_t at = 0; at < size; at += page) {
    CUmemGenericAllocationHandle piece{};
    drive<decltype(cuMemCreate)>("cuMemCreate", &piece, page, &memory, 0);
    drive<decltype(cuMemMap)>("cuMemMap", range + at, page, 0, piece, 0);
    drive<decltype(cuMemRelease)>("cuMemRelease", piece);
  }
  CUmemAccessDesc access{};
  access.location = memory.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  drive<decltype(cuMemSetAccess)>("cuMemSetAccess", range, size, &access, 1);
  return {reinterpret_cast<void*>(range + before), [=](void*) {
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            for (std::size_t at = 0; at < size; at += page)
              drive<decltype(cuMemUnmap)>("cuMemUnmap", range + at, page);
            drive<decltype(cuMemAddressFree)>("cuMemAddressFree", range, size);
          }};
}

OwnedMemory take_from_shareable_pool(int device, std::size_t bytes) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  void* address = nullptr;
  check(cudaMallocFromPoolAsync(&address, bytes, pool, nullptr), "cudaMallocFromPoolAsync");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other streams and processes use it
  return {address, [=](void* memory) {
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            check(cudaFree(memory), "cudaFree");
            check(cudaMemPoolDestroy(pool), "cudaMemPoolDestroy");
          }};
}

OwnedMemory owned(void* address) {
  return {address, [](void* memory) {
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            check(cudaFree(memory), "cudaFree");
          }};
}

void prefer_host(void* address, std::size_t bytes) {
#if CUDART_VERSION >= 13000
  const cudaMemLocation host{cudaMemLocationTypeHost, 0};
#else
  const int host = cudaCpuDeviceId;
#endif
  check(cudaMemAdvise(address, bytes, cudaMemAdviseSetPreferredLocation, host), "cudaMemAdvise");
}

}  // namespace

OwnedMemory allocate(ProgramMemory kind, int device, std::size_t bytes) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaFree(nullptr), "cudaFree");  // so that the device is current for the driver, too
  void* address = nullptr;
  switch (kind) {
    case ProgramMemory::pieces:
      return map_pieces(device, bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    case ProgramMemory::pieces_without_handles:
      return map_pieces(device, bytes, CU_MEM_HANDLE_TYPE_NONE);
    case ProgramMemory::default_pool:
      check(cudaMallocAsync(&address, bytes, nullptr), "cudaMallocAsync");
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other streams use it
      return owned(address);
    case ProgramMemory::shareable_pool:
      return take_from_shareable_pool(device, bytes);
    case ProgramMemory::managed:
      check(cudaMallocManaged(&address, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
      return owned(address);
    case ProgramMemory::managed_on_host:
      check(cudaMallocManaged(&address, bytes, cudaMemAttachGlobal), "cudaMallocManaged");
      prefer_host(address, bytes);
      return owned(address);
  }
  throw std::runtime_error("no such kind of memory");
}

}  // namespace tutti::test
