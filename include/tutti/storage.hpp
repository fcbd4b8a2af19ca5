// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/detail/intrusive_ptr.hpp"
#include "tutti/device.hpp"
#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Says whether memory may be written to.
enum class MemoryAccess : std::uint8_t {
  read_write,
  read_only,  ///< who owns it says so: `copy_`, fills, random ones too, and outputs refuse to write there
};

/// Says who allocated a storage's memory.
enum class MemoryOrigin : std::uint8_t {
  library,  ///< its device and size are what they claim to be
  foreign,
};

/// The memory of a tensor, shared by all tensors that view it. This is an internal type: programs hold
/// tensors.
class TUTTI_EXPORT Storage : public detail::RefCounted {
 public:
  Storage(void* data, std::size_t bytes, Device device, MemoryOrigin origin = MemoryOrigin::foreign,
          MemoryAccess access = MemoryAccess::read_write)
      : device_(device), origin_(origin), access_(access), data_(data), bytes_(bytes) {}
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }  ///< usable bytes from `data`
  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Defers reuse and freeing of the memory until the work is done that is queued on `stream` when the last
  /// owner goes. Does nothing for pageable memory and for memory of `from_blob`.
  virtual void record_stream(const Stream& stream) { static_cast<void>(stream); }
  [[nodiscard]] bool is_library_memory() const noexcept { return origin_ == MemoryOrigin::library; }
  [[nodiscard]] MemoryAccess access() const noexcept { return access_; }

 private:
  Device device_;
  MemoryOrigin origin_;
  MemoryAccess access_;
  void* data_;
  std::size_t bytes_;
};

}  // namespace tutti
