// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::collectives {

/// Remembers the allocations of the program's own in which operands of a thread's calls lie. What was found
/// holds as long as the memory there has the same identity (`MemoryCalls::identity_of`), which is quicker to
/// ask for: other operands in the same allocation need no more than that.
class KnownMemory {
 public:
  [[nodiscard]] static KnownMemory& of_thread() noexcept;

  /// Returns true if `bytes` bytes at `data` lie in a known allocation of `device`, which is the same as
  /// then.
  [[nodiscard]] bool has(Runtime& runtime, const std::byte* data, std::size_t bytes, int device) const;
  /// Adds memory of `device`: `around` is the whole allocation, or piece, in which `data` lies. It takes the
  /// place of what was added long ago.
  void add(Runtime& runtime, const std::byte* data, std::span<const std::byte> around, int device);

 private:
  struct Entry {
    std::span<const std::byte> memory{};
    std::uint64_t identity = 0;
    std::uint64_t generation = 0;  ///< of the runtime
    int device = 0;

    [[nodiscard]] bool contains(const std::byte* data, std::size_t bytes) const noexcept {
      return data >= memory.data() && bytes <= memory.size() &&
             data <= memory.data() + (memory.size() - bytes);
    }
  };
  static thread_local constinit KnownMemory known_here;

  std::array<Entry, 64> entries_{};
  std::size_t oldest_ = 0;
};

}  // namespace tutti::collectives
