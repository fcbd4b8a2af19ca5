// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::perf {

/// The buffers of a case under one placement, several sets of them.
class BufferSets {
 public:
  /// Allocates them, and waits until they can be used. Throws Error(out_of_memory).
  BufferSets(const Operation& operation, const Case& what, Placement placement, int count,
             const Session& session);

  [[nodiscard]] bool of_communicator() const noexcept { return of_communicator_; }
  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  [[nodiscard]] std::vector<Call>& calls() noexcept { return calls_; }
  [[nodiscard]] const Call& call(std::size_t index) const noexcept { return calls_[index % calls_.size()]; }

  /// Writes the inputs of all sets, and waits.
  void fill_all(const Session& session) const;
  /// Makes all outputs wrong, and waits.
  void poison_all(const Session& session) const;
  /// Whether calls have outputs, of whichever process.
  [[nodiscard]] bool have_outputs() const noexcept { return have_outputs_; }
  /// Elements of this process's outputs.
  [[nodiscard]] std::uint64_t count_wrong_in_all() const;

 private:
  void copy_first_to_others(std::vector<Buffer> Call::*buffers, const Session& session) const;

  bool of_communicator_;
  bool have_outputs_;
  std::vector<Call> calls_;
};

}  // namespace tutti::perf
