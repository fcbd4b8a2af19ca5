// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"
#include "backend/sealed_words.hpp"
#include "os/shared_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

/// Device memory that several processes use, each with a virtual machine of its own: their devices of one
/// number stand for one device.
namespace tutti::backend::host {
namespace {

using virtual_devices::Operation;

/// The words of a handle.
struct SharedBlock {
  static constexpr std::uint64_t mark = 0x6c61757472697674;

  std::uint64_t checksum = 0;
  SharedMemory::Handle memory;
  std::uint64_t bytes = 0;
  std::int64_t device = -1;
};
static_assert(sizeof(SharedBlock) <= sizeof(MemoryHandle));

[[noreturn]] void refuse(int device, const std::string& reason) {
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("device {} cannot open another process's device memory: {}", device, reason));
}

}  // namespace

MemoryHandle Machine::share_device_memory(int device, void* address, Audience audience) {
  if (faults_.disturb(Operation::share, device).refused) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("device {} cannot share its memory with other processes: an injected fault", device));
  }
  const auto shared = addresses_.share(device, address, audience);
  if (!shared.has_value()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("device {} cannot share its memory with other processes: address {} is not the "
                            "start of a block of its own",
                            device, fmt::ptr(address)));
  }
  MemoryHandle handle;
  seal(SharedBlock{.memory = shared->memory, .bytes = shared->bytes, .device = device}, handle.bytes);
  return handle;
}

void* Machine::open_device_memory(int device, const MemoryHandle& handle) {
  const std::optional<SharedBlock> words = unsealed<SharedBlock>(handle.bytes);
  if (!words) {
    refuse(device, "the handle is not one of a virtual device's memory, or was changed");
  }
  const SharedBlock& block = *words;
  const bool is_sound = block.memory.process > 0 && block.memory.descriptor >= 0 && block.device >= 0 &&
                        block.bytes <= block.memory.bytes && block.memory.bytes > 0;
  if (!is_sound) refuse(device, "the handle names memory that cannot be a virtual device's block");
  if (block.device >= device_count()) {
    refuse(device,
           fmt::format("it belongs to device {}, and there are {} devices", block.device, device_count()));
  }
  const int owner = static_cast<int>(block.device);
  if (SharedMemory::is_own(block.memory)) {
    refuse(device, fmt::format("the block of device {} is this process's own", owner));
  }
  if (owner != device && !can_access_peer(device, owner)) {
    refuse(device,
           fmt::format("it belongs to device {}, to whose memory device {} has no access in topology '{}'",
                       owner, device, description_.name));
  }
  if (faults_.disturb(Operation::open, device, owner).refused) {
    refuse(device, fmt::format("an injected fault, for memory of device {}", owner));
  }
  const std::lock_guard lock(opened_mutex_);
  const auto known = std::ranges::find_if(opened_, [&](const OpenedMemory& opened) {
    return opened.device == device && opened.handle.bytes == handle.bytes;
  });
  if (known != opened_.end()) {
    ++known->times;
    return known->address;
  }
  SharedMemory memory;
  try {
    memory = with_addresses([&] { return SharedMemory(block.memory); },
                            [this] { return addresses_.give_back_freed(SIZE_MAX); });
  } catch (const Error& error) {
    refuse(device, error.what());
  }
  opened_.reserve(opened_.size() + 1);
  void* const address = addresses_.insert_opened(owner, device, std::move(memory), block.bytes);
  if (address == nullptr) refuse(device, fmt::format("no addresses are left for {} bytes", block.bytes));
  opened_.push_back({device, handle, address, 1});
  return address;
}

void Machine::close_device_memory(int device, void* address) noexcept {
  const std::lock_guard lock(opened_mutex_);
  const auto opened = std::ranges::find_if(opened_, [&](const OpenedMemory& candidate) {
    return candidate.device == device && candidate.address == address;
  });
  if (opened == opened_.end()) {
    device_at(device).failures.add(
        fmt::format("close_device_memory: address {} is not memory that was opened for device {}",
                    fmt::ptr(address), device));
    return;
  }
  if (--opened->times > 0) return;
  opened_.erase(opened);
  static_cast<void>(addresses_.remove_opened(device, address));
}

}  // namespace tutti::backend::host
