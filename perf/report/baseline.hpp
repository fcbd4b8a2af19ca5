// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tutti::perf {

struct Job;
struct Options;
struct Results;
struct Row;
enum class OverRanks : std::uint8_t;

/// The times of an earlier run, which a run is compared with.
class Baseline {
 public:
  /// Reads the file of -J that `options` name. Throws UsageError if it cannot be read, is something else, or
  /// combines the ranks' times in another way. If a case was measured several times (-N), its time is the
  /// median.
  explicit Baseline(const Options& options);

  /// Stores the earlier time in each measurement of the row. It is the time of the same operation, type,
  /// reduction, size, tensors, root, dimension, placement, form of launch and results, devices, ranks and
  /// peer.
  void compare(Row& row, const Job& job);

  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// Returns when and for which commit the baseline was measured, such as "2026-11-24T22:26Z, commit
  /// 1a2b3c4".
  [[nodiscard]] const std::string& about() const noexcept { return about_; }
  /// Returns by how many per cent a time may be slower.
  [[nodiscard]] double tolerance() const noexcept { return tolerance_; }
  /// Returns how many of the baseline's times have not been compared with anything.
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

/// The outcome of a comparison, for results that have a baseline: the times that have been compared, or could
/// not be.
struct BaselineVerdict {
  struct Change {
    std::string what;  ///< "broadcast 64K float32 root 0 in place"
    double microseconds = 0.0;
    double before = 0.0;
    [[nodiscard]] double percent() const noexcept { return 100.0 * (microseconds / before - 1.0); }
  };
  std::size_t compared = 0;
  std::vector<Change> slower;            ///< of tutti's, by more than the tolerance; the worst first
  std::vector<std::string> unaccounted;  ///< which the baseline does not have

  /// Returns true if times have been compared and none is slower. A comparison of nothing is not passed.
  [[nodiscard]] bool is_passed() const noexcept { return compared > 0 && slower.empty(); }
};
[[nodiscard]] BaselineVerdict compare_with_baseline(const Results& results);

/// Formats the comparison for the foot of the table, in whole lines.
[[nodiscard]] std::string format_baseline(const Results& results);
/// Describes a failed comparison in a line: how many times are slower, and which one most, or that none could
/// be compared. Empty if the comparison is passed.
[[nodiscard]] std::string complaint_of_baseline(const Results& results);

/// Formats a time over that of the baseline in per cent: "+2.1".
[[nodiscard]] std::string format_change(double over_baseline);

}  // namespace tutti::perf
