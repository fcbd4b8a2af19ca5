// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tutti::perf {

struct Job;
struct Options;
struct Row;
enum class OverRanks : std::uint8_t;

/// The times of an earlier run, that a run is compared with.
class Baseline {
 public:
  /// Of what -J has written to the file that `options` name. Throws UsageError if it cannot be read, is
  /// something else, or has times of ranks that became one in another way. Of what was measured several times
  /// (-N) the time is their median.
  explicit Baseline(const Options& options);

  /// Notes in each measurement what the same took before: of the same operation, type, reduction, size,
  /// tensors, root, dimension, placement, form of launch and results, devices and ranks, by the same peer.
  void compare(Row& row, const Job& job);

  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// When it was measured and of which commit, such as "2026-11-24T22:26Z, commit 1a2b3c4".
  [[nodiscard]] const std::string& about() const noexcept { return about_; }
  /// How much slower a time may be, in per cent.
  [[nodiscard]] double tolerance() const noexcept { return tolerance_; }
  /// How many of its times nothing has been compared with.
  [[nodiscard]] std::size_t left_over() const noexcept;

 private:
  void read(const nlohmann::ordered_json& document, OverRanks over_ranks);

  struct Time {
    double microseconds = 0.0;
    bool is_compared = false;
  };

  std::string file_;
  std::string about_;
  double tolerance_;
  std::map<std::string, Time> times_;  ///< of what identifies a measurement
};

}  // namespace tutti::perf
