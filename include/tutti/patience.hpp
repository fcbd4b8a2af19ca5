// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <chrono>
#include <optional>

namespace tutti {

/// Overrides `CommunicatorOptions::patience` for the scope's lifetime, for calls of communicators that the
/// calling thread makes. It is useful, for instance, around a barrier for which other ranks are late because
/// they write a checkpoint.
///
/// The waiting ranks need the patience, and the first one to give up ends the communicator for all: so use a
/// guard on all ranks. Guards nest: the innermost counts. Destroy a guard on the thread that created it.
/// Costs nothing beyond the calls.
class TUTTI_EXPORT PatienceGuard {
 public:
  /// Takes the longest wait, more than 0, else throws Error(invalid_argument); more than a year counts as a
  /// year.
  explicit PatienceGuard(std::chrono::milliseconds patience);
  PatienceGuard(const PatienceGuard&) = delete;
  PatienceGuard& operator=(const PatienceGuard&) = delete;
  ~PatienceGuard();

 private:
  std::optional<std::chrono::milliseconds> previous_;
};

}  // namespace tutti
