// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

/// The stream sanitizer finds races: two accesses to the same memory, at least one of them a write, that
/// neither a stream's order nor an event nor a wait of the host orders. It sees all work that the library
/// queues, and those accesses of the program's own kernels that are declared to it. It does not depend on
/// timing: it also reports races whose accesses happened to run in a good order.
///
/// While it is off, as it is initially, it costs nothing. See docs/stream-sanitizer.md for what it finds,
/// what it cannot, and what it costs.
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

/// Switches the sanitizer on, in place of the environment variable `TUTTI_STREAM_SANITIZER` (`0`, `1` or
/// `warn`, `error`, `abort`). The first call must come before the first use of a device, or before
/// `virtual_devices::start`: it throws Error(unsupported) if GPUs are already in use without the sanitizer;
/// virtual devices in use stay unchecked until the next `virtual_devices::start`. Afterwards, the mode may
/// change at any time. `off` stops checking and forgets all work queued until then. Thread-safe.
TUTTI_EXPORT void enable(Mode mode = Mode::warn);
/// Does what `enable(Mode::off)` does, and never throws.
TUTTI_EXPORT void disable() noexcept;
/// Returns the mode in which the devices in use are checked, or will be once they are used.
[[nodiscard]] TUTTI_EXPORT Mode mode();

/// Returns the number of races found by this process so far, whatever became of the reports. A pair of calls
/// counts once.
[[nodiscard]] TUTTI_EXPORT std::uint64_t report_count() noexcept;
/// Sets a function that receives each report, before the mode takes effect, on the thread that queues the
/// second access. It may call the library, and must not throw. An empty function removes it. Thread-safe.
TUTTI_EXPORT void set_callback(std::function<void(const Report&)> callback);

/// Ways in which work uses memory.
enum class Use : std::uint8_t { read, write, read_write };

/// Declares an access of the program's own kernel that is queued on `stream` next; the sanitizer sees only
/// the library's launches by itself. `label` names it in reports. The memory may be a device's or pinned. In
/// mode `error`, throws Error(invalid_argument) if the access is a race; the kernel should not be launched
/// then. While the stream is being captured, the access counts as one of the graph. Does nothing while the
/// sanitizer is off.
TUTTI_EXPORT void access(const Stream& stream, const void* address, std::size_t bytes, Use use,
                         std::string_view label);
/// Declares an access to a tensor's elements.
TUTTI_EXPORT void access(const Stream& stream, const TensorView& tensor, Use use, std::string_view label);
/// Declares an access that the calling thread itself now makes to pinned memory.
TUTTI_EXPORT void host_access(const void* address, std::size_t bytes, Use use, std::string_view label);

/// Declares an order that the program has made itself, by events that it records and waits for without the
/// library: work queued later on `later` follows work queued so far on `earlier`.
TUTTI_EXPORT void declare_order(const Stream& earlier, const Stream& later);
/// Declares that the host has waited for the work queued so far on `stream`.
TUTTI_EXPORT void declare_wait(const Stream& stream);

}  // namespace tutti::stream_sanitizer
