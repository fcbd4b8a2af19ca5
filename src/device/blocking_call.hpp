// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/sync_debug.hpp"

#include <atomic>
#include <string_view>

namespace tutti {

/// The scope of a call of the library that may block its thread until a device has made progress. At its
/// beginning it warns or throws as the mode of `set_sync_debug_mode` says; only a thread's outermost scope
/// does.
class BlockingCall {
 public:
  /// Throws Error(unsupported) in the mode `error`; construct it before the call does anything.
  explicit BlockingCall(std::string_view function) {
    if (debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::none && depth == 0) announce(function);
    ++depth;
  }
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;
  ~BlockingCall() { --depth; }

  /// Warns without ever throwing; for destructors.
  static void warn(std::string_view function) noexcept {
    if (debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::none && depth == 0)
      announce_in_log(function);
  }

 private:
  friend void set_sync_debug_mode(SyncDebugMode mode);
  friend SyncDebugMode get_sync_debug_mode() noexcept;

  static void announce(std::string_view function);
  static void announce_in_log(std::string_view function) noexcept;

  static inline std::atomic<SyncDebugMode> debug_mode{SyncDebugMode::none};
  static inline thread_local constinit int depth = 0;
};

/// Does what making a BlockingCall does; for components, which have no such state of their own.
TUTTI_EXPORT void announce_blocking(std::string_view function);
/// Does what `BlockingCall::warn` does; for components, too.
TUTTI_EXPORT void warn_of_blocking(std::string_view function) noexcept;

}  // namespace tutti
