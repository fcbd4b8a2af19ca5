// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::collectives {

/// Remembers the program's own memory that a thread's calls have looked into. What was found holds as long as
/// the memory there has the same identity (`MemoryCalls::identity_of`), which is quicker to ask for.
class KnownMemory {
 public:
  [[nodiscard]] static KnownMemory& of_thread() noexcept;

  /// Returns true if `bytes` bytes at `data` are known to be memory of `device`, and are the same as then.
  [[nodiscard]] bool has(Runtime& runtime, const std::byte* data, std::size_t bytes, int device) const;
  /// Adds memory of `device` that begins at `data`: `bytes` bytes of one allocation, or of one piece. Takes
  /// the place of what was added long ago.
  void add(Runtime& runtime, const std::byte* data, std::size_t bytes, int device);

 private:
  struct Entry {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t identity = 0;
    std::uint64_t generation = 0;  ///< of the runtime
    int device = 0;
  };
  static constexpr std::size_t entries_per_set = 4;
  struct Set {
    std::array<Entry, entries_per_set> entries;
    std::size_t oldest = 0;
  };
  static std::size_t set_of(const std::byte* data) noexcept;

  static thread_local constinit KnownMemory known_here;
  std::array<Set, 16> sets_{};
};

}  // namespace tutti::collectives
