// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/memory/use_count.hpp"
#include "backend/memory_calls.hpp"
#include "backend/shared_pieces.hpp"
#include "os/shared_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace tutti::backend::host {

/// Owns pages of the process, which are unmapped on destruction.
class Mapping {
 public:
  enum class Protection : std::uint8_t { none, read_write };

  Mapping() = default;
  /// Maps pages; empty (`address()` is nullptr) if the system has no room. Pages are zero and cost memory
  /// once touched.
  Mapping(std::size_t bytes, Protection protection) noexcept;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  [[nodiscard]] std::byte* address() const noexcept { return address_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool contains(const std::byte* address) const noexcept {
    return address >= address_ && address < address_ + bytes_;
  }

 private:
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Returns a number that no other memory of the process has or had.
[[nodiscard]] inline std::uint64_t new_memory_identity() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// The state by which a block can be shared with other processes.
struct Sharing {
  std::mutex mutex;
  SharedMemory memory;  ///< guarded by `mutex`; empty until the block is shared
  UseCount uses;        ///< by running tasks; the bytes may move while there are none
};

/// Tracks which parts of a range have memory. Thread-safe.
class Pages {
 public:
  /// Returns true if no part of these bytes had memory, and adds them.
  [[nodiscard]] bool add(std::size_t offset, std::size_t bytes);
  /// Returns true if these are whole adjacent pieces, as they were added, and removes them.
  [[nodiscard]] bool remove(std::size_t offset, std::size_t bytes);
  /// Returns true if all of these bytes have memory.
  [[nodiscard]] bool contain(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] bool empty() const;
  /// The bytes of a range that one piece has.
  struct Extent {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    std::uint64_t identity = 0;  ///< differs from that of all other memory there has been
  };
  /// Returns the piece that contains `offset`; an empty extent if none does.
  [[nodiscard]] Extent piece_at(std::size_t offset) const;
  /// Moves the pieces that these bytes are in to shared memory, each once, and appends a file for each to
  /// `shared`. No task may use the range meanwhile, whose own memory begins at `memory`. Returns where the
  /// first of the pieces begins; nothing if not all of the bytes have memory. Throws Error(out_of_memory),
  /// and Error(unsupported) if the process may not open as many files.
  [[nodiscard]] std::optional<std::size_t> share(std::size_t offset, std::size_t bytes, std::byte* memory,
                                                 Audience audience, std::vector<SharedPieces::Piece>& shared);

 private:
  struct Piece {
    std::size_t bytes = 0;
    SharedMemory shared{};  ///< empty until the piece is shared
    std::uint64_t identity = new_memory_identity();
  };
  /// Returns the end of the adjacent pieces from the piece that contains `offset`; `offset` if none does.
  [[nodiscard]] std::size_t end_of_row(std::size_t offset) const;

  mutable std::shared_mutex mutex_;
  std::map<std::size_t, Piece> pieces_;  ///< by offset
};

/// One block of device or pinned memory, or a range of addresses of a device. Lives until it has been freed
/// and nothing running uses it any more.
struct Allocation {
  static constexpr int pinned = -1;
  static constexpr int nobody = -1;

  const std::byte* base = nullptr;  ///< the address the library knows
  std::size_t bytes = 0;
  std::uint64_t identity = new_memory_identity();
  int owner = pinned;           ///< device, or `pinned`
  Mapping storage;              ///< owns the bytes; empty for registered memory, which another owner has
  std::byte* memory = nullptr;  ///< the address of the bytes; for pinned memory this is `base`
  int opener = nobody;          ///< for another process's memory, the device whose work may use it
  bool is_managed = false;      ///< a program's own memory, which counts as that of every device
  mutable Sharing sharing;      ///< of device memory
  /// Access of other devices to that memory does not extend to this.
  mutable std::atomic<bool> is_closed_to_peers{false};
  std::unique_ptr<Pages> pages;  ///< of a range; nullptr for a block, which has memory everywhere

  /// Returns true if its bytes may move, which running tasks prevent by `sharing.uses`.
  [[nodiscard]] bool can_be_shared() const noexcept { return owner != pinned && opener == nobody; }
  [[nodiscard]] bool has_memory(const std::byte* address, std::size_t count) const {
    return pages == nullptr || pages->contain(static_cast<std::size_t>(address - base), count);
  }

  [[nodiscard]] const std::byte* end() const noexcept { return base + bytes; }
  [[nodiscard]] bool contains(const std::byte* address) const noexcept {
    return address >= base && address < end();
  }
  /// Returns true if a device that has access to the owner's memory has access to this.
  [[nodiscard]] bool is_open_to(int peer) const noexcept {
    if (opener != nobody) return peer == opener;
    return owner == pinned || peer == owner || !is_closed_to_peers.load(std::memory_order_relaxed);
  }
};

/// Keeps a block alive and its bytes where they are.
class BlockInUse {
 public:
  explicit BlockInUse(std::shared_ptr<const Allocation> block) noexcept : block_(std::move(block)) {
    if (block_->can_be_shared()) block_->sharing.uses.enter();
  }
  BlockInUse(BlockInUse&&) noexcept = default;
  BlockInUse& operator=(BlockInUse&&) = delete;
  BlockInUse(const BlockInUse&) = delete;
  BlockInUse& operator=(const BlockInUse&) = delete;
  ~BlockInUse() {
    if (block_ != nullptr && block_->can_be_shared()) block_->sharing.uses.leave();
  }
  /// Allows the bytes to move now.
  void make_way() noexcept {
    if (block_->can_be_shared()) block_->sharing.uses.make_way();
  }
  [[nodiscard]] const Allocation& operator*() const noexcept { return *block_; }
  [[nodiscard]] const Allocation* operator->() const noexcept { return block_.get(); }

 private:
  std::shared_ptr<const Allocation> block_;
};

/// A block that other processes can open: `bytes` at the start of `memory`.
struct SharedBytes {
  SharedMemory::Handle memory;
  std::size_t bytes = 0;
};

/// Manages device and pinned memory of a virtual machine.
///
/// Device memory has two addresses. The public one, which programs hold, is reserved and inaccessible:
/// touching it faults. The bytes are elsewhere, at an address that only tasks learn when they run.
/// Thread-safe.
class AddressSpace {
 public:
  AddressSpace(int device_count, std::size_t bytes_per_device);

  /// Allocates device memory; nullptr if the device's memory is exhausted.
  [[nodiscard]] void* allocate_device(int device, std::size_t bytes);
  [[nodiscard]] void* allocate_pinned(std::size_t bytes);
  /// Registers foreign pages as pinned memory. Returns false if they overlap with a known block.
  [[nodiscard]] bool register_pinned(std::byte* address, std::size_t bytes);
  /// Adds memory of the program that every device may use; it may be exactly what has been added before.
  /// Returns false if it overlaps with other blocks.
  [[nodiscard]] bool add_managed(std::byte* address, std::size_t bytes);
  /// Takes one call of `add_managed` back.
  void remove_managed(const std::byte* address);
  /// Frees a block. Returns false if `address` is not the start of a block of `owner` (a device, or
  /// `Allocation::pinned`).
  [[nodiscard]] bool free(int owner, const void* address);

  /// Reserves addresses of `device` without memory; nullptr if there is no room for them.
  [[nodiscard]] void* reserve(int device, std::size_t bytes);
  /// Returns false if the device's memory is exhausted, or this is not a part without memory of one of the
  /// device's ranges.
  [[nodiscard]] bool map_pages(int device, void* address, std::size_t bytes);
  /// Returns false if `map_pages` has not mapped these pieces.
  [[nodiscard]] bool unmap_pages(int device, void* address, std::size_t bytes);
  /// Returns false if this is not a whole range of the device's, without memory.
  [[nodiscard]] bool release(int device, const void* address);

  /// Returns what that audience needs to open the block at `address`, until it is freed; nothing if that is
  /// not the start of a block of `device`. The first time, the bytes move into shared memory as soon as no
  /// task uses them. Throws Error(out_of_memory).
  [[nodiscard]] std::optional<SharedBytes> share(int device, const void* address, Audience audience);
  /// Adds a block of another process: `bytes` at the start of `memory`, which belong to device `owner`, for
  /// work of device `opener`. It counts against no device's memory. Returns nullptr if there is no room for
  /// addresses.
  [[nodiscard]] void* insert_opened(int owner, int opener, SharedMemory memory, std::size_t bytes);
  /// Returns the files of the pieces that contain these bytes of a range, whose device is `device`, until
  /// they are unmapped; nothing if not all of the bytes are in pieces of that device. The first time, the
  /// bytes move into shared memory as soon as no task uses the range. Throws Error(out_of_memory).
  struct PiecesOfRange {
    std::size_t offset = 0;  ///< of the bytes, from the start of the first piece
    std::vector<SharedPieces::Piece> pieces;
  };
  [[nodiscard]] std::optional<PiecesOfRange> share_pieces(int device, const void* address, std::size_t bytes,
                                                          Audience audience);
  /// Works like `insert_opened`, for pieces, which become one block. Throws Error(peer_unavailable) if one
  /// cannot be mapped.
  [[nodiscard]] void* insert_opened(int opener, const SharedPieces::Opened& opened);
  /// Returns false if `address` is not the start of a block opened for `opener`.
  [[nodiscard]] bool remove_opened(int opener, const void* address);

  [[nodiscard]] std::size_t free_bytes(int device) const noexcept;
  /// Returns the block that contains `address`, nullptr if there is none.
  [[nodiscard]] std::shared_ptr<const Allocation> find(const std::byte* address) const;
  /// Returns true if `address` was device memory, own or opened, not long ago. Such addresses are not reused
  /// for a while, as long as there are others.
  [[nodiscard]] bool recently_freed(const std::byte* address) const;
  /// Returns to the system addresses that were freed, if the process has no others left: those of up to
  /// `most` blocks, in the order in which they were freed. Returns false if there are none.
  bool give_back_freed(std::size_t most) noexcept;

 private:
  struct Block {
    std::shared_ptr<const Allocation> allocation;
    Mapping reservation;    ///< the public address range; empty for pinned and managed memory
    std::size_t users = 1;  ///< of managed memory: calls of `add_managed` that need it
  };

  /// Maps pages, and gives back freed addresses as long as the system has no room.
  [[nodiscard]] Mapping map(std::size_t bytes, Mapping::Protection protection) noexcept;
  void* insert(Block block);
  /// Returns the last block that begins before `end`, nullptr if there is none. The mutex must be held.
  [[nodiscard]] const Block* last_before(const std::byte* end) const;
  /// Returns the block that starts at `address`, nullptr if there is none.
  [[nodiscard]] std::shared_ptr<const Allocation> find_start(const void* address) const;
  /// Removes and returns the block that starts at `address`, if `is_meant` accepts its allocation.
  [[nodiscard]] Block remove(const void* address, const std::function<bool(const Allocation&)>& is_meant);
  [[nodiscard]] bool take(int device, std::size_t bytes) noexcept;
  /// Returns the device's range that these bytes are in, nullptr if there is none.
  [[nodiscard]] std::shared_ptr<const Allocation> range_around(int device, const void* address,
                                                               std::size_t bytes) const;

  const std::size_t bytes_per_device_;
  std::vector<std::atomic<std::size_t>> used_;  ///< by device
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  ///< by base
  std::deque<Mapping> quarantine_;            ///< public ranges of freed device memory, oldest first
};

}  // namespace tutti::backend::host
