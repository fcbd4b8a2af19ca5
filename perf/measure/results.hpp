// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/failure.hpp"
#include "perf/report/baseline.hpp"
#include "perf/session/job.hpp"
#include "perf/session/provenance.hpp"
#include "perf/session/timing.hpp"
#include "tutti/topology.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The results of a run, which the table shows and the JSON file keeps.
namespace tutti::perf {

/// The measurement of one operation under one placement.
struct Measurement {
  Timing timing;
  std::optional<std::uint64_t> wrong;  ///< elements; nothing if not checked
  /// The peer's time divided by tutti's in the same placement, in a peer's measurement; above 1 if tutti is
  /// faster. Nothing if one of them is missing or wrong.
  std::optional<double> over_tutti;
  bool is_fastest_peer = false;  ///< of the modes of a peer: the one that tutti is compared with

  std::optional<double> baseline_microseconds;  ///< what the same took in the run that is compared with

  /// Returns the time divided by that of the baseline; above 1 if it is slower now.
  [[nodiscard]] std::optional<double> over_baseline() const noexcept {
    return baseline_microseconds ? std::optional(microseconds() / *baseline_microseconds) : std::nullopt;
  }
  /// Returns the time that the table shows, in microseconds.
  [[nodiscard]] double microseconds() const noexcept { return timing.back_to_back.median; }
};

/// One line of the table.
struct Row {
  int cycle = 1;
  std::string operation;
  std::string peer;       ///< empty: tutti
  std::string peer_mode;  ///< how that was used; empty where there is one way
  std::size_t bytes = 0;
  std::int64_t count = 0;
  std::size_t tensors = 1;
  std::string tensor_list;  ///< --tensors as given
  DType dtype = DType::float32;
  std::optional<ReduceKind> redop;  ///< of what reduces
  int root = 0;                     ///< -1 for operations without one
  int partner = -1;                 ///< destination of a copy; -1 for collectives
  int dim = 0;
  int device_count = 0;
  LaunchForm launch = LaunchForm::eager;
  ResultForm results = ResultForm::given;
  std::string memory{"tutti"};  ///< of operands, as --memory names it; of a peer also its own
  int buffer_sets = 1;
  double bus_factor = 1.0;
  std::string transport;
  std::string algorithm;
  std::chrono::system_clock::time_point finished{};
  std::optional<Measurement> out_of_place;  ///< or returned, as `results` says
  std::optional<Measurement> in_place;
  /// Returns the library of the row: "" for tutti; "nccl R1".
  [[nodiscard]] std::string contender() const { return peer_mode.empty() ? peer : peer + " " + peer_mode; }

  /// Describes the row for people: "broadcast 64K float32 root 0", "nccl R1: sendrecv 1M float32 root 0 to
  /// 1".
  [[nodiscard]] std::string in_words() const;
  /// Returns the main measurement of the row: out of place if there is one, otherwise in place.
  [[nodiscard]] const std::optional<Measurement>& leading() const noexcept {
    return out_of_place ? out_of_place : in_place;
  }
  [[nodiscard]] std::uint64_t wrong() const noexcept;
  [[nodiscard]] bool is_checked() const noexcept { return leading() && leading()->wrong.has_value(); }
};

/// Compares a peer's rows of one case with tutti's, and marks the fastest correct one in each placement.
void compare_with_peers(const Row& row, std::vector<Row>& peer_rows) noexcept;

/// Returns the bandwidth in gigabytes (10^9) per second; nothing if no bytes go from device to device.
[[nodiscard]] std::optional<double> algorithm_bandwidth(const Row& row,
                                                        const Measurement& measurement) noexcept;
[[nodiscard]] std::optional<double> bus_bandwidth(const Row& row, const Measurement& measurement) noexcept;

/// A case that was asked for and not measured, and the reason.
struct Skipped {
  enum class Cause : std::uint8_t {
    refused,        ///< no transport, or no peer, can do it
    too_small,      ///< less than the operation moves at least
    out_of_memory,  ///< it might be done with more
  };
  std::string what;
  std::string reason;
  Cause cause = Cause::refused;
};
inline constexpr Named<Skipped::Cause> cause_names[] = {{"refused", Skipped::Cause::refused},
                                                        {"too_small", Skipped::Cause::too_small},
                                                        {"out_of_memory", Skipped::Cause::out_of_memory}};

struct Results {
  Provenance provenance;  ///< of rank 0
  Topology topology;      ///< likewise
  Job job;
  int device_count = 0;   ///< that take part, of all ranks
  int devices_shown = 0;  ///< the first of `topology`: those that take part, as far as it has them
  std::string peer;       ///< name and version of the peer; empty without one
  std::vector<std::string> peer_modes;  ///< each with what it means
  std::vector<Row> rows;
  std::vector<Skipped> skipped;
  std::optional<Baseline> baseline;  ///< that rows are compared with; of the rank that prints
  bool interrupted = false;
  std::string failure;  ///< what ended the run early; empty: nothing did

  /// Returns true if any results have been checked: not if checks are off, nor if only barriers were
  /// measured.
  [[nodiscard]] bool are_any_checked() const noexcept;
  /// Returns the number of wrong elements in all rows, including peers'.
  [[nodiscard]] std::uint64_t wrong() const noexcept;
  /// Returns the number of wrong elements in tutti's rows.
  [[nodiscard]] std::uint64_t own_wrong() const noexcept;
  /// Lists the libraries with wrong elements and their numbers, such as "tutti 3, nccl R2 4096"; empty if
  /// there are none.
  [[nodiscard]] std::string who_is_wrong() const;
  /// Returns the average of tutti's rows, over both placements of those that have both.
  [[nodiscard]] std::optional<double> average_bus_bandwidth() const noexcept;
  /// Returns the number of cases that were left out for lack of memory.
  [[nodiscard]] std::size_t out_of_memory() const noexcept;
};

/// Returns the exit status of a run that has come to its end: whether the results are correct, and if not,
/// whose are wrong.
[[nodiscard]] ExitStatus status_of(const Results& results) noexcept;

}  // namespace tutti::perf
