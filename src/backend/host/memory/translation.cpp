// SPDX-License-Identifier: Apache-2.0
#include "backend/host/memory/translation.hpp"

#include "tutti/error.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::backend::host {

namespace {

/// A task usually touches few blocks again and again; looking through more than this is slower than asking
/// again.
constexpr std::size_t blocks_searched = 8;

constexpr std::size_t damage_stride = 61;  ///< bytes; a prime, so that no element size hides the damage

void damage(std::byte* bytes, const Extent& extent) {
  for (std::size_t row = 0; row < extent.rows; ++row) {
    for (std::size_t i = 0; i < extent.row_bytes; i += damage_stride) {
      bytes[row * extent.pitch + i] ^= std::byte{0x5a};
    }
  }
}

}  // namespace

const std::byte* Translation::read(const std::byte* address, const Extent& extent) {
  if (extent.empty()) return nullptr;
  const Allocation* block = locate(address, extent.span());
  if (block == nullptr) return address;
  if (machine_.faults.any() && crosses_link(block)) segment_peers_.push_back(block->owner);
  return block->memory + (address - block->base);
}

std::byte* Translation::write(std::byte* address, const Extent& extent) {
  if (extent.empty()) return nullptr;
  const Allocation* block = locate(address, extent.span());
  std::byte* target = block == nullptr ? address : block->memory + (address - block->base);
  if (machine_.faults.any()) {
    for (const int peer : segment_peers_) crossings_.push_back({target, extent, peer});
    if (crosses_link(block)) crossings_.push_back({target, extent, block->owner});
  }
  return target;
}

SharedFlag& Translation::flag(std::byte* address) {
  const Allocation* block = locate(address, sizeof(SharedFlag));
  std::byte* const target = block == nullptr ? address : block->memory + (address - block->base);
  return *reinterpret_cast<SharedFlag*>(target);
}

void Translation::corrupt_crossings(virtual_devices::Operation operation) {
  std::vector<int> asked;
  std::vector<int> corrupting;
  for (const Crossing& crossing : crossings_) {
    if (std::find(asked.begin(), asked.end(), crossing.peer) != asked.end()) continue;
    asked.push_back(crossing.peer);
    if (machine_.faults.corrupts(operation, device_, crossing.peer)) corrupting.push_back(crossing.peer);
  }
  for (const Crossing& crossing : crossings_) {
    if (std::find(corrupting.begin(), corrupting.end(), crossing.peer) == corrupting.end()) continue;
    damage(crossing.bytes, crossing.extent);
  }
}

const Allocation* Translation::locate(const std::byte* address, std::size_t bytes) {
  const Allocation* block = find(address);
  if (block == nullptr) {
    const bool freed = machine_.addresses.recently_freed(address);
    if (mover_ == Mover::copy_engine && !freed) return nullptr;
    throw Error(ErrorCode::device_failure, fmt::format("address {} is {}", fmt::ptr(address),
                                                       freed ? "device memory that has been freed or closed"
                                                             : "neither device memory nor pinned memory"));
  }
  // A copy of pageable memory may begin there.
  if (block->is_managed && mover_ == Mover::copy_engine) return nullptr;
  const auto offset = static_cast<std::size_t>(address - block->base);
  if (bytes > block->bytes - offset) {
    throw Error(ErrorCode::device_failure,
                fmt::format("{} bytes at address {} run past the end of their block, {} bytes at {}", bytes,
                            fmt::ptr(address), block->bytes, fmt::ptr(block->base)));
  }
  if (!block->has_memory(address, bytes)) {
    throw Error(ErrorCode::device_failure,
                fmt::format("{} bytes at address {} are in a range of addresses of device {}, and not all of "
                            "them have memory",
                            bytes, fmt::ptr(address), block->owner));
  }
  if (block->opener != Allocation::nobody) {
    if (mover_ == Mover::copy_engine || block->opener == device_) return block;
    throw Error(
        ErrorCode::device_failure,
        fmt::format("address {} is another process's memory, opened for device {} and not for device {}",
                    fmt::ptr(address), block->opener, device_));
  }
  const bool foreign = block->owner != Allocation::pinned && block->owner != device_;
  if (foreign && mover_ == Mover::kernel && !machine_.peers.enabled(device_, block->owner)) {
    throw Error(ErrorCode::device_failure,
                fmt::format("address {} belongs to device {}, to whose memory device {} has no peer access",
                            fmt::ptr(address), block->owner, device_));
  }
  if (foreign && !block->is_open_to(device_)) {
    throw Error(ErrorCode::device_failure,
                fmt::format("address {} is memory of device {} that device {} has no access to, although it "
                            "may have to other memory there",
                            fmt::ptr(address), block->owner, device_));
  }
  return block;
}

const Allocation* Translation::find(const std::byte* address) {
  const auto latest = blocks_.rbegin();
  const auto searched = static_cast<std::ptrdiff_t>(std::min(blocks_searched, blocks_.size()));
  const auto known = std::find_if(latest, latest + searched,
                                  [address](const auto& block) { return block->contains(address); });
  if (known != latest + searched) return &**known;
  std::shared_ptr<const Allocation> found = machine_.addresses.find(address);
  if (found == nullptr) return nullptr;
  blocks_.emplace_back(std::move(found));
  return &*blocks_.back();
}

bool Translation::crosses_link(const Allocation* block) const {
  if (block == nullptr || block->owner == Allocation::pinned || block->owner == device_) return false;
  if (block->opener == device_) return true;
  // A copy uses the link if either side may; without, the system stages it through the host.
  return machine_.peers.enabled(device_, block->owner) || machine_.peers.enabled(block->owner, device_);
}

}  // namespace tutti::backend::host
