// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/failure.hpp"
#include "perf/processes/launched_as.hpp"
#include "tutti/communicator.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tutti::perf {

/// The processes that measure together: one alone, or those a launcher started.
///
/// All of them call everything here together, in the same order; nothing returns before all have called. If
/// one fails meanwhile, in `together`, all others leave what they are in and throw as well.
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Returns true if a launcher started them: then even a single one is a rank.
  [[nodiscard]] virtual bool are_ranks() const = 0;
  /// Returns true if MPI has been initialised.
  [[nodiscard]] virtual bool have_mpi() const { return false; }
  [[nodiscard]] double milliseconds_since_start() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

  virtual void barrier() = 0;
  /// Every rank's, in order, on all of them.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& mine) = 0;
  /// Returns the largest of all ranks' values; `smallest` returns the smallest, `sum` the sum.
  [[nodiscard]] double largest(double value);
  [[nodiscard]] double smallest(double value) { return -largest(-value); }
  [[nodiscard]] std::uint64_t sum(std::uint64_t value);

  /// Frees ranks that wait for this one, which has failed: with what.
  using Release = std::function<void(const Failure&)>;
  /// Runs `work` on every rank. If it throws on some, all throw the cause, named with its rank, as what it
  /// was: UsageError, Interrupted or Error. `release` is called where `work` itself has failed, other than
  /// with Error(unsupported), which all ranks come to by themselves.
  virtual void together(const std::function<void()>& work, const Release& release) = 0;
  void together(const std::function<void()>& work) { together(work, {}); }

  /// Called, if not empty, where the ranks cannot agree on how to end, as when one is lost: it keeps what
  /// there is. The process ends right after it. Launchers allow a second.
  using LastAct = std::function<void(const Failure&)>;
  virtual void set_last_act(LastAct /*last_act*/) {}

  /// Between the ranks; nullptr where there are none.
  [[nodiscard]] virtual std::unique_ptr<Communicator> make_communicator(
      const CommunicatorOptions& options) = 0;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Gathers every rank's values, in order of ranks, on all of them. All ranks have the same count. Collective.
template <class Value>
[[nodiscard]] std::vector<std::vector<Value>> gather_values(std::span<const Value> mine,
                                                            Processes& processes) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::string bytes(mine.size_bytes(), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<Value>> by_rank;
  for (const std::string& other : processes.gather(bytes)) {
    std::vector<Value>& values = by_rank.emplace_back(mine.size());
    std::memcpy(values.data(), other.data(), bytes.size());
  }
  return by_rank;
}

/// Makes the `Processes` of one process that was started alone.
[[nodiscard]] std::unique_ptr<Processes> make_single_process();
/// Initialises MPI and, at its end, finalises it. Throws UsageError without MPI, or where the library sees
/// other processes than the launcher started.
[[nodiscard]] std::unique_ptr<Processes> make_mpi_processes(const LaunchedAs& launched);
/// Brings those together that torchrun or Slurm has started, as their environment tells. Throws UsageError
/// for what that has wrong, and Error where they do not come together, with the rank that has seen it.
[[nodiscard]] std::unique_ptr<Processes> make_tcp_processes();

}  // namespace tutti::perf
