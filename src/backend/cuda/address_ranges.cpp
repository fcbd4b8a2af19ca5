// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/address_ranges.hpp"

#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/pooled_memory.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

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
  decltype(&cuMemGetAccess) get_access = find<decltype(cuMemGetAccess)>("cuMemGetAccess");

  decltype(&cuMemRetainAllocationHandle) retain =
      find<decltype(cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
  decltype(&cuMemGetAllocationPropertiesFromHandle) properties =
      find<decltype(cuMemGetAllocationPropertiesFromHandle)>("cuMemGetAllocationPropertiesFromHandle");
  decltype(&cuMemExportToShareableHandle) export_handle =
      find<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  decltype(&cuMemImportFromShareableHandle) import_handle =
      find<decltype(cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
  decltype(&cuMemGetAddressRange) extent = find<decltype(cuMemGetAddressRange)>("cuMemGetAddressRange");
  decltype(&cuPointerGetAttributes) pointer_attributes =
      find<decltype(cuPointerGetAttributes)>("cuPointerGetAttributes");

  [[nodiscard]] bool can_share() const noexcept {
    return are_there() && retain != nullptr && properties != nullptr && export_handle != nullptr &&
           import_handle != nullptr && extent != nullptr;
  }
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

/// The type of fabric handles, of 64 bytes, which headers have a name for since CUDA 12.4.
constexpr auto fabric_type = static_cast<CUmemAllocationHandleType>(8);

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
  if (device_has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device))
    memory.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
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

const char* words_of(CUresult status) noexcept {
  return cudaGetErrorString(as_runtime(status));
}

[[noreturn]] void cannot_share(int device, std::string_view reason, CUresult status = CUDA_SUCCESS) {
  throw Error(ErrorCode::unsupported,
              fmt::format("device {} cannot share its memory with other processes: {}", device, reason),
              status);
}

/// Owns a reference to the physical memory of a piece.
class PhysicalMemory {
 public:
  explicit PhysicalMemory(CUmemGenericAllocationHandle handle) noexcept : handle_(handle) {}
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  ~PhysicalMemory() { static_cast<void>(range_functions().release(handle_)); }
  [[nodiscard]] CUmemGenericAllocationHandle get() const noexcept { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

/// Returns the pieces that the bytes are in, which lie side by side, by address; nothing if not all of the
/// bytes are in such.
std::optional<std::vector<std::pair<std::byte*, std::size_t>>> pieces_around(void* address,
                                                                             std::size_t bytes) {
  auto* at = static_cast<std::byte*>(address);
  const std::byte* const end = at + bytes;
  std::vector<std::pair<std::byte*, std::size_t>> pieces;
  while (at < end) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    if (range_functions().extent(&base, &size, number_of_address(at)) != CUDA_SUCCESS || size == 0)
      return std::nullopt;
    std::byte* const begin = at - (number_of_address(at) - base);
    if (!pieces.empty() && begin != at) return std::nullopt;
    pieces.emplace_back(begin, size);
    at = begin + size;
  }
  return pieces;
}

/// Exports a piece in the first way that its memory was made for.
SharedPieces::Piece exported(int device, std::byte* address, std::size_t bytes) {
  const RangeFunctions& functions = range_functions();
  CUmemGenericAllocationHandle handle{};
  if (const CUresult status = functions.retain(&handle, address); status != CUDA_SUCCESS)
    cannot_share(device, fmt::format("cuMemRetainAllocationHandle: {}", words_of(status)), status);
  const PhysicalMemory memory(handle);
  CUmemAllocationProp properties{};
  if (const CUresult status = functions.properties(&properties, handle); status != CUDA_SUCCESS) {
    cannot_share(device, fmt::format("cuMemGetAllocationPropertiesFromHandle: {}", words_of(status)), status);
  }
  const auto types = static_cast<unsigned>(properties.requestedHandleTypes);
  SharedPieces::Piece piece;
  piece.bytes = bytes;
  CUresult status = CUDA_ERROR_NOT_SUPPORTED;
  if ((types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    int file = -1;
    status = functions.export_handle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (status == CUDA_SUCCESS) piece.file = Descriptor(file);
    if (piece.file.is_open()) return piece;
  }
  if ((types & fabric_type) != 0) {
    status = functions.export_handle(piece.opaque.data(), handle, fabric_type, 0);
    if (status == CUDA_SUCCESS) return piece;
  }
  cannot_share(device,
               types == CU_MEM_HANDLE_TYPE_NONE
                   ? std::string("it was made by cuMemCreate without requestedHandleTypes")
                   : fmt::format("cuMemExportToShareableHandle: {}", words_of(status)),
               status);
}

/// Imports a piece of another process.
CUresult imported(const SharedPieces::Piece& piece, CUmemGenericAllocationHandle& handle) {
  const RangeFunctions& functions = range_functions();
  if (piece.file.is_open()) {
    auto* const file = reinterpret_cast<void*>(static_cast<std::intptr_t>(piece.file.number()));
    return functions.import_handle(&handle, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  SharedPieces::Opaque fabric = piece.opaque;
  return functions.import_handle(&handle, fabric.data(), fabric_type);
}

/// Imports pieces and maps them side by side from `begin` on. Counts the bytes that are mapped, also if one
/// of the pieces fails.
CUresult map_imported(CUdeviceptr begin, std::span<const SharedPieces::Piece> pieces, std::size_t& mapped) {
  for (const SharedPieces::Piece& piece : pieces) {
    CUmemGenericAllocationHandle handle{};
    if (const CUresult status = imported(piece, handle); status != CUDA_SUCCESS) return status;
    const PhysicalMemory memory(handle);  // the mapping keeps it
    const CUresult status = range_functions().map(begin + mapped, piece.bytes, 0, handle, 0);
    if (status != CUDA_SUCCESS) return status;
    mapped += piece.bytes;
  }
  return CUDA_SUCCESS;
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
  // What the program has freed, although it is adopted still, is no reason to refuse other memory.
  for (const auto& [address, pieces] : known.adopted) {
    const CUresult status = let_access(pieces.first, pieces.second, only);
    if (pieces_around(pieces.first, pieces.second)) check(as_runtime(status), "cuMemSetAccess", owner);
  }
  for (void* const address : known.adopted_of_pools) {
    if (PooledMemory::pool_of(address) != nullptr) PooledMemory::give_access(owner, address, {accessor});
  }
  known.accessors.push_back(accessor);
}

MemoryOrigin AddressRanges::origin_of(const void* address) {
  const RangeFunctions& functions = range_functions();
  if (!functions.can_share() || functions.pointer_attributes == nullptr) return MemoryOrigin::block;
  // What of the two an old driver does not know keeps its value here.
  unsigned is_capable_of_ipc = 1;
  unsigned is_managed = 0;
  CUmemoryPool pool = nullptr;
  std::array attributes{CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  std::array<void*, attributes.size()> values{&is_capable_of_ipc, &is_managed, &pool};
  const CUresult status = functions.pointer_attributes(
      static_cast<unsigned>(attributes.size()), attributes.data(), values.data(), number_of_address(address));
  if (status != CUDA_SUCCESS) return MemoryOrigin::block;
  if (pool != nullptr) return MemoryOrigin::pool;
  if (is_capable_of_ipc != 0 || is_managed != 0) return MemoryOrigin::block;
  CUmemGenericAllocationHandle handle{};
  if (functions.retain(&handle, const_cast<void*>(address)) != CUDA_SUCCESS) return MemoryOrigin::block;
  const PhysicalMemory memory(handle);
  return MemoryOrigin::piece;
}

bool AddressRanges::is_open_to(int peer, const void* address) {
  const MemoryOrigin origin = origin_of(address);
  if (origin == MemoryOrigin::block) return true;
  if (origin == MemoryOrigin::pool) return PooledMemory::is_open_to(peer, address);
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = peer;
  unsigned long long flags = 0;
  const RangeFunctions& functions = range_functions();
  return functions.get_access != nullptr &&
         functions.get_access(&flags, &location, number_of_address(address)) == CUDA_SUCCESS &&
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

std::uint64_t AddressRanges::identity_of(const void* address) {
  const RangeFunctions& functions = range_functions();
  unsigned long long identity = 0;
  if (functions.pointer_attributes == nullptr) return identity;
  std::array attributes{CU_POINTER_ATTRIBUTE_BUFFER_ID};
  std::array<void*, attributes.size()> values{&identity};
  const CUresult status = functions.pointer_attributes(
      static_cast<unsigned>(attributes.size()), attributes.data(), values.data(), number_of_address(address));
  return status == CUDA_SUCCESS ? identity : 0;
}

std::unique_ptr<SharedPieces> AddressRanges::share(int device, void* address, std::size_t bytes,
                                                   Audience audience) {
  if (!range_functions().can_share()) cannot_share(device, "the driver is too old to export it");
  const auto around = pieces_around(address, bytes);
  if (!around || around->empty())
    cannot_share(device, fmt::format("not all of {} bytes at {} have memory", bytes, fmt::ptr(address)));
  std::vector<SharedPieces::Piece> pieces;
  pieces.reserve(around->size());
  for (const auto& [begin, size] : *around) {
    pieces.push_back(exported(device, begin, size));
    if (pieces.size() > 1 || !pieces.front().file.is_open()) continue;
    // The first one tells that the others are files, too.
    const std::string reason = SharedPieces::reason_against_descriptors(around->size() - 1);
    if (!reason.empty()) cannot_share(device, reason);
  }
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(address) - around->front().first);
  return std::make_unique<SharedPieces>(
      SharedPieces::Range{.device = device, .offset = offset, .bytes = bytes}, std::move(pieces), audience);
}

void AddressRanges::adopt(int device, void* address, std::size_t bytes) {
  if (PooledMemory::pool_of(address) != nullptr) return adopt_of_pool(device, address);
  const auto around = pieces_around(address, bytes);
  if (!around || around->empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("device {}: not all of {} bytes at {} have memory",
                                                    device, bytes, fmt::ptr(address)));
  }
  std::byte* const begin = around->front().first;
  const auto size =
      static_cast<std::size_t>(around->back().first + around->back().second - around->front().first);
  const std::lock_guard lock(mutex_);
  OfDevice& known = of(device);
  if (!known.accessors.empty()) {
    if (const CUresult status = let_access(begin, size, known.accessors); status != CUDA_SUCCESS) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("device {}: peers cannot get access to memory at {}: cuMemSetAccess: {}",
                              device, fmt::ptr(begin), words_of(status)),
                  status);
    }
  }
  known.adopted.emplace(address, Extent{begin, size});
}

void AddressRanges::adopt_of_pool(int device, void* address) {
  const std::lock_guard lock(mutex_);
  OfDevice& known = of(device);
  PooledMemory::give_access(device, address, known.accessors);
  known.adopted_of_pools.push_back(address);
}

void AddressRanges::disown(int device, void* address) noexcept {
  const std::lock_guard lock(mutex_);
  of(device).adopted.erase(address);
  std::erase(of(device).adopted_of_pools, address);
}

void* AddressRanges::open(int device, const SharedPieces::Opened& opened) {
  const auto refuse = [device](std::string_view call, CUresult status) {
    return Error(ErrorCode::peer_unavailable,
                 fmt::format("device {} cannot open another process's device memory: {}: {}", device, call,
                             words_of(status)),
                 status);
  };
  const RangeFunctions& functions = range_functions();
  if (!functions.can_share()) throw refuse("cuMemImportFromShareableHandle", CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr begin = 0;
  CUresult status = functions.reserve(&begin, opened.total_bytes, 0, 0, 0);
  if (status != CUDA_SUCCESS) throw refuse("cuMemAddressReserve", status);
  std::size_t mapped = 0;
  status = map_imported(begin, opened.pieces, mapped);
  auto* const address = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(begin));
  const int only[] = {device};
  const bool is_mapped = status == CUDA_SUCCESS;
  if (is_mapped) status = let_access(address, opened.total_bytes, only);
  if (status != CUDA_SUCCESS) {
    if (mapped > 0) static_cast<void>(functions.unmap(begin, mapped));
    static_cast<void>(functions.free(begin, opened.total_bytes));
    throw refuse(is_mapped ? "cuMemSetAccess" : "cuMemImportFromShareableHandle or cuMemMap", status);
  }
  std::byte* const offered = address + opened.range.offset;
  const std::lock_guard lock(opened_mutex_);
  opened_.emplace(offered, Extent{address, opened.total_bytes});
  return offered;
}

bool AddressRanges::close(void* address, int& status) noexcept {
  Extent extent;
  {
    const std::lock_guard lock(opened_mutex_);
    const auto found = opened_.find(address);
    if (found == opened_.end()) return false;
    extent = found->second;
    opened_.erase(found);
  }
  const CUdeviceptr begin = number_of_address(extent.first);
  status = range_functions().unmap(begin, extent.second);
  if (status == CUDA_SUCCESS) status = range_functions().free(begin, extent.second);
  return true;
}

}  // namespace tutti::backend::cuda
