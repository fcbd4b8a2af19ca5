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
  /// Bytes from the first to the last, gaps included.
  [[nodiscard]] std::size_t span() const noexcept { return empty() ? 0 : (rows - 1) * pitch + row_bytes; }
};

/// Who moves the bytes, which decides what may be touched.
enum class Mover : std::uint8_t {
  kernel,       ///< the device itself: its own memory, peers it has access to, pinned memory
  copy_engine,  ///< the system: any device's memory, and addresses the machine does not know (pageable
                ///< memory)
};

/// Turns the addresses that one running task was given into addresses it can use, or refuses them.
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

  /// A block that the task is known to use, which need not be looked for.
  void add(std::shared_ptr<const Allocation> block) { blocks_.emplace_back(std::move(block)); }
  /// Throws Error(device_failure) if the bytes are not inside one block, or out of the device's reach. An
  /// empty extent is always valid and gives nullptr.
  [[nodiscard]] const std::byte* read(const std::byte* address, const Extent& extent);
  /// Writes count as coming from what has been read since the last `begin_segment`.
  [[nodiscard]] std::byte* write(std::byte* address, const Extent& extent);
  [[nodiscard]] const std::byte* read(const std::byte* address, std::size_t bytes) {
    return read(address, Extent{bytes});
  }
  [[nodiscard]] std::byte* write(std::byte* address, std::size_t bytes) {
    return write(address, Extent{bytes});
  }
  /// A flag that is set rather than written: faults of links leave it alone.
  [[nodiscard]] SharedFlag& flag(std::byte* address);
  /// What is read from now on has nothing to do with what was written so far.
  void begin_segment() noexcept { segment_peers_.clear(); }

  /// After the task wrote: damages what it wrote through links that are to corrupt.
  void corrupt_crossings(virtual_devices::Operation operation);

 private:
  struct Crossing {
    std::byte* bytes;
    Extent extent;
    int peer;
  };

  /// The block of `address`, nullptr for memory unknown to the machine that the mover may touch.
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
