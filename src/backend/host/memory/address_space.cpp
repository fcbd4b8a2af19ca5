// SPDX-License-Identifier: Apache-2.0
#include "backend/host/memory/address_space.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <sys/mman.h>

namespace tutti::backend::host {

namespace {

constexpr std::size_t granularity = 512;  ///< what device memory is counted in
/// Large mappings may have large pages: moving through megabytes of small ones misses the TLB at every step.
/// Small mappings would only take more memory.
constexpr std::size_t huge_page_threshold = std::size_t{16} << 20;
constexpr std::size_t quarantined_ranges = 1024;  ///< freed device memory whose addresses stay reserved

/// Blocks occupy at least one unit, so that each has its own address.
std::size_t round_up(std::size_t bytes) noexcept {
  return bytes == 0 ? granularity : (bytes + granularity - 1) / granularity * granularity;
}

std::shared_ptr<Allocation> make_allocation(const std::byte* base, std::size_t bytes, int owner) {
  auto made = std::make_shared<Allocation>();
  made->base = base;
  made->bytes = bytes;
  made->owner = owner;
  return made;
}

}  // namespace

Mapping::Mapping(std::size_t bytes, Protection protection) noexcept {
  const int access = protection == Protection::none ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* address = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return;
  if (protection == Protection::read_write && bytes >= huge_page_threshold)
    madvise(address, bytes, MADV_HUGEPAGE);
  address_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
}

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (address_ != nullptr) munmap(address_, bytes_);
}

AddressSpace::AddressSpace(int device_count, std::size_t bytes_per_device)
    : bytes_per_device_(bytes_per_device), used_(static_cast<std::size_t>(device_count)) {}

void* AddressSpace::allocate_device(int device, std::size_t bytes) {
  if (bytes > bytes_per_device_) return nullptr;  // also keeps the rounding from overflowing
  const std::size_t rounded = round_up(bytes);
  if (!take(device, rounded)) return nullptr;
  Mapping reservation = map(rounded, Mapping::Protection::none);
  Mapping storage = map(rounded, Mapping::Protection::read_write);
  if (reservation.address() == nullptr || storage.address() == nullptr) {
    used_[static_cast<std::size_t>(device)] -= rounded;
    return nullptr;
  }
  const auto made = make_allocation(reservation.address(), bytes, device);
  made->memory = storage.address();
  made->storage = std::move(storage);
  return insert({made, std::move(reservation)});
}

void* AddressSpace::allocate_pinned(std::size_t bytes) {
  if (bytes > PTRDIFF_MAX - granularity) return nullptr;
  const std::size_t rounded = round_up(bytes);
  Mapping storage = map(rounded, Mapping::Protection::read_write);
  if (storage.address() == nullptr) return nullptr;
  const auto made = make_allocation(storage.address(), bytes, Allocation::pinned);
  made->memory = storage.address();
  made->storage = std::move(storage);
  return insert({made, {}});
}

bool AddressSpace::register_pinned(std::byte* address, std::size_t bytes) {
  {
    const std::shared_lock lock(mutex_);
    const Block* const before = last_before(address + bytes);
    if (before != nullptr && before->allocation->end() > address) return false;
  }
  const auto made = make_allocation(address, bytes, Allocation::pinned);
  made->memory = address;
  insert({made, {}});
  return true;
}

bool AddressSpace::add_managed(std::byte* address, std::size_t bytes) {
  const auto made = make_allocation(address, bytes, Allocation::pinned);
  made->memory = address;
  made->is_managed = true;
  const std::lock_guard lock(mutex_);
  const Block* const before = last_before(address + bytes);
  if (before == nullptr || before->allocation->end() <= address) {
    blocks_.emplace(address, Block{made, {}});
    return true;
  }
  const Allocation& known = *before->allocation;
  if (!known.is_managed || known.base != address || known.bytes != bytes) return false;
  ++blocks_.at(address).users;
  return true;
}

void AddressSpace::remove_managed(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (--found->second.users == 0) blocks_.erase(found);
}

const AddressSpace::Block* AddressSpace::last_before(const std::byte* end) const {
  const auto next = blocks_.lower_bound(end);
  return next == blocks_.begin() ? nullptr : &std::prev(next)->second;
}

bool AddressSpace::free(int owner, const void* address) {
  const auto removed = remove(address, [owner](const Allocation& block) {
    return block.owner == owner && block.opener == Allocation::nobody && block.pages == nullptr;
  });
  if (removed.allocation == nullptr) return false;
  if (owner == Allocation::pinned) return true;
  used_[static_cast<std::size_t>(owner)] -= round_up(removed.allocation->bytes);
  // Tasks may still hold the block, but nobody opens it any more.
  const std::lock_guard lock(removed.allocation->sharing.mutex);
  removed.allocation->sharing.memory.seal();
  return true;
}

