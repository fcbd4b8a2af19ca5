// SPDX-License-Identifier: Apache-2.0
#include "allocator/allocators.hpp"
#include "backend/shared_pieces.hpp"
#include "base/fork_mark.hpp"
#include "device/runtime.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"
#include "tutti/registered_memory.hpp"

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti {

/// A registered range, in the list of the runtime.
class RegisteredRange {
 public:
  RegisteredRange(Runtime& runtime, std::byte* begin, std::size_t bytes, const DeviceAllocation& allocation)
      : runtime_(runtime), begin_(begin), bytes_(bytes), allocation_(allocation) {
    const std::optional<const std::byte*> other = registered().add(begin, bytes, allocation);
    if (!other) {
      let_peers_use();
      return;
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("register_memory: {} bytes from {} overlap the registration that begins at {}, "
                            "expected memory that is not registered",
                            bytes, fmt::ptr(begin), fmt::ptr(*other)));
  }
  RegisteredRange(const RegisteredRange&) = delete;
  RegisteredRange& operator=(const RegisteredRange&) = delete;
  ~RegisteredRange() {
    if (is_adopted() && !is_in_child()) runtime_.backend().disown_pieces(allocation_.device, begin_);
  }

  [[nodiscard]] std::byte* begin() const noexcept { return begin_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_in_child() const noexcept { return fork_mark_.is_in_child(); }

  /// Takes the range off the list. Throws Error(timeout) if somebody does not close its memory.
  void remove(RegisteredMemory::IfHeld if_held) {
    if (registered().remove(begin_, if_held)) return;
    throw Error(
        ErrorCode::timeout,
        fmt::format("MemoryRegistration: another process has the memory at {} of device {} open and has "
                    "not closed it for a second{}",
                    fmt::ptr(begin_), allocation_.device,
                    if_held == RegisteredMemory::IfHeld::keep ? "; it stays registered"
                                                              : "; it must not be freed before"));
  }
  /// Throws Error(invalid_argument) if the memory has been freed.
  void require_allocated() const {
    if (allocation_around(runtime_.backend(), begin_, bytes_) == allocation_) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("MemoryRegistration: the memory at {} of device {} was freed while it was "
                            "registered, expected it to be released first",
                            fmt::ptr(begin_), allocation_.device));
  }

 private:
  /// Returns whether peers get access to the memory by itself, not with the device's other memory.
  [[nodiscard]] bool is_adopted() const noexcept {
    return allocation_.origin != backend::MemoryOrigin::block;
  }
  /// Gives this process's other devices access to memory by pieces or from a pool.
  void let_peers_use() {
    if (!is_adopted()) return;
    try {
      runtime_.backend().adopt_pieces(allocation_.device, begin_, bytes_);
    } catch (...) {
      static_cast<void>(registered().remove(begin_, RegisteredMemory::IfHeld::drop));
      throw;
    }
  }
  [[nodiscard]] RegisteredMemory& registered() const { return runtime_.part<Allocators>().registered(); }

  Runtime& runtime_;
  const ForkMark fork_mark_;
  std::byte* const begin_;
  const std::size_t bytes_;
  const DeviceAllocation allocation_;
};

namespace {

/// Returns the device's allocation that contains the whole range.
DeviceAllocation allocation_with(Runtime& runtime, std::byte* begin, std::size_t bytes) {
  const std::optional<DeviceAllocation> found = allocation_around(runtime.backend(), begin, bytes);
  if (!found) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("register_memory: pointer is {}, expected an address in an allocation of a device",
                    fmt::ptr(begin)));
  }
  const auto left = static_cast<std::size_t>(found->address + found->bytes - begin);
  if (bytes > left) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("register_memory: bytes is {}, but the allocation ends {} bytes behind pointer",
                            bytes, left));
  }
  return *found;
}

/// Throws Error(unsupported) unless other processes can open the memory.
void require_shareable(Runtime& runtime, std::byte* begin, const DeviceAllocation& allocation) {
  backend::Backend& backend = runtime.backend();
  const auto refuse = [](std::string_view reason) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("register_memory: pointer is in memory that other processes cannot open, expected "
                    "memory as cudaMalloc or cuMemCreate gives it: {}",
                    reason));
  };
  if (const std::string reason = reason_not_to_share(backend, begin); !reason.empty()) refuse(reason);
  try {
    if (allocation.origin == backend::MemoryOrigin::block) {
      static_cast<void>(backend.share_device_memory(allocation.device, allocation.address, Audience::anyone));
    } else {
      static_cast<void>(
          backend.share_pieces(allocation.device, allocation.address, allocation.bytes, Audience::anyone));
    }
  } catch (const Error& error) {
    refuse(error.what());
  }
}

}  // namespace

MemoryRegistration::MemoryRegistration() noexcept = default;
MemoryRegistration::MemoryRegistration(std::unique_ptr<RegisteredRange> range) noexcept
    : range_(std::move(range)) {}
MemoryRegistration::MemoryRegistration(MemoryRegistration&& other) noexcept = default;

MemoryRegistration& MemoryRegistration::operator=(MemoryRegistration&& other) noexcept {
  MemoryRegistration taken(std::move(other));
  range_.swap(taken.range_);
  return *this;
}

MemoryRegistration::~MemoryRegistration() {
  if (range_ == nullptr || range_->is_in_child()) return;
  try {
    range_->remove(RegisteredMemory::IfHeld::drop);
    range_->require_allocated();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void MemoryRegistration::release() {
  if (range_ == nullptr) return;
  if (!range_->is_in_child()) {
    range_->remove(RegisteredMemory::IfHeld::keep);
    const std::unique_ptr<RegisteredRange> removed = std::move(range_);
    removed->require_allocated();
  }
  range_.reset();
}

void* MemoryRegistration::data() const noexcept {
  return range_ == nullptr ? nullptr : range_->begin();
}

std::size_t MemoryRegistration::bytes() const noexcept {
  return range_ == nullptr ? 0 : range_->bytes();
}

MemoryRegistration register_memory(void* pointer, std::size_t bytes) {
  Runtime& runtime = Runtime::get();
  auto* const begin = static_cast<std::byte*>(pointer);
  if (pointer == nullptr || bytes == 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("register_memory: pointer is {} and bytes {}, expected memory of at least one byte",
                    pointer, bytes));
  }
  const DeviceAllocation allocation = allocation_with(runtime, begin, bytes);
  auto& allocators = runtime.part<Allocators>();
  if (allocators.of(allocation.device).segment_of(begin).address != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("register_memory: pointer is {}, tutti's own memory, which needs no registration",
                            pointer));
  }
  require_shareable(runtime, begin, allocation);
  return MemoryRegistration(std::make_unique<RegisteredRange>(runtime, begin, bytes, allocation));
}

}  // namespace tutti
