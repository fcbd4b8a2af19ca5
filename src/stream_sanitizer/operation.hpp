// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::stream_sanitizer {

/// Where a call came from: addresses alone, as names take long and are seldom asked for.
class CallSite {
 public:
  /// Of the caller. The first in a process costs more: call it once before anything depends on it.
  [[nodiscard]] static CallSite here() noexcept;
  /// The functions, innermost first, without those of the sanitizer itself: "step (app+0x1b2c) < main
  /// (app+0x1e05)". What a program does not export has no name, but an offset for addr2line.
  [[nodiscard]] std::string in_words() const;
  [[nodiscard]] std::size_t hash() const noexcept;

 private:
  static constexpr int most_frames = 24;
  std::array<void*, most_frames> frames_{};
  int count_ = 0;
};

/// A call that queued work, or the host's part in something.
struct Operation {
  std::uint64_t number = 0;  ///< in the order of all of the process, releases of memory included
  std::string name;
  std::string part_of;        ///< see `backend::WorkLabel`
  backend::StreamRef stream;  ///< without a device: the host's own
  bool is_default_stream = false;
  std::uint64_t thread = 0;
  CallSite site;

  [[nodiscard]] std::string stream_in_words() const;
};
using OperationPtr = std::shared_ptr<const Operation>;

/// "stream 0x5581f0 of device:1", "the default stream of device:0", "the host".
[[nodiscard]] std::string in_words(backend::StreamRef stream, bool is_default);

/// The calling thread, as the system numbers it.
[[nodiscard]] std::uint64_t calling_thread() noexcept;

}  // namespace tutti::stream_sanitizer