std::optional<SharedBytes> AddressSpace::share(int device, const void* address, Audience audience) {
  const auto block = find_start(address);
  if (block == nullptr || !block->can_be_shared() || block->pages != nullptr || block->owner != device)
    return std::nullopt;
  Sharing& sharing = block->sharing;
  const std::lock_guard lock(sharing.mutex);
  if (sharing.memory.size() != 0) return SharedBytes{sharing.memory.share(audience), block->bytes};
  SharedMemory shared = with_addresses([&] { return SharedMemory(block->storage.bytes()); },
                                       [this] { return give_back_freed(quarantined_ranges); });
  sharing.uses.exclude();
  try {
    std::memcpy(shared.data(), block->memory, block->bytes);
    shared.hand_over_to(block->memory);
  } catch (...) {
    sharing.uses.admit();
    throw;
  }
  sharing.uses.admit();
  sharing.memory = std::move(shared);
  return SharedBytes{sharing.memory.share(audience), block->bytes};
}

void* AddressSpace::insert_opened(int owner, int opener, SharedMemory memory, std::size_t bytes) {
  Mapping reservation = map(memory.size(), Mapping::Protection::none);
  if (reservation.address() == nullptr) return nullptr;
  const auto made = make_allocation(reservation.address(), bytes, owner);
  made->opener = opener;
  made->memory = memory.data();
  made->sharing.memory = std::move(memory);
  return insert({made, std::move(reservation)});
}

bool AddressSpace::remove_opened(int opener, const void* address) {
  return remove(address, [opener](const Allocation& block) {
           return block.opener == opener && block.opener != Allocation::nobody;
         }).allocation != nullptr;
}

std::size_t AddressSpace::free_bytes(int device) const noexcept {
  return bytes_per_device_ - used_[static_cast<std::size_t>(device)].load();
}

std::shared_ptr<const Allocation> AddressSpace::find_start(const void* address) const {
  const std::shared_lock lock(mutex_);
  const auto found = blocks_.find(static_cast<const std::byte*>(address));
  return found == blocks_.end() ? nullptr : found->second.allocation;
}

std::shared_ptr<const Allocation> AddressSpace::find(const std::byte* address) const {
  const std::shared_lock lock(mutex_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  const auto& allocation = std::prev(next)->second.allocation;
  return allocation->contains(address) ? allocation : nullptr;
}

bool AddressSpace::recently_freed(const std::byte* address) const {
  const std::shared_lock lock(mutex_);
  return std::any_of(quarantine_.begin(), quarantine_.end(),
                     [address](const Mapping& range) { return range.contains(address); });
}

AddressSpace::Block AddressSpace::remove(const void* address,
                                         const std::function<bool(const Allocation&)>& is_meant) {
  Block removed;
  Mapping released;  // unmapped after the lock
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<const std::byte*>(address));
  if (found == blocks_.end() || !is_meant(*found->second.allocation)) return {};
  removed = std::move(found->second);
  blocks_.erase(found);
  if (removed.reservation.address() == nullptr) return removed;
  quarantine_.push_back(std::move(removed.reservation));
  if (quarantine_.size() > quarantined_ranges) {
    released = std::move(quarantine_.front());
    quarantine_.pop_front();
  }
  return removed;
}

Mapping AddressSpace::map(std::size_t bytes, Mapping::Protection protection) noexcept {
  for (;;) {
    Mapping pages(bytes, protection);
    if (pages.address() != nullptr || !give_back_freed(1)) return pages;
  }
}

bool AddressSpace::give_back_freed(std::size_t most) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(most, quarantine_.size());
  quarantine_.erase(quarantine_.begin(), quarantine_.begin() + static_cast<std::ptrdiff_t>(count));
  return count > 0;
}

void* AddressSpace::insert(Block block) {
  const std::byte* base = block.allocation->base;
  const std::lock_guard lock(mutex_);
  blocks_.emplace(base, std::move(block));
  return const_cast<std::byte*>(base);
}

bool AddressSpace::take(int device, std::size_t bytes) noexcept {
  std::atomic<std::size_t>& used = used_[static_cast<std::size_t>(device)];
  std::size_t before = used.load();
  do {
    if (bytes > bytes_per_device_ - before) return false;
  } while (!used.compare_exchange_weak(before, before + bytes));
  return true;
}

}  // namespace tutti::backend::host
