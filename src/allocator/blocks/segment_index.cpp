// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/segment_index.hpp"

#include "allocator/blocks/block.hpp"

#include <new>

namespace tutti {

namespace {

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

SegmentIndex::~SegmentIndex() {
  for (std::size_t index = 0; index < leaf_count; ++index) delete leaves_[index].load();
}

SegmentIndex::Granule* SegmentIndex::granule_at(std::uintptr_t address) const noexcept {
  const std::uintptr_t number = address >> granule_shift;
  const std::uintptr_t leaf_number = number >> leaf_shift;
  if (leaf_number >= leaf_count) return nullptr;
  Leaf* const leaf = leaves_[leaf_number].load(std::memory_order_acquire);
  return leaf == nullptr ? nullptr : &(*leaf)[number & ((std::size_t{1} << leaf_shift) - 1)];
}

void SegmentIndex::make_leaf(std::uintptr_t address) {
  const std::uintptr_t number = address >> granule_shift >> leaf_shift;
  if (number >= leaf_count) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  if (leaves_[number].load(std::memory_order_relaxed) != nullptr) return;
  leaves_[number].store(new Leaf(), std::memory_order_release);
}

template <class Set>
void SegmentIndex::for_each_granule(const Segment& segment, const Set& set) {
  const std::uintptr_t begin = number_of(segment.address);
  const std::uintptr_t end = begin + segment.bytes;
  for (std::uintptr_t at = begin; at < end; at = (at / granule + 1) * granule) set(at, at == begin);
}

void SegmentIndex::add(Segment& segment) {
  for_each_granule(segment, [this](std::uintptr_t at, bool) { make_leaf(at); });
  for_each_granule(segment, [&](std::uintptr_t at, bool begins) {
    Granule& here = *granule_at(at);
    (begins ? here.beginning : here.reaching).store(&segment, std::memory_order_relaxed);
    if (begins) here.begin.store(at, std::memory_order_release);
  });
}

void SegmentIndex::remove(const Segment& segment) noexcept {
  for_each_granule(segment, [this](std::uintptr_t at, bool begins) {
    Granule& here = *granule_at(at);
    if (begins) here.begin.store(0, std::memory_order_relaxed);
    (begins ? here.beginning : here.reaching).store(nullptr, std::memory_order_release);
  });
}

Segment* SegmentIndex::find(const void* address) const noexcept {
  const std::uintptr_t number = number_of(address);
  const Granule* const here = granule_at(number);
  if (here == nullptr) return nullptr;
  // The other segment of the granule may come or go meanwhile: it is not looked at.
  const std::uintptr_t begin = here->begin.load(std::memory_order_acquire);
  const bool is_in_it = begin != 0 && begin <= number;
  return (is_in_it ? here->beginning : here->reaching).load(std::memory_order_acquire);
}

}  // namespace tutti
