// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"
#include "allocator/registered_memory.hpp"
#include "backend/shared_pieces.hpp"
#include "base/fork_mark.hpp"
#include "device/runtime_part.hpp"
#include "os/descriptor.hpp"
#include "os/shared_memory.hpp"
#include "tutti/sharing.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// A tensor that this process shares, and the means to find out who has it open.
///
/// A process that opens the tensor takes a shared lock on a file of the exporting process, which the system
/// releases when the process ends, and then checks that the memory is still offered. The exporting process
/// stops offering it first, and then asks for the exclusive lock, which it gets when nobody has the tensor
/// open.
class SharedTensorState {
 public:
  SharedTensorState(Runtime& runtime, const Tensor& tensor);
  SharedTensorState(const SharedTensorState&) = delete;
  SharedTensorState& operator=(const SharedTensorState&) = delete;
  ~SharedTensorState() = default;

  [[nodiscard]] std::span<const std::byte> handle() const noexcept { return handle_; }
  [[nodiscard]] bool is_in_child() const noexcept { return fork_mark_.is_in_child(); }
  /// Stops offering the tensor: nobody else can open it.
  void withdraw() noexcept;
  /// Returns true if another process has the withdrawn tensor open.
  [[nodiscard]] bool is_open_elsewhere() const noexcept;

 private:
  const ForkMark fork_mark_;
  /// Returns the handle by which others open the memory.
  [[nodiscard]] backend::MemoryHandle share(Runtime& runtime, const DeviceAllocation& allocation);

  Tensor tensor_;
  std::unique_ptr<backend::SharedPieces> pieces_;  ///< none if the memory is a block
  SharedMemory control_;
  Descriptor lock_;
  std::vector<std::byte> handle_;
};

/// Keeps tensors that this process no longer shares while other processes have them open. Thread-safe.
class SharedBefore final : public RuntimePart, public Reclaimer {
 public:
  static constexpr PartSlot slot = PartSlot::sharing;

  explicit SharedBefore(Runtime& runtime);
  /// Leaves memory that other processes have open allocated for ever.
  ~SharedBefore() override;
  /// Takes over a tensor that has been withdrawn.
  void add(std::unique_ptr<SharedTensorState> state);
  /// Releases tensors that nobody has open; returns true if there were any.
  bool reclaim() override;
  /// Throws if the program uses shared tensors, or this process has tensors of others open.
  void require_unused() override;
  /// Counts a tensor of another process that has been opened.
  void count_opened() noexcept { ++opened_; }
  void count_closed() noexcept { --opened_; }

 private:
  [[nodiscard]] std::size_t count();

  /// Owns nothing: the runtime does, and nobody reclaims while that is destroyed.
  const std::shared_ptr<Reclaimer> as_reclaimer_{this, [](Reclaimer*) {}};
  std::atomic<int> opened_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<SharedTensorState>> states_;
};

}  // namespace tutti
