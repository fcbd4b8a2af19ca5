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

/// The stream sanitizer finds two accesses to the same memory, at least one of them a write, that nothing
/// orders: neither the order of one stream, nor an event, nor a wait of the host. It sees all that the
/// library queues, and knows what has been declared to it of the program's own kernels. It needs no luck
/// with timing: work that happened to run in a good order is reported all the same.
///
/// Where it is off, which is how programs start, nothing is paid for it. See docs/stream-sanitizer.md for
/// what it finds, what it cannot, and what it costs.
namespace tutti::stream_sanitizer {

/// What happens when a race is found.
enum class Mode : std::uint8_t {
  off,    ///< nothing is looked at
  warn,   ///< the report goes to the log (see `TUTTI_LOG`)
  error,  ///< the call that would queue the second access throws Error(invalid_argument) with the report
          ///< instead, and queues nothing
  abort,  ///< the report goes to standard error, and the process ends by SIGABRT, as under other sanitizers
};

/// "off", "warn", "error" or "abort".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(Mode mode) noexcept;

/// What is wrong with the second access.
enum class RaceKind : std::uint8_t {
  read_after_write,   ///< it reads what the first may still write
  write_after_read,   ///< it writes what the first may still read
  write_after_write,  ///< it writes what the first may still write
  freed_and_reused,   ///< as above, but the memory was freed in between and is somebody else's now
  use_after_free,     ///< the memory is nobody's at present
};

[[nodiscard]] TUTTI_EXPORT std::string_view name_of(RaceKind kind) noexcept;

/// One side of a race. Of a use after free, the first side is the release of the memory.
struct AccessReport {
  std::string operation;  ///< what it was: "copy", the label of a declared access …
  std::string
      part_of;  ///< the call of the library's that queued it, "broadcast by p2p (root push)"; or empty
  bool writes = false;
  std::string stream;        ///< "stream 0x5581f0 of device:1", "the default stream of device:0", "the host"
  std::uint64_t thread = 0;  ///< of the system (gettid), which queued it
  std::string issued_at;  ///< the functions that were running then, innermost first, with module and offset
};

/// A race that was found.
struct Report {
  RaceKind kind = RaceKind::read_after_write;
  const void* address = nullptr;  ///< where both accesses touch the same bytes
  std::size_t bytes = 0;
  AccessReport first;
  AccessReport second;
  std::string missing = {};  ///< what would put them in an order
  std::string text = {};     ///< all of it, in one paragraph
};

/// Switches the sanitizer on, in place of the environment variable `TUTTI_STREAM_SANITIZER` (`0`, `1` or
/// `warn`, `error`, `abort`). The first time, that must come before the first use of a device, or before
/// `virtual_devices::start`: throws Error(unsupported) where GPUs are in use without it; virtual devices that
/// are in use without it stay so until the next `virtual_devices::start`. Afterwards, the mode may change at
/// any time. `off` looks at nothing any more; what was queued until then is forgotten.
/// Thread-safe.
TUTTI_EXPORT void enable(Mode mode = Mode::warn);
/// The same as `enable(Mode::off)`, and never throws.
TUTTI_EXPORT void disable() noexcept;
/// How the devices in use are watched, or will be, once they are used.
[[nodiscard]] TUTTI_EXPORT Mode mode();

/// Races found by this process so far, whatever became of the reports. One pair of calls counts once.
[[nodiscard]] TUTTI_EXPORT std::uint64_t report_count() noexcept;
/// `callback` gets each report, before the mode has its effect, on the thread that queues the second access;
/// it may call the library, and must not throw. An empty one takes it away. Thread-safe.
TUTTI_EXPORT void set_callback(std::function<void(const Report&)> callback);

/// How work uses memory.
enum class Use : std::uint8_t { read, write, read_write };

/// Declares what a kernel of the program's own accesses that is queued on `stream` next: the sanitizer sees
/// launches of the library's only. `label` names it in reports. Memory may be of a device or pinned. In mode
/// `error` throws Error(invalid_argument) if that is a race; the kernel should not be launched then. While
/// the stream is being captured, it counts as an access of the graph. Nothing where the sanitizer is off.
TUTTI_EXPORT void access(const Stream& stream, const void* address, std::size_t bytes, Use use,
                         std::string_view label);
/// The same for a tensor's elements.
TUTTI_EXPORT void access(const Stream& stream, const TensorView& tensor, Use use, std::string_view label);
/// The same for what the calling thread itself does now with pinned memory.
TUTTI_EXPORT void host_access(const void* address, std::size_t bytes, Use use, std::string_view label);

/// Declares an order that the library has not made: what is queued later on `later` follows what has been
/// queued so far on `earlier`. For events that the program records and waits for past the library.
TUTTI_EXPORT void declare_order(const Stream& earlier, const Stream& later);
/// Declares that the host has waited for what has been queued so far on `stream`.
TUTTI_EXPORT void declare_wait(const Stream& stream);

}  // namespace tutti::stream_sanitizer
