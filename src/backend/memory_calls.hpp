// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/audience.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::backend {

class SharedPieces;

/// A handle by which another process opens a block of device memory.
struct MemoryHandle {
  std::array<std::byte, 64> bytes{};
};

enum class MemoryKind : std::uint8_t { unknown, pageable, pinned, device };

/// Information about an address.
struct PointerInfo {
  MemoryKind kind = MemoryKind::unknown;
  int device = -1;                  ///< owner, for device memory; -1 if it is the host, of managed memory
  const std::byte* base = nullptr;  ///< start of its allocation, nullptr if unknown
  bool is_managed = false;          ///< memory that every device and the host may use
  std::size_t bytes = 0;            ///< size of its allocation or piece, 0 if unknown

  /// Returns true if the memory may stand for a device's own.
  [[nodiscard]] bool is_of(int own_device) const noexcept {
    return kind == MemoryKind::device && (is_managed || device == own_device);
  }
};

/// The way in which device memory was allocated: as a block, as a piece that was mapped to a range of
/// addresses, or from a pool of the driver (`cudaMallocAsync`).
enum class MemoryOrigin : std::uint8_t { block, piece, pool };

/// Manages memory of devices, pinned memory, and sharing with other processes of the host.
///
/// Allocation returns nullptr when memory is exhausted, and throws for any other failure. Addresses are
/// aligned to at least 512 bytes. Freeing does not wait: the caller must know that no queued work uses the
/// block. Freeing never throws; a failure is kept and surfaces like one of enqueued work.
class MemoryCalls {
 public:
  MemoryCalls(const MemoryCalls&) = delete;
  MemoryCalls& operator=(const MemoryCalls&) = delete;

  [[nodiscard]] virtual void* allocate_device(int device, std::size_t bytes) = 0;
  virtual void free_device(int device, void* address) noexcept = 0;

  // Ranges of addresses to which memory is mapped piece by piece. The addresses outlive the memory, which can
  // be unmapped and mapped again at the same place.
  /// Returns the unit of addresses and sizes of pieces; 0 if the driver of `device` has no such ranges.
  [[nodiscard]] virtual std::size_t page_bytes(int device) = 0;
  /// Reserves addresses without memory; nullptr if there are none left.
  [[nodiscard]] virtual void* reserve_addresses(int device, std::size_t bytes) = 0;
  /// Maps memory to a piece of a range, for `device` and those that have access to its memory, or get it
  /// later. Returns false if memory is exhausted.
  [[nodiscard]] virtual bool map_pages(int device, void* address, std::size_t bytes) = 0;
  /// Unmaps the memory of one piece, or of several adjacent ones: all that `map_pages` mapped there.
  virtual void unmap_pages(int device, void* address, std::size_t bytes) noexcept = 0;
  /// Releases a range without memory.
  virtual void release_addresses(int device, void* address, std::size_t bytes) noexcept = 0;

  [[nodiscard]] virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* address) noexcept = 0;
  [[nodiscard]] virtual PointerInfo pointer_info(const void* address) = 0;
  /// Returns the origin of device memory at an address; `block` if it is not known.
  [[nodiscard]] virtual MemoryOrigin origin_of(const void* address) = 0;
  /// Returns true if device memory at an address is open to the work of `peer` where `peer` has access to the
  /// memory of its device: always, unless the program has mapped it, or made its pool, for certain devices
  /// alone. True for what is not known.
  [[nodiscard]] virtual bool is_open_to(int peer, const void* address) = 0;
  /// Returns a number that tells device memory at an address, a block or a piece, from all other that this
  /// process has had there; 0 if it is not known.
  [[nodiscard]] virtual std::uint64_t identity_of(const void* address) = 0;
  /// Makes whole pages of the process, for instance shared with others, usable like pinned memory until they
  /// are unregistered, which must come before they are unmapped.
  virtual void register_pinned(void* address, std::size_t bytes) = 0;
  virtual void unregister_pinned(void* address) noexcept = 0;

  // Device memory that other processes of the host use. What was opened must be closed before its owner frees
  // it.
  /// Returns a handle of the start of a block of `allocate_device`. For GPUs, CUDA decides which users may
  /// open it. Throws Error(unsupported).
  [[nodiscard]] virtual MemoryHandle share_device_memory(int device, void* address, Audience audience) = 0;
  /// Opens another process's block, for work of `device`. Throws Error(peer_unavailable), also for a handle
  /// that was changed.
  [[nodiscard]] virtual void* open_device_memory(int device, const MemoryHandle& handle) = 0;
  virtual void close_device_memory(int device, void* address) noexcept = 0;

  // Memory that was mapped piece by piece, by `map_pages` or by the program itself, or is from a pool.
  /// Offers `bytes` bytes from `address` on, within pieces that lie side by side or a block of a pool, for as
  /// long as the result exists. Others open all of it as one by `open_device_memory`. Pieces that they have
  /// open stay theirs even if they are unmapped here; a block must not be freed before. Throws
  /// Error(unsupported).
  [[nodiscard]] virtual std::unique_ptr<SharedPieces> share_pieces(int device, void* address,
                                                                   std::size_t bytes, Audience audience) = 0;
  /// Lets the devices that have access to the memory of `device`, or get it later, use these bytes too, which
  /// the program has mapped or got from a pool. Throws Error(unsupported).
  virtual void adopt_pieces(int device, void* address, std::size_t bytes) = 0;
  /// Ends what `adopt_pieces` began at this address; those that have access keep it.
  virtual void disown_pieces(int device, void* address) noexcept = 0;

 protected:
  MemoryCalls() = default;
  ~MemoryCalls() = default;
};

}  // namespace tutti::backend
