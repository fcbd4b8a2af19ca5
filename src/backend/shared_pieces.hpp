// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/memory_calls.hpp"
#include "os/audience.hpp"
#include "os/descriptor.hpp"
#include "os/descriptor_port.hpp"
#include "os/shared_memory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::backend {

/// Offers pieces of device memory, which lie side by side, or a block of a driver's pool, which counts as one
/// piece, to other processes for as long as this object exists. A handle has no room for all that these need:
/// it names a table in shared memory.
class SharedPieces {
 public:
  /// A handle that is passed on as it is: of a piece without a descriptor, or of a block in its pool.
  using Opaque = std::array<std::byte, 64>;
  /// A piece: an open file that stands for its memory, or else an opaque handle; of a block, the pool's file
  /// and an opaque handle.
  struct Piece {
    std::uint64_t bytes = 0;
    Descriptor file;
    Opaque opaque{};
  };
  /// The range of the pieces that is offered.
  struct Range {
    int device = -1;
    MemoryOrigin origin = MemoryOrigin::piece;
    std::uint64_t offset = 0;  ///< from the first piece's start
    std::uint64_t bytes = 0;
  };
  /// Pieces as another process gets them.
  struct Opened {
    Range range;
    std::uint64_t total_bytes = 0;  ///< of all pieces
    std::vector<Piece> pieces;
  };

  /// Takes the pieces' files, which are closed at the end. Throws Error(unsupported) if the system lacks the
  /// resources.
  SharedPieces(const Range& range, std::vector<Piece> pieces, Audience audience);
  SharedPieces(const SharedPieces&) = delete;
  SharedPieces& operator=(const SharedPieces&) = delete;
  ~SharedPieces();

  /// Returns why this process should not open `count` descriptors more, one for each piece, which names its
  /// limit (`RLIMIT_NOFILE`) and how many are open; empty if it may. A few are left to the program.
  /// Lists the open ones, which takes the longer the more they are.
  [[nodiscard]] static std::string reason_against_descriptors(std::size_t count);

  [[nodiscard]] const MemoryHandle& handle() const noexcept { return handle_; }
  /// Fetches the pieces that a handle names; nothing if the handle is of another kind. Throws
  /// Error(peer_unavailable) if their process does not offer them any more, or is this one.
  [[nodiscard]] static std::optional<Opened> open(const MemoryHandle& handle);

 private:
  std::vector<Piece> pieces_;
  std::shared_ptr<DescriptorPort> port_;
  SharedMemory table_;
  MemoryHandle handle_;
};

}  // namespace tutti::backend
