// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstddef>
#include <memory>

/// Registers device memory of other origin, such as `cudaMalloc`'s, so that collectives use it in place.
namespace tutti {

class RegisteredRange;

/// A registration of memory, which ends with this object. Movable; empty after a move.
class TUTTI_EXPORT MemoryRegistration {
 public:
  MemoryRegistration() noexcept;
  MemoryRegistration(MemoryRegistration&& other) noexcept;
  MemoryRegistration& operator=(MemoryRegistration&& other) noexcept;
  MemoryRegistration(const MemoryRegistration&) = delete;
  MemoryRegistration& operator=(const MemoryRegistration&) = delete;
  /// Ends the registration as `release` does, but in any case; where that would throw, writes the reason to
  /// the log.
  ~MemoryRegistration();

  /// Ends the registration, after which the memory may be freed. Work of this process that uses the memory
  /// must be over, and graphs and persistent calls that use it gone; `release` only makes sure of calls of
  /// communicators whose other ranks have the memory open. It waits until no other process has it open, for
  /// which it waits a second at most: others close it as soon as they have no calls under way, of any
  /// communicator, but not while one of their communicators with captured calls exists. So the best place is
  /// behind the end of the communicators that have used it, or where no rank makes calls; a rank that waits
  /// in a call for this one closes nothing. Memory by pieces waits for nobody: those who have it open keep
  /// it, and it goes back to the device when they close it. Where other ranges of the same allocation stay
  /// registered, it waits for nobody, and the others keep the allocation open. Does nothing if this object is
  /// empty.
  ///
  /// Throws Error(timeout) if another process has not closed the memory after a second, also where a
  /// communicator has ended by a fault: the memory stays registered, and may be released later. Throws
  /// Error(invalid_argument) if the memory has been freed; the registration is over then.
  void release();

  /// Returns the address that was registered; nullptr if this object is empty.
  [[nodiscard]] void* data() const noexcept;
  /// Returns the number of bytes that were registered.
  [[nodiscard]] std::size_t bytes() const noexcept;
  explicit operator bool() const noexcept { return range_ != nullptr; }

 private:
  friend TUTTI_EXPORT MemoryRegistration register_memory(void* pointer, std::size_t bytes);
  explicit MemoryRegistration(std::unique_ptr<RegisteredRange> range) noexcept;
  std::unique_ptr<RegisteredRange> range_;
};

/// Registers `bytes` bytes of a device's memory from `pointer` on, which the program has allocated itself, by
/// `cudaMalloc`, with the driver's virtual memory interface (`cuMemCreate` and `cuMemMap`, as PyTorch's
/// `expandable_segments` do, in any number of pieces) or from a pool (`cudaMallocFromPoolAsync`) that was
/// made for descriptors (`cudaMemHandleTypePosixFileDescriptor`): until the registration ends, collectives of
/// one process and communicators use the memory in place, as they do tutti's own. Without it, a communicator
/// copies large operands of other origin before the call and after it, and calls of one process those that
/// other devices have no access to. Tensors over the memory are made by `from_blob`.
///
/// A registration is a matter of this process alone: it is neither collective nor of one communicator, other
/// ranks need not register theirs, and calls may mix. Other processes open the allocation around `pointer`,
/// all of it, in the first call that needs it; that call waits for them. Of memory by pieces they open the
/// pieces that contain the range, and an operand that goes beyond the range is copied. On GPUs, operands must
/// begin at a multiple of 16 bytes to be used in place.
///
/// Thread-safe. Takes some microseconds, and for memory by pieces some more for each. Throws
/// Error(invalid_argument) if the range is empty, is not within one allocation of a device, or within pieces
/// of one device that lie side by side, is tutti's own memory already, or overlaps one that is registered;
/// Error(unsupported), with the reason, if other processes cannot open such memory (memory of a device's
/// default pool or of `cudaMallocManaged`, made by `cuMemCreate` without a type of handles, or opened from
/// another process), if peers of the device cannot get access to it, and in a child that was forked off.
[[nodiscard]] TUTTI_EXPORT MemoryRegistration register_memory(void* pointer, std::size_t bytes);

}  // namespace tutti
