// SPDX-License-Identifier: Apache-2.0
#include "backend/host/memory/address_space.hpp"

#include <iterator>
#include <mutex>
#include <utility>

#include <sys/mman.h>

/// Ranges of addresses of virtual devices, which get memory piece by piece.
namespace tutti::backend::host {

std::size_t Pages::end_of_row(std::size_t offset) const {
  auto piece = pieces_.upper_bound(offset);
  if (piece == pieces_.begin()) return offset;
  --piece;
  if (piece->first + piece->second <= offset) return offset;
  std::size_t end = piece->first + piece->second;
  while (++piece != pieces_.end() && piece->first == end) end += piece->second;
  return end;
}

bool Pages::add(std::size_t offset, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto next = pieces_.lower_bound(offset);
  const bool is_before_next = next == pieces_.end() || offset + bytes <= next->first;
  if (!is_before_next || end_of_row(offset) != offset) return false;
  pieces_.emplace(offset, bytes);
  return true;
}

bool Pages::remove(std::size_t offset, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto first = pieces_.find(offset);
  auto last = first;
  std::size_t end = offset;
  for (; last != pieces_.end() && last->first == end && end < offset + bytes; ++last) end += last->second;
  if (end != offset + bytes) return false;
  pieces_.erase(first, last);
  return true;
}

bool Pages::contain(std::size_t offset, std::size_t bytes) const {
  const std::shared_lock lock(mutex_);
  return end_of_row(offset) >= offset + bytes;
}

bool Pages::empty() const {
  const std::shared_lock lock(mutex_);
  return pieces_.empty();
}

void* AddressSpace::reserve(int device, std::size_t bytes) {
  Mapping reservation = map(bytes, Mapping::Protection::none);
  Mapping storage = map(bytes, Mapping::Protection::none);
  if (reservation.address() == nullptr || storage.address() == nullptr) return nullptr;
  const auto made = std::make_shared<Allocation>();
  made->base = reservation.address();
  made->bytes = bytes;
  made->owner = device;
  made->memory = storage.address();
  made->storage = std::move(storage);
  made->pages = std::make_unique<Pages>();
  return insert({made, std::move(reservation)});
}

std::shared_ptr<const Allocation> AddressSpace::range_around(int device, const void* address,
                                                             std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(address);
  std::shared_ptr<const Allocation> range = find(begin);
  const bool is_range = range != nullptr && range->pages != nullptr && range->owner == device;
  return is_range && bytes <= range->bytes - static_cast<std::size_t>(begin - range->base) ? range : nullptr;
}

bool AddressSpace::map_pages(int device, void* address, std::size_t bytes) {
  const auto range = range_around(device, address, bytes);
  if (range == nullptr || !take(device, bytes)) return false;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(address) - range->base);
  if (mprotect(range->memory + offset, bytes, PROT_READ | PROT_WRITE) == 0) {
    if (range->pages->add(offset, bytes)) return true;
  }
  used_[static_cast<std::size_t>(device)] -= bytes;
  return false;
}

bool AddressSpace::unmap_pages(int device, void* address, std::size_t bytes) {
  const auto range = range_around(device, address, bytes);
  if (range == nullptr) return false;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(address) - range->base);
  if (!range->pages->remove(offset, bytes)) return false;
  // Fresh pages in place of the old ones, which the system takes back.
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  const bool is_gone = mmap(range->memory + offset, bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
  used_[static_cast<std::size_t>(device)] -= bytes;
  return is_gone;
}

bool AddressSpace::release(int device, const void* address) {
  return remove(address, [device](const Allocation& block) {
           return block.owner == device && block.pages != nullptr && block.pages->empty();
         }).allocation != nullptr;
}

}  // namespace tutti::backend::host
