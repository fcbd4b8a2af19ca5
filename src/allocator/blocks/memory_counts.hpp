// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// The quantities that an allocator counts: the members of `MemoryStats`, in their order.
enum class Quantity : std::uint8_t {
  allocation,
  segment,
  active,
  inactive_split,
  allocated_bytes,
  reserved_bytes,
  active_bytes,
  inactive_split_bytes,
  requested_bytes,
};

/// `MemoryStats` as they are kept: only what cannot be worked out later, as a hit in the cache updates a
/// dozen of them. Not synchronised.
class MemoryCounts {
 public:
  static constexpr std::size_t quantities = 9;
  using Figures = std::array<std::int64_t, quantities>;

  void increase(Quantity quantity, MemoryPool pool, std::size_t amount) noexcept {
    const auto index = static_cast<std::size_t>(quantity);
    Counts& counts = of(pool);
    const auto more = static_cast<std::int64_t>(amount);
    counts.allocated[index] += more;
    const std::int64_t now = counts.current[index] += more;
    if (now > counts.peak[index]) counts.peak[index] = now;
    const std::int64_t all = small_.current[index] + large_.current[index];
    if (all > peak_of_all_[index]) peak_of_all_[index] = all;
  }
  void decrease(Quantity quantity, MemoryPool pool, std::size_t amount) noexcept {
    of(pool).current[static_cast<std::size_t>(quantity)] -= static_cast<std::int64_t>(amount);
  }
  /// Returns the current figure of both pools together.
  [[nodiscard]] std::size_t current(Quantity quantity) const noexcept {
    const auto index = static_cast<std::size_t>(quantity);
    return static_cast<std::size_t>(small_.current[index] + large_.current[index]);
  }

  /// Returns the total that has been added to each quantity so far.
  [[nodiscard]] const Figures& allocated(MemoryPool pool) noexcept { return of(pool).allocated; }
  /// Counts all that was added since the totals were `earlier`, and was taken away again, `times` times more.
  void repeat_since(const Figures& earlier, MemoryPool pool, std::size_t times) noexcept;

  [[nodiscard]] MemoryStats stats() const noexcept;
  void reset_peaks() noexcept;
  /// Resets the totals of what was allocated and freed, and the numbers of events below.
  void reset_accumulated() noexcept;

  std::int64_t num_alloc_retries = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_device_alloc = 0;
  std::int64_t num_device_free = 0;

 private:
  struct Counts {
    Figures current{};
    Figures peak{};
    Figures allocated{};
    Figures freed_offset{};  ///< what `allocated - current` is too large by, to tell what has been freed
  };

  [[nodiscard]] Counts& of(MemoryPool pool) noexcept {
    return pool == MemoryPool::small_pool ? small_ : large_;
  }

  Counts small_;
  Counts large_;
  Figures peak_of_all_{};
};

}  // namespace tutti
