// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace tutti {

struct Segment;

/// Finds the segment around an address, whichever device's it is, in a few reads: no lock, and nothing
/// written that threads share. A table of granules of 2 MiB, which no segment is shorter than, so that one
/// segment at most reaches into a granule and one at most begins there.
///
/// Thread-safe. What is found for memory that nobody has allocated may be gone already; but segments' objects
/// outlive the index, so that it can be looked at.
class SegmentIndex {
 public:
  static constexpr std::size_t granule = std::size_t{2} << 20;

  SegmentIndex() = default;
  SegmentIndex(const SegmentIndex&) = delete;
  SegmentIndex& operator=(const SegmentIndex&) = delete;
  ~SegmentIndex();

  /// Adds a segment; called before anybody asks for it. Throws std::bad_alloc.
  void add(Segment& segment);
  void remove(const Segment& segment) noexcept;
  /// Returns the segment of the address, nullptr if there is none.
  [[nodiscard]] Segment* find(const void* address) const noexcept;

 private:
  struct Granule {
    std::atomic<Segment*> reaching{nullptr};   ///< begins before
    std::atomic<Segment*> beginning{nullptr};  ///< in the granule
    std::atomic<std::uintptr_t> begin{0};      ///< of `beginning`, 0 if there is none
  };
  static constexpr int granule_shift = 21;
  static constexpr int leaf_shift = 14;
  static constexpr int address_bits = 50;  ///< more than processors and GPUs give to one process
  static constexpr std::size_t leaf_count = std::size_t{1} << (address_bits - granule_shift - leaf_shift);
  using Leaf = std::array<Granule, std::size_t{1} << leaf_shift>;

  [[nodiscard]] Granule* granule_at(std::uintptr_t address) const noexcept;
  void make_leaf(std::uintptr_t address);
  /// Calls `set(granule, begins)` for each granule of the segment.
  template <class Set>
  void for_each_granule(const Segment& segment, const Set& set);

  std::unique_ptr<std::atomic<Leaf*>[]> leaves_ = std::make_unique<std::atomic<Leaf*>[]>(leaf_count);
  std::mutex mutex_;  ///< for making leaves
};

}  // namespace tutti
