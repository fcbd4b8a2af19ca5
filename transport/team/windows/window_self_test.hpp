// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/team_round.hpp"
#include "device/runtime.hpp"

#include <cstddef>
#include <span>

namespace tutti::transport::team {

/// Tests that devices read through windows what others wrote: each member writes a pattern of its own to
/// every window, and then checks all patterns in each. Blocks the calling thread.
class WindowSelfTest {
 public:
  static constexpr std::size_t bytes = 4096;  ///< of each member

  /// Allocates the buffer. Throws Error(out_of_memory).
  WindowSelfTest(Runtime& runtime, const backend::TeamWindowLayout& layout);
  WindowSelfTest(const WindowSelfTest&) = delete;
  WindowSelfTest& operator=(const WindowSelfTest&) = delete;
  ~WindowSelfTest();

  /// Writes the pattern of member `writer`, of this device, to every window. Throws the backend's errors.
  void write(int device, std::size_t writer, std::span<std::byte* const> windows);
  /// Checks all patterns in the window of every member, on the device of member `reader`. Throws
  /// Error(peer_unavailable) if one is missing, and the backend's errors.
  void read(int device, std::size_t reader, std::span<std::byte* const> windows);

 private:
  /// Returns the place of a writer's pattern: in the slots, which hold nothing yet.
  [[nodiscard]] std::byte* place(std::byte* window, std::size_t writer) const {
    return window + layout_.slots_offset() + writer * bytes;
  }

  backend::Backend& backend_;
  backend::TeamWindowLayout layout_;
  std::byte* host_;
};

}  // namespace tutti::transport::team
