// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream_sanitizer.hpp"
#include "tutti/tutti.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

inline constexpr std::int64_t sanitized_length = 1024;
inline constexpr std::size_t sanitized_bytes = 4 * sanitized_length;

/// Returns the stream's name as in reports.
[[nodiscard]] inline std::string words_of(const Stream& stream) {
  const std::string words = to_string(stream);
  return words.substr(0, words.find(','));
}

/// Holds two streams of a device, and the sanitizer's reports. The sanitizer has to be on from the start
/// (TUTTI_STREAM_SANITIZER).
class StreamSanitizer : public testing::Test {
 protected:
  StreamSanitizer() {
    for (int device = 0; device < device_count(); ++device) synchronize(device);
    stream_sanitizer::enable(stream_sanitizer::Mode::warn);
    stream_sanitizer::set_callback([this](const stream_sanitizer::Report& report) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
    });
  }
  ~StreamSanitizer() override {
    stream_sanitizer::set_callback({});
    stream_sanitizer::enable(stream_sanitizer::Mode::off);
    for (int device = 0; device < device_count(); ++device) synchronize(device);
  }

  static Tensor made_on(const Stream& stream) {
    const StreamGuard guard(stream);
    return zeros({sanitized_length}, {.device = Device(stream.device())});
  }
  static void fill_on(const Stream& stream, const Tensor& tensor) {
    const StreamGuard guard(stream);
    tensor.fill_(1);
  }
  static void copy_on(const Stream& stream, const Tensor& target, const Tensor& source) {
    const StreamGuard guard(stream);
    target.copy_(source, Blocking::no);
  }
  /// Waits for both streams.
  void settle() const {
    a_.synchronize();
    b_.synchronize();
  }

  [[nodiscard]] testing::AssertionResult is_silent() const {
    if (reports_.empty()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << reports_.front().text;
  }
  /// Checks that there is exactly one report, of this kind, whose sides are on these streams.
  [[nodiscard]] testing::AssertionResult told(stream_sanitizer::RaceKind kind, const std::string& first,
                                              const std::string& second) {
    if (reports_.size() != 1)
      return testing::AssertionFailure() << reports_.size() << " reports" << (is_silent().message());
    report_ = reports_.front();
    if (report_.kind == kind && report_.first.stream == first && report_.second.stream == second)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << report_.text;
  }
  [[nodiscard]] testing::AssertionResult told(stream_sanitizer::RaceKind kind) {
    return told(kind, words_of(a_), words_of(b_));
  }
  [[nodiscard]] testing::AssertionResult misses(std::string_view words) const {
    if (report_.missing.find(words) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << report_.missing << " does not hold " << words;
  }

  const Stream a_{0};
  const Stream b_{0};
  std::mutex mutex_;
  std::vector<stream_sanitizer::Report> reports_;
  stream_sanitizer::Report report_;
};

}  // namespace tutti::test
