// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::backend {

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

/// Memory of devices, pinned memory, and sharing with other processes of the host.
///
/// Allocation returns nullptr when memory is exhausted, and throws for any other failure. Addresses are
/// aligned to 512 bytes at least. Freeing waits for nothing: the caller knows that no queued work uses the
/// block. Freeing never throws; a failure is kept and surfaces like one of enqueued work.
class MemoryCalls {
 public:
  MemoryCalls(const MemoryCalls&) = delete;
  MemoryCalls& operator=(const MemoryCalls&) = delete;

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

 protected:
  MemoryCalls() = default;
  ~MemoryCalls() = default;
};

}  // namespace tutti::backend
