// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/team_round.hpp"
#include "device/runtime.hpp"

#include <cstddef>
#include <span>

namespace tutti::transport::team {

/// Shows that what devices read through windows is what others wrote there: each member writes a pattern of
/// its own to every window, and afterwards looks for all patterns in each. Blocks the calling thread.
class WindowSelfTest {
 public:
  static constexpr std::size_t bytes = 4096;  ///< of each member

  /// Throws Error(out_of_memory).
  WindowSelfTest(Runtime& runtime, const backend::TeamWindowLayout& layout);
  WindowSelfTest(const WindowSelfTest&) = delete;
  WindowSelfTest& operator=(const WindowSelfTest&) = delete;
  ~WindowSelfTest();

  /// Member `writer`, of this device, leaves its pattern in every window. Throws what the backend throws.
  void write(int device, std::size_t writer, std::span<std::byte* const> windows);
  /// The member of this device looks for all patterns in the window of every member. Throws
  /// Error(peer_unavailable) if one is not there, and what the backend throws.
  void read(int device, std::size_t reader, std::span<std::byte* const> windows);

 private:
  /// Patterns lie in the slots, which hold nothing yet.
  [[nodiscard]] std::byte* place(std::byte* window, std::size_t writer) const {
    return window + layout_.slots_offset() + writer * bytes;
  }

  backend::Backend& backend_;
  backend::TeamWindowLayout layout_;
  std::byte* host_;
};

}  // namespace tutti::transport::team
