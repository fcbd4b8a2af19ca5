// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/abort.hpp"

#include "settings/log.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

std::atomic<bool> is_process_ending{false};

/// Notes from then on that the process ends, before the driver is gone, which has been in use by now.
void note_end_of_process() {
  static const int status = std::atexit([] { is_process_ending.store(true); });
  static_cast<void>(status);
}

}  // namespace

Abort::Abort(const Membership& membership, backend::AbortWord& word, LocalNews& news)
    : membership_(membership), word_(word), news_(news) {
  note_end_of_process();
}

bool Abort::set(ErrorCode code, std::string_view reason) noexcept {
  const bool is_first =
      word_.set(static_cast<std::uint32_t>(membership_.rank()), static_cast<std::uint32_t>(code), reason);
  news_.announce();
  return is_first;
}

void Abort::fail(std::string_view cannot, const backend::Escaped& escaped) noexcept {
  // Threads of communicators that are still there when the process ends find that the driver is gone. Others
  // may want to know why this rank has ended, but nobody wants a warning of it.
  const bool is_last = is_process_ending.load();
  std::array<char, sizeof(backend::AbortReason::bytes)> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "rank {} {}: {}", membership_.rank(),
                                    is_last ? "ends its process" : cannot, escaped.what);
  const std::string_view reason(text.data(), end.out);
  if (set(escaped.code, reason)) has_logged_reason_.store(true);
  // A repeated failure, as of a device that is polled, is logged once.
  if (!has_logged_failure_.exchange(true) && !is_last) log_warning(reason);
}

Error Abort::reason() const {
  const backend::AbortReason& reason = word_.reason();
  return {static_cast<ErrorCode>(reason.code), fmt::format("Communicator: {}", reason.text())};
}

void Abort::require_running() const {
  if (is_set()) throw Error(reason());
}

void Abort::log_reason() noexcept {
  if (!is_set() || is_process_ending.load() || has_logged_reason_.exchange(true)) return;
  const backend::AbortReason& reason = word_.reason();
  if (static_cast<ErrorCode>(reason.code) == ErrorCode::aborted) return;
  try {
    log_warning(fmt::format("Communicator: ended on rank {} of {}: {}", membership_.rank(),
                            membership_.rank_count(), reason.text()));
  } catch (const std::exception&) {
    // Memory is short: who uses the communicator is told.
  }
}

}  // namespace tutti::transport::team
