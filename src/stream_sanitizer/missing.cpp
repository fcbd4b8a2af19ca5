// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/missing.hpp"

#include <fmt/format.h>

namespace tutti::stream_sanitizer {
namespace {

/// Describes what the stream's latest wait was for, if that may have been meant to help.
std::string about_last_wait(const WatchedStream& stream, const Operation& first) {
  if (!stream.last_wait) return "";
  const WaitSeen& wait = *stream.last_wait;
  const std::string waiter = in_words(stream.key.stream, stream.is_default);
  if (!wait.was_recorded) {
    return fmt::format(
        "; the event that {} waited for last had never been recorded, and such a wait does nothing", waiter);
  }
  const std::string on = in_words(wait.recorded_on, wait.is_default);
  return wait.recorded_on == first.stream
             ? fmt::format("; the event that {} waited for last was recorded on {} before the first access",
                           waiter, on)
             : fmt::format("; the event that {} waited for last was recorded on {}, not on {}", waiter, on,
                           first.stream_in_words());
}

}  // namespace

std::string missing_order(const Access& first, const Access& second, const VectorClock& clock,
                          const WatchedStream* stream) {
  const Operation& earlier = *first.operation;
  const std::string earlier_stream = earlier.stream_in_words();
  if (stream == nullptr) {
    return fmt::format("a wait of the host for {}, or for an event recorded there behind the first access",
                       earlier_stream);
  }
  const std::string later_stream = second.operation->stream_in_words();
  const bool follows_some = clock.at(first.line) != 0;
  return fmt::format("a wait of {} for an event recorded on {} behind the first access{}{}", later_stream,
                     earlier_stream,
                     follows_some ? fmt::format(" (of that stream it follows only what came before)") : "",
                     about_last_wait(*stream, earlier));
}

std::string missing_record_stream(const Access& first, const Access& /*second*/) {
  return fmt::format(
      "record_stream({}) on the tensor before it was freed, or a wait of the stream that it was allocated on "
      "for that one",
      first.operation->stream_in_words());
}

std::string missing_after_free() {
  return "an owner that keeps the memory until the work that uses it has been queued";
}

}  // namespace tutti::stream_sanitizer
