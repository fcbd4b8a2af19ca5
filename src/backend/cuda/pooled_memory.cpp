// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/pooled_memory.hpp"

#include "backend/cuda/driver_function.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace tutti::backend::cuda {
namespace {

/// The driver's functions for this: all of them, or none of use.
struct PoolFunctions {
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(driver_function(name));
  }
  decltype(&cuPointerGetAttribute) attribute = find<decltype(cuPointerGetAttribute)>("cuPointerGetAttribute");
  decltype(&cuMemGetAddressRange) extent = find<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange");
  decltype(&cuMemPoolExportToShareableHandle) export_pool =
      find<decltype(cuMemPoolExportToShareableHandle)>("cuMemPoolExportToShareableHandle");
  decltype(&cuMemPoolExportPointer) export_pointer =
      find<decltype(cuMemPoolExportPointer)>("cuMemPoolExportPointer");
  decltype(&cuMemPoolImportFromShareableHandle) import_pool =
      find<decltype(cuMemPoolImportFromShareableHandle)>("cuMemPoolImportFromShareableHandle");
  decltype(&cuMemPoolImportPointer) import_pointer =
      find<decltype(cuMemPoolImportPointer)>("cuMemPoolImportPointer");
  decltype(&cuMemPoolSetAccess) set_access = find<decltype(cuMemPoolSetAccess)>("cuMemPoolSetAccess");
  decltype(&cuMemPoolGetAccess) get_access = find<decltype(cuMemPoolGetAccess)>("cuMemPoolGetAccess");
  decltype(&cuMemPoolDestroy) destroy = find<decltype(cuMemPoolDestroy)>("cuMemPoolDestroy");
  decltype(&cuMemFree) free = find<decltype(cuMemFree)>("cuMemFree");

  [[nodiscard]] bool are_there() const noexcept {
    return attribute != nullptr && extent != nullptr && export_pool != nullptr && export_pointer != nullptr &&
           import_pool != nullptr && import_pointer != nullptr && set_access != nullptr &&
           destroy != nullptr && free != nullptr;
  }
};
const PoolFunctions& pool_functions() {
  static const PoolFunctions functions;
  return functions;
}

const char* words_of(CUresult status) noexcept {
  return cudaGetErrorString(static_cast<cudaError_t>(status));
}

CUdeviceptr number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

[[noreturn]] void cannot_share(int device, const std::string& reason, CUresult status) {
  throw Error(ErrorCode::unsupported,
              fmt::format("device {} cannot share its memory with other processes: {}", device, reason),
              status);
}

CUresult let_access(CUmemoryPool pool, const std::vector<int>& devices) {
  std::vector<CUmemAccessDesc> access(devices.size());
  std::ranges::transform(devices, access.begin(), [](int device) {
    CUmemAccessDesc description{};
    description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    description.location.id = device;
    description.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return description;
  });
  return pool_functions().set_access(pool, access.data(), access.size());
}

}  // namespace

CUmemoryPool PooledMemory::pool_of(const void* address) {
  CUmemoryPool pool = nullptr;
  if (!pool_functions().are_there()) return pool;
  const CUresult status =
      pool_functions().attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, number_of(address));
  return status == CUDA_SUCCESS ? pool : nullptr;
}

std::unique_ptr<SharedPieces> PooledMemory::share(int device, void* address, std::size_t bytes,
                                                  Audience audience) {
  const PoolFunctions& functions = pool_functions();
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CUresult status = functions.extent(&base, &size, number_of(address));
  if (status != CUDA_SUCCESS)
    cannot_share(device, fmt::format("cuMemGetAddressRange: {}", words_of(status)), status);
  int file = -1;
  status = functions.export_pool(&file, pool_of(address), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (status != CUDA_SUCCESS) {
    cannot_share(device,
                 fmt::format("its pool was not made for it (cudaMemPoolCreate with "
                             "cudaMemHandleTypePosixFileDescriptor): {}",
                             words_of(status)),
                 status);
  }
  std::vector<SharedPieces::Piece> pieces(1);
  pieces[0].bytes = size;
  pieces[0].file = Descriptor(file);
  CUmemPoolPtrExportData data{};
  status = functions.export_pointer(&data, base);
  if (status != CUDA_SUCCESS)
    cannot_share(device, fmt::format("cuMemPoolExportPointer: {}", words_of(status)), status);
  pieces[0].opaque = std::bit_cast<SharedPieces::Opaque>(data);
  return std::make_unique<SharedPieces>(SharedPieces::Range{.device = device,
                                                            .origin = MemoryOrigin::pool,
                                                            .offset = number_of(address) - base,
                                                            .bytes = bytes},
                                        std::move(pieces), audience);
}

void PooledMemory::give_access(int device, void* address, const std::vector<int>& accessors) {
  if (accessors.empty()) return;
  const CUresult status = let_access(pool_of(address), accessors);
  if (status == CUDA_SUCCESS) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("device {}: peers cannot get access to the pool of memory at {}: "
                          "cuMemPoolSetAccess: {}",
                          device, fmt::ptr(address), words_of(status)),
              status);
}

bool PooledMemory::is_open_to(int device, const void* address) {
  CUmemoryPool pool = pool_of(address);
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return pool != nullptr && pool_functions().get_access != nullptr &&
         pool_functions().get_access(&flags, pool, &location) == CUDA_SUCCESS &&
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

void* PooledMemory::open(int device, const SharedPieces::Opened& opened) {
  const PoolFunctions& functions = pool_functions();
  const SharedPieces::Piece& piece = opened.pieces.front();
  Imported imported;
  const auto require = [&](CUresult status, const char* call) {
    if (status == CUDA_SUCCESS) return;
    if (imported.memory != 0) static_cast<void>(functions.free(imported.memory));
    if (imported.pool != nullptr) static_cast<void>(functions.destroy(imported.pool));
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("device {} cannot open another process's device memory: {}: {}", device, call,
                            words_of(status)),
                status);
  };
  require(functions.are_there() ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED, "cuMemPoolImportPointer");
  auto* const file = reinterpret_cast<void*>(static_cast<std::intptr_t>(piece.file.number()));
  require(functions.import_pool(&imported.pool, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemPoolImportFromShareableHandle");
  require(let_access(imported.pool, {device}), "cuMemPoolSetAccess");
  auto data = std::bit_cast<CUmemPoolPtrExportData>(piece.opaque);
  require(functions.import_pointer(&imported.memory, imported.pool, &data), "cuMemPoolImportPointer");
  auto* const address = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(imported.memory));
  std::byte* const offered = address + opened.range.offset;
  const std::lock_guard lock(mutex_);
  opened_.emplace(offered, imported);
  return offered;
}

bool PooledMemory::close(void* address, int& status) noexcept {
  Imported imported;
  {
    const std::lock_guard lock(mutex_);
    const auto found = opened_.find(address);
    if (found == opened_.end()) return false;
    imported = found->second;
    opened_.erase(found);
  }
  status = pool_functions().free(imported.memory);
  const CUresult destroyed = pool_functions().destroy(imported.pool);
  if (status == CUDA_SUCCESS) status = destroyed;
  return true;
}

}  // namespace tutti::backend::cuda
