// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"
#include "backend/sealed_words.hpp"
#include "backend/shared_pieces.hpp"
#include "os/shared_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
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

std::unique_ptr<SharedPieces> Machine::share_pieces(int device, void* address, std::size_t bytes,
                                                    Audience audience) {
  const auto cannot = [device](std::string_view reason) {
    return Error(ErrorCode::unsupported,
                 fmt::format("device {} cannot share its memory with other processes: {}", device, reason));
  };
  if (faults_.disturb(Operation::share, device).refused) throw cannot("an injected fault");
  std::optional<AddressSpace::PiecesOfRange> shared;
  try {
    shared = addresses_.share_pieces(device, address, bytes, audience);
  } catch (const Error& error) {
    throw cannot(error.what());
  }
  if (!shared) {
    throw cannot(fmt::format("{} bytes from address {} are not pieces of its own, side by side", bytes,
                             fmt::ptr(address)));
  }
  return std::make_unique<SharedPieces>(
      SharedPieces::Range{.device = device, .offset = shared->offset, .bytes = bytes},
      std::move(shared->pieces), audience);
}

void* Machine::open_device_memory(int device, const MemoryHandle& handle) {
  const std::optional<SharedBlock> words = unsealed<SharedBlock>(handle.bytes);
  if (!words) return open_pieces(device, handle);
  const SharedBlock& block = *words;
  const bool is_sound = block.memory.process > 0 && block.memory.descriptor >= 0 && block.device >= 0 &&
                        block.bytes <= block.memory.bytes && block.memory.bytes > 0;
  if (!is_sound) refuse(device, "the handle names memory that cannot be a virtual device's block");
  if (SharedMemory::is_own(block.memory))
    refuse(device, fmt::format("the block of device {} is this process's own", block.device));
  require_reach(device, block.device);
  const std::lock_guard lock(opened_mutex_);
  if (void* const known = open_again(device, handle)) return known;
  SharedMemory memory;
  try {
    memory = with_addresses([&] { return SharedMemory(block.memory); },
                            [this] { return addresses_.give_back_freed(SIZE_MAX); });
  } catch (const Error& error) {
    refuse(device, error.what());
  }
  opened_.reserve(opened_.size() + 1);
  void* const address =
      addresses_.insert_opened(static_cast<int>(block.device), device, std::move(memory), block.bytes);
  if (address == nullptr) refuse(device, fmt::format("no addresses are left for {} bytes", block.bytes));
  opened_.push_back({device, handle, address, 1});
  return address;
}

void* Machine::open_again(int device, const MemoryHandle& handle) {
  const auto known = std::ranges::find_if(opened_, [&](const OpenedMemory& opened) {
    return opened.device == device && opened.handle.bytes == handle.bytes;
  });
  if (known == opened_.end()) return nullptr;
  ++known->times;
  return known->address;
}

void Machine::require_reach(int device, std::int64_t owner) {
  if (owner < 0 || owner >= device_count())
    refuse(device, fmt::format("it belongs to device {}, and there are {} devices", owner, device_count()));
  const int peer = static_cast<int>(owner);
  if (peer != device && !can_access_peer(device, peer)) {
    refuse(device,
           fmt::format("it belongs to device {}, to whose memory device {} has no access in topology '{}'",
                       peer, device, description_.name));
  }
  if (faults_.disturb(Operation::open, device, peer).refused)
    refuse(device, fmt::format("an injected fault, for memory of device {}", peer));
}

void* Machine::open_pieces(int device, const MemoryHandle& handle) {
  const auto or_refuse = [device](const auto& call) {
    try {
      return call();
    } catch (const Error& error) {
      refuse(device, error.what());
    }
  };
  const std::optional<SharedPieces::Opened> opened = or_refuse([&] { return SharedPieces::open(handle); });
  if (!opened || opened->range.origin != MemoryOrigin::piece)
    refuse(device, "the handle is not one of a virtual device's memory, or was changed");
  require_reach(device, opened->range.device);
  const std::lock_guard lock(opened_mutex_);
  if (void* const known = open_again(device, handle)) return known;
  opened_.reserve(opened_.size() + 1);
  void* const address = or_refuse([&] { return addresses_.insert_opened(device, *opened); });
  if (address == nullptr)
    refuse(device, fmt::format("no addresses are left for {} bytes", opened->total_bytes));
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
