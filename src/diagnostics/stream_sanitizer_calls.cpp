// SPDX-License-Identifier: Apache-2.0
#include "base/enumerators.hpp"
#include "device/runtime.hpp"
#include "settings/environment.hpp"
#include "stream/stream_access.hpp"
#include "stream_sanitizer/settings.hpp"
#include "stream_sanitizer/touches.hpp"
#include "stream_sanitizer/watched_backend.hpp"
#include "tutti/error.hpp"
#include "tutti/stream_sanitizer.hpp"

#include <utility>

namespace tutti::stream_sanitizer {
namespace {

void add_use(Touches& touches, const TensorView& tensor, bool writes) {
  add_strided(touches, static_cast<const std::byte*>(tensor.data()), size_of(tensor.dtype()), tensor.sizes(),
              tensor.strides(), writes);
}

/// `add(writes)` for each of what the use comes to.
template <class Add>
Touches touches_for(Use use, const Add& add) {
  require_enumerator(use, Use::read_write, "stream_sanitizer", "use");
  Touches touches;
  if (use != Use::write) add(touches, false);
  if (use != Use::read) add(touches, true);
  return touches;
}

Touches touches_for(Use use, const void* address, std::size_t bytes) {
  return touches_for(use, [&](Touches& touches, bool writes) {
    add_bytes(touches, static_cast<const std::byte*>(address), bytes, writes);
  });
}

}  // namespace

std::string_view name_of(Mode mode) noexcept {
  switch (mode) {
    case Mode::off:
      return "off";
    case Mode::warn:
      return "warn";
    case Mode::error:
      return "error";
    case Mode::abort:
      return "abort";
  }
  return "unknown";
}

std::string_view name_of(RaceKind kind) noexcept {
  switch (kind) {
    case RaceKind::read_after_write:
      return "read after write";
    case RaceKind::write_after_read:
      return "write after read";
    case RaceKind::write_after_write:
      return "write after write";
    case RaceKind::freed_and_reused:
      return "freed and reused";
    case RaceKind::use_after_free:
      return "use after free";
  }
  return "unknown";
}

void enable(Mode mode) {
  require_enumerator(mode, Mode::abort, "stream_sanitizer::enable", "mode");
  WatchedBackend* const watched = WatchedBackend::current();
  if (watched == nullptr && mode != Mode::off && Runtime::get_if_initialized() != nullptr &&
      Runtime::get().virtual_machine() == nullptr) {
    throw Error(ErrorCode::unsupported,
                "stream_sanitizer::enable: devices are in use without it, expected a call before their first "
                "use, or TUTTI_STREAM_SANITIZER=1 in the environment");
  }
  Settings::choose(mode);
  if (watched != nullptr) watched->watcher().forget_all();
}

void disable() noexcept {
  Settings::choose(Mode::off);
}

Mode mode() {
  if (Runtime::get_if_initialized() == nullptr) {
    static_cast<void>(Settings::decide(Environment::get().stream_sanitizer));
    return Settings::mode();
  }
  return WatchedBackend::current() == nullptr ? Mode::off : Settings::mode();
}

std::uint64_t report_count() noexcept {
  return Settings::report_count();
}

void set_callback(std::function<void(const Report&)> callback) {
  Settings::set_callback(std::move(callback));
}

void access(const Stream& stream, const void* address, std::size_t bytes, Use use, std::string_view label) {
  WatchedBackend* const watched = WatchedBackend::current();
  if (watched == nullptr) return;
  watched->watch(StreamAccess::ref(stream), label, touches_for(use, address, bytes), false, [] {});
}

void access(const Stream& stream, const TensorView& tensor, Use use, std::string_view label) {
  WatchedBackend* const watched = WatchedBackend::current();
  if (watched == nullptr || !tensor.defined()) return;
  const Touches touches =
      touches_for(use, [&](Touches& added, bool writes) { add_use(added, tensor, writes); });
  watched->watch(StreamAccess::ref(stream), label, touches, false, [] {});
}

void host_access(const void* address, std::size_t bytes, Use use, std::string_view label) {
  if (WatchedBackend* const watched = WatchedBackend::current())
    watched->host_touches(label, touches_for(use, address, bytes));
}

void declare_order(const Stream& earlier, const Stream& later) {
  if (WatchedBackend* const watched = WatchedBackend::current())
    watched->declare_order(StreamAccess::ref(earlier), StreamAccess::ref(later));
}

void declare_wait(const Stream& stream) {
  if (WatchedBackend* const watched = WatchedBackend::current())
    watched->declare_wait(StreamAccess::ref(stream));
}

}  // namespace tutti::stream_sanitizer
