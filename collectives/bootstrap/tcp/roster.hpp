// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tcp {

/// Rank 0's record of which other ranks have come to a meeting, which have left it again, and when.
class Roster {
 public:
  explicit Roster(int size) : ranks_(static_cast<std::size_t>(size)) {}

  enum class Departure : bool { left, gave_up };
  void note_arrival(int rank);
  void note_departure(int rank, Departure departure);
  /// Notes that a process which came as this rank, which may be none of the job's, was refused.
  void note_refusal(int rank, const std::string& reason);

  [[nodiscard]] bool has(int rank) const { return at(rank).is_here; }
  [[nodiscard]] bool is_complete() const { return count_of_those_here_ + 1 == ranks_.size(); }
  /// Returns a number that changes whenever something is noted.
  [[nodiscard]] unsigned version() const noexcept { return version_; }
  /// Says of each rank that is missing why it is: "rank 2 has not come to PLACE; rank 1 came 5.0 s ago and
  /// left 4.0 s ago".
  [[nodiscard]] std::string absences(std::string_view place) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Entry {
    bool is_here = false;
    Departure departure = Departure::left;
    std::optional<Time> came;  ///< for the last time
    Time left;
    std::string refusal;
  };

  [[nodiscard]] const Entry& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Entry& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::vector<int> those_never_here() const;
  [[nodiscard]] static std::string departure_of(int rank, const Entry& entry);

  std::vector<Entry> ranks_;  ///< with an unused one of rank 0
  std::size_t count_of_those_here_ = 0;
  unsigned version_ = 0;
  std::string other_refusal_;  ///< the last of one who came as none of these
};

}  // namespace tutti::tcp
