// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::stream_sanitizer {

/// The consequence of a race.
enum class Mode : std::uint8_t {
  off,    ///< nothing is checked
  warn,   ///< the report goes to the log (see `TUTTI_LOG`)
  error,  ///< the call that would queue the second access throws Error(invalid_argument) with the report
          ///< instead, and queues nothing
  abort,  ///< the report goes to standard error, and the process ends by SIGABRT, as under other sanitizers
};

/// Returns the mode's name: "off", "warn", "error" or "abort".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(Mode mode) noexcept;

/// The kind of race, named after its two accesses.
enum class RaceKind : std::uint8_t {
  read_after_write,   ///< it reads what the first may still write
  write_after_read,   ///< it writes what the first may still read
  write_after_write,  ///< it writes what the first may still write
  freed_and_reused,   ///< as above, but the memory was freed in between and has another owner now
  use_after_free,     ///< the memory has no owner at present
};

[[nodiscard]] TUTTI_EXPORT std::string_view name_of(RaceKind kind) noexcept;

/// One side of a race. In a use after free, the first side is the release of the memory.
struct AccessReport {
  std::string operation;  ///< the kind of work: "copy", the label of a declared access …
  std::string part_of;    ///< the library's call that queued it, "broadcast by p2p (root push)"; or empty
  bool writes = false;
  std::string stream;        ///< "stream 0x5581f0 of device:1", "the default stream of device:0", "the host"
  std::uint64_t thread = 0;  ///< the system's id (gettid) of the thread that queued it
  std::string issued_at;  ///< the call stack at that time, innermost function first, with module and offset
};

/// Describes a race.
struct Report {
  RaceKind kind = RaceKind::read_after_write;
  const void* address = nullptr;  ///< an address that both accesses touch
  std::size_t bytes = 0;
  AccessReport first;
  AccessReport second;
  std::string missing = {};  ///< an operation that would order them
  std::string text = {};     ///< the whole report as one paragraph
};

}  // namespace tutti::stream_sanitizer
