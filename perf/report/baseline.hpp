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

/// What a comparison comes to, of results that have a baseline: times that have been compared, or would have
/// been.
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

  /// A comparison of nothing says nothing.
  [[nodiscard]] bool is_passed() const noexcept { return compared > 0 && slower.empty(); }
};
[[nodiscard]] BaselineVerdict compare_with_baseline(const Results& results);

/// For the foot of the table, in whole lines.
[[nodiscard]] std::string format_baseline(const Results& results);
/// In a line: how many times are slower, and which the most, or that none could be compared; empty if it is
/// passed.
[[nodiscard]] std::string complaint_of_baseline(const Results& results);

/// "+2.1", in per cent, of a time over that of the baseline.
[[nodiscard]] std::string format_change(double over_baseline);

}  // namespace tutti::perf
