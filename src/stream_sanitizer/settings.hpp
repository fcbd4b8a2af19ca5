// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream_sanitizer_reports.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace tutti::stream_sanitizer {

/// Stores the program's settings, whichever devices are in use.
class Settings {
 public:
  [[nodiscard]] static Mode mode() noexcept { return chosen.load(std::memory_order_relaxed); }
  static void set_mode(Mode mode) noexcept { chosen.store(mode); }
  /// Decides when devices are started: if the program has not chosen a mode, the environment's holds. Returns
  /// true if devices are to be watched.
  [[nodiscard]] static bool decide(Mode of_environment) noexcept;
  static void choose(Mode mode) noexcept;

  static void count_report() noexcept { reports.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] static std::uint64_t report_count() noexcept { return reports.load(); }

  using Callback = std::function<void(const Report&)>;
  static void set_callback(Callback callback);
  [[nodiscard]] static std::shared_ptr<const Callback> callback();

 private:
  static inline std::atomic<Mode> chosen{Mode::off};
  static inline std::atomic<bool> is_chosen{false};
  static inline std::atomic<std::uint64_t> reports{0};
  static inline std::mutex callback_mutex;
  static inline std::shared_ptr<const Callback> told;
};

}  // namespace tutti::stream_sanitizer
