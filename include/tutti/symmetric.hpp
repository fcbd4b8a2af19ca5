// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"
#include "tutti/symmetric_view.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Symmetric memory: a tensor on every member of a communicator, which all members' kernels may read and
/// write.
namespace tutti {

class SymmetricMemory;

namespace transport::team {
class SymmetricAllocation;
}

namespace virtual_devices {
/// Queues a virtual kernel, as `launch` without memory does, which also gets the view of the local member on
/// the stream's device: the functions of `tutti/device.cuh` take it there, and `peers` and data are addresses
/// that the kernel may really use, while it runs. The view's patience is `patience`, or else that of
/// `SymmetricMemory::view`. The stream sanitizer does not check accesses to symmetric memory, which kernels
/// order themselves, unless `accesses` name it. Uses the memory as `record_stream` says. Throws as the other
/// `launch` does, and Error(invalid_argument) if the device is no local member's, or the memory is released.
TUTTI_EXPORT void launch(
    const Stream& stream, std::string_view name, const SymmetricMemory& memory,
    std::span<const Access> accesses,
    std::function<void(const SymmetricView& view, std::span<void* const> addresses)> kernel,
    std::optional<std::chrono::milliseconds> patience = {});
}  // namespace virtual_devices

/// Memory that `Communicator::symmetric` makes on all members at once, each of whose devices can access that
/// of all members. The handle of one rank; movable, empty after a move.
///
/// # Use
/// A rank has a tensor for each of its members (`tensors`). Collectives use these like any others, of this
/// communicator without opening memory or waiting for that. Kernels of the program's own use `view`, or the
/// addresses from `peer_data`, and order their accesses themselves, by the functions of `tutti/device.cuh` or
/// by collectives, such as a barrier. Kernels may be captured into graphs.
///
/// # Lifetime
/// Memory is freed once all ranks have released it: by `release`, with the handle, or with their
/// communicator. A rank has released it when the work is done that its streams had by then: the streams that
/// were current when the memory was made, those that `record_stream` names, and those of virtual kernels.
/// Graphs that use it must be gone. A rank whose process has ended counts as having released it. Tensors may
/// be kept for longer: they are ordinary tensors then, whose memory they keep.
///
/// Communicators that end earlier take the memory from the kernels: the destructor of a `Communicator`
/// releases what it has made, and then waits until ranks of other processes have released it too, or destroy
/// their communicators, for as long as the timeout.
///
/// Thread-safe, except that nothing else may run during a move, `release` and the destructor.
class TUTTI_EXPORT SymmetricMemory {
 public:
  SymmetricMemory() noexcept;
  SymmetricMemory(SymmetricMemory&& other) noexcept;
  SymmetricMemory& operator=(SymmetricMemory&& other) noexcept;
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  /// Releases the memory without waiting: it is freed by a later call of the library that frees or needs
  /// memory, such as `empty_cache` or `symmetric`, after all ranks have released it.
  ~SymmetricMemory();

  /// Releases the memory, and waits until all ranks have, so all ranks call it together. Waits for this
  /// rank's streams, and for the others, as long as the communicator's timeout, or a second if the
  /// communicator has ended. Throws Error(timeout), which names the ranks that have not released it; this
  /// rank has nevertheless, and the memory is freed later. Does nothing if the object is empty.
  void release();

  /// Returns false if the object is empty.
  [[nodiscard]] explicit operator bool() const noexcept { return allocation_ != nullptr; }

  // The functions below throw Error(invalid_argument) for a member or a local member that does not exist, and
  // if the object is empty or its communicator has been destroyed. `local` counts the members of this
  // rank, from 0.

  /// Returns the tensors of this rank's members, in their order: dense, and not initialised.
  [[nodiscard]] const std::vector<Tensor>& tensors() const;
  [[nodiscard]] const Tensor& tensor(int local = 0) const;
  /// Returns the address of a member's data for the device of a local member: what its tensor has, or for
  /// members of other processes, where this process has opened it. (PyTorch: `get_buffer`; NVSHMEM:
  /// `nvshmem_ptr`.)
  [[nodiscard]] void* peer_data(int member, int local = 0) const;
  /// Returns the view of a local member for kernels on GPUs. Their waits last as long as `patience`, or else
  /// the communicator's. Throws Error(unsupported) on virtual devices, whose kernels get it from `launch`.
  [[nodiscard]] SymmetricView view(int local = 0,
                                   std::optional<std::chrono::milliseconds> patience = {}) const;
  /// Makes the release wait for work on `stream`, which uses the memory.
  void record_stream(const Stream& stream) const;

 private:
  friend class Communicator;
  friend TUTTI_EXPORT void virtual_devices::launch(
      const Stream& stream, std::string_view name, const SymmetricMemory& memory,
      std::span<const virtual_devices::Access> accesses,
      std::function<void(const SymmetricView& view, std::span<void* const> addresses)> kernel,
      std::optional<std::chrono::milliseconds> patience);
  explicit SymmetricMemory(std::shared_ptr<transport::team::SymmetricAllocation> allocation) noexcept;
  [[nodiscard]] transport::team::SymmetricAllocation& allocation() const;

  std::shared_ptr<transport::team::SymmetricAllocation> allocation_;
};

}  // namespace tutti
