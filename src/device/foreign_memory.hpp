// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "device/runtime_part.hpp"
#include "tutti/storage.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {

/// Says, after "as", why memory is copied that peers should have used, and what to do about it.
inline constexpr std::string_view closed_to_peers =
    "other devices of this process have no access to it (which register_memory, cuMemSetAccess and "
    "cudaMemPoolSetAccess give)";

/// Remembers which devices may use memory that a program has got without tutti: that which it has mapped by
/// pieces, or got from a pool of the driver, may be closed to peers that have access to all other memory of
/// its device. A part of the runtime; thread-safe.
///
/// An answer holds for the memory that is at the address now: what is there later has another identity
/// (`MemoryCalls::identity_of`). That memory is closed to a device is not remembered, as the program may open
/// it at any time; one that closes it again must not use it with peers any more.
class ForeignMemory final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::foreign_memory;

  explicit ForeignMemory(Runtime& runtime);

  using Bytes = std::span<const std::byte>;
  /// Returns true if work of all `peers` may use the memory where they have access to the memory of its
  /// device. Asks the driver for one number for each block or piece that is known, and costs microseconds for
  /// the others. If it returns true, `around` is the whole of these blocks or pieces, of which the same holds
  /// for now; empty if they are not known.
  [[nodiscard]] bool is_open_to(std::span<const int> peers, Bytes memory, Bytes& around);
  [[nodiscard]] bool is_open_to(std::span<const int> peers, Bytes memory) {
    Bytes around;
    return is_open_to(peers, memory, around);
  }

  /// Tells in the log, the first time, that memory of `device` goes through stand-ins in a call of
  /// `function`.
  void tell_of_stand_ins(std::string_view function, int device, const void* address);

 private:
  /// A block of memory, or one piece.
  struct Known {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    std::uint64_t identity = 0;  ///< 0 if nothing is remembered
    std::vector<int> open_to{};
  };
  using AllKnown = std::map<const std::byte*, Known>;  ///< by address

  /// Returns what is at an address now. The mutex must be held.
  [[nodiscard]] Known& known_at(const std::byte* address);
  [[nodiscard]] bool is_open_to(int peer, const std::byte* address, Known& known);

  backend::Backend& backend_;
  std::mutex mutex_;
  AllKnown known_;  ///< some of it may be gone
  Known unknown_;   ///< the latest memory of which nothing can be remembered
  std::atomic<bool> has_told_{false};
};

/// Returns true if `storage` is of tutti's own memory, which is open to all peers of its device. nullptr is
/// the storage of memory that a tensor does not own.
[[nodiscard]] inline bool is_open_to_all(const Storage* storage) noexcept {
  return storage != nullptr && storage->is_library_memory();
}

}  // namespace tutti
