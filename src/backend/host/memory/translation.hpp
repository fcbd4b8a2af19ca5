// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/memory/address_space.hpp"
#include "backend/host/memory/faults.hpp"
#include "backend/host/memory/peer_access.hpp"
#include "os/shared_flag.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::backend::host {

/// A rectangle of bytes: `rows` rows of `row_bytes`, one every `pitch` bytes.
struct Extent {
  std::size_t row_bytes = 0;
  std::size_t rows = 1;
  std::size_t pitch = 0;  ///< ignored for one row

  [[nodiscard]] bool empty() const noexcept { return row_bytes == 0 || rows == 0; }
  /// Returns the bytes from the first to the last, gaps included.
  [[nodiscard]] std::size_t span() const noexcept { return empty() ? 0 : (rows - 1) * pitch + row_bytes; }
};

/// The mover of the bytes, which decides what may be accessed.
enum class Mover : std::uint8_t {
  kernel,       ///< the device itself: its own memory, peers it has access to, pinned memory
  copy_engine,  ///< the system: any device's memory, and addresses the machine does not know (pageable
                ///< memory)
};

/// Translates the addresses that one running task was given into addresses it can use, or refuses them.
///
/// The blocks it found stay alive, and their bytes in place, as long as it does. It also remembers which
/// writes went through a link between two devices, so that faults of the link can be applied to them. For one
/// thread.
class Translation {
 public:
  struct Machine {
    const AddressSpace& addresses;
    const PeerAccess& peers;
    Faults& faults;
  };

  Translation(const Machine& machine, Mover mover, int device)
      : machine_(machine), mover_(mover), device_(device) {}
  Translation(const Translation&) = delete;
  Translation& operator=(const Translation&) = delete;
  ~Translation() = default;

  /// Adds a block that the task is known to use, which saves a search.
  void add(std::shared_ptr<const Allocation> block) { blocks_.emplace_back(std::move(block)); }
  /// Translates an address that is read. Throws Error(device_failure) if the bytes are not inside one block,
  /// or out of the device's reach. An empty extent is always valid and gives nullptr.
  [[nodiscard]] const std::byte* read(const std::byte* address, const Extent& extent);
  /// Translates an address that is written. Writes count as coming from what has been read since the last
  /// `begin_segment`.
  [[nodiscard]] std::byte* write(std::byte* address, const Extent& extent);
  [[nodiscard]] const std::byte* read(const std::byte* address, std::size_t bytes) {
    return read(address, Extent{bytes});
  }
  [[nodiscard]] std::byte* write(std::byte* address, std::size_t bytes) {
    return write(address, Extent{bytes});
  }
  /// Translates a flag, which is set rather than written: faults of links do not affect it.
  [[nodiscard]] SharedFlag& flag(std::byte* address);
  /// Begins a segment: what is read from now on is independent of what was written so far.
  void begin_segment() noexcept { segment_peers_.clear(); }

  /// Damages what the task wrote through links that are to corrupt; called after the task wrote.
  void corrupt_crossings(virtual_devices::Operation operation);

 private:
  struct Crossing {
    std::byte* bytes;
    Extent extent;
    int peer;
  };

  /// Returns the block of `address`, nullptr for memory unknown to the machine that the mover may access.
  [[nodiscard]] const Allocation* locate(const std::byte* address, std::size_t bytes);
  [[nodiscard]] const Allocation* find(const std::byte* address);
  [[nodiscard]] bool crosses_link(const Allocation* block) const;

  Machine machine_;
  Mover mover_;
  int device_;
  std::vector<BlockInUse> blocks_;  ///< found so far, the latest last
  std::vector<int> segment_peers_;
  std::vector<Crossing> crossings_;
};

}  // namespace tutti::backend::host
