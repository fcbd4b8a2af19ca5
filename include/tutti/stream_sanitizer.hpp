// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"
#include "tutti/stream_sanitizer_reports.hpp"
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
