// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream_sanitizer/operation.hpp"
#include "stream_sanitizer/shadow_memory.hpp"

#include <cstdint>
#include <map>

namespace tutti::stream_sanitizer {

/// Tracks which memory allocators have handed out and got back. Not synchronised.
class MemoryLives {
 public:
  /// Notes that the bytes are handed out at time `number`.
  void taken(Bytes bytes, std::uint64_t number);
  void given_back(Bytes bytes, OperationPtr release);
  void forget(Bytes bytes);
  void clear() noexcept;

  struct Freed {
    OperationPtr release;
    Bytes bytes;
  };
  /// Returns some of these bytes that are not handed out at present; no release if there are none.
  [[nodiscard]] Freed freed(Bytes bytes) const;
  /// Returns the release that ended the life of the memory in which an operation with this number ran, if the
  /// memory has been handed out again since; otherwise nullptr.
  [[nodiscard]] OperationPtr release_since(std::uintptr_t address, std::uint64_t number) const;

 private:
  struct Life {
    std::uintptr_t end = 0;
    std::uint64_t since = 0;
    OperationPtr release_before;
  };
  struct Gap {
    std::uintptr_t end = 0;
    OperationPtr release;
  };

  /// Takes the bytes out of the gaps. Returns the latest release of them.
  OperationPtr close_gaps(Bytes bytes);

  std::map<std::uintptr_t, Life> lives_;
  std::map<std::uintptr_t, Gap> gaps_;
};

}  // namespace tutti::stream_sanitizer
