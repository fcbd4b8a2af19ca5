// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::stream_sanitizer {

/// Captures where a call came from, as addresses, because looking up names takes long and is seldom needed.
class CallSite {
 public:
  /// Returns the call site of the caller. The first call in a process costs more: make it before anything
  /// depends on its time.
  [[nodiscard]] static CallSite here() noexcept;
  /// Describes the functions, innermost first, without those of the sanitizer itself: "step (app+0x1b2c) <
  /// main (app+0x1e05)". What a program does not export has no name, but an offset for addr2line.
  [[nodiscard]] std::string in_words() const;
  [[nodiscard]] std::size_t hash() const noexcept;

 private:
  static constexpr int most_frames = 24;
  std::array<void*, most_frames> frames_{};
  int count_ = 0;
};

/// A call that queued work, or the host's own access.
struct Operation {
  std::uint64_t number = 0;  ///< in the order of all operations of the process, including releases of memory
  std::string name;
  std::string part_of;        ///< see `backend::WorkLabel`
  backend::StreamRef stream;  ///< without a device: the host
  bool is_default_stream = false;
  std::uint64_t thread = 0;
  CallSite site;

  [[nodiscard]] std::string stream_in_words() const;
};
using OperationPtr = std::shared_ptr<const Operation>;

/// Returns "stream 0x5581f0 of device:1", "the default stream of device:0", or "the host".
[[nodiscard]] std::string in_words(backend::StreamRef stream, bool is_default);

/// Returns the system's number of the calling thread.
[[nodiscard]] std::uint64_t calling_thread() noexcept;

}  // namespace tutti::stream_sanitizer
