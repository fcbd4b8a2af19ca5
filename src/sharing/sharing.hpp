// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"
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

/// A tensor that is shared, with what tells who has it open.
///
/// Whoever opens it keeps a lock on a file of the exporting process's, which the system takes back when the
/// process ends, and then looks whether the memory is still offered. Who shares it asks for the lock that
/// excludes all others once it does not offer it any more: it gets that when nobody is left.
class SharedTensorState {
 public:
  SharedTensorState(Runtime& runtime, const Tensor& tensor);
  SharedTensorState(const SharedTensorState&) = delete;
  SharedTensorState& operator=(const SharedTensorState&) = delete;
  ~SharedTensorState() = default;

  [[nodiscard]] std::span<const std::byte> handle() const noexcept { return handle_; }
  [[nodiscard]] bool is_in_child() const noexcept { return fork_mark_.is_in_child(); }
  /// Nobody else can open it.
  void withdraw() noexcept;
  /// Afterwards: whether somebody has it open.
  [[nodiscard]] bool is_open_elsewhere() const noexcept;

 private:
  const ForkMark fork_mark_;
  Tensor tensor_;
  SharedMemory control_;
  Descriptor lock_;
  std::vector<std::byte> handle_;
};

/// Keeps what a runtime's process has shared and shares no more, while others have it open. Thread-safe.
class SharedBefore final : public RuntimePart, public Reclaimer {
 public:
  static constexpr PartSlot slot = PartSlot::sharing;

  explicit SharedBefore(Runtime& runtime);
  /// Leaves memory that other processes have open in place for good.
  ~SharedBefore() override;
  /// Takes it over once it is withdrawn.
  void add(std::unique_ptr<SharedTensorState> state);
  /// Lets go of what nobody has open; returns whether anything has gone.
  bool reclaim() override;
  /// Throws if the program uses shared tensors, or this process has tensors of others open.
  void require_unused() override;
  /// A tensor of another process has been opened.
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
