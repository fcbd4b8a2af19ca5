// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <chrono>
#include <optional>

namespace tutti {

/// For the scope's lifetime, calls of communicators that the calling thread makes wait for other ranks as
/// long as this says, whatever `CommunicatorOptions::patience` is: around a barrier behind which one rank
/// writes a checkpoint, say.
///
/// The ranks that wait are those that need patience: give it to the calls of all ranks, as who loses it first
/// ends the communicator for all. Guards nest: the innermost counts. Use on the thread that created it. Costs
/// nothing beside the calls.
class TUTTI_EXPORT PatienceGuard {
 public:
  /// More than 0, else Error(invalid_argument); more than a year is a year.
  explicit PatienceGuard(std::chrono::milliseconds patience);
  PatienceGuard(const PatienceGuard&) = delete;
  PatienceGuard& operator=(const PatienceGuard&) = delete;
  ~PatienceGuard();

 private:
  std::optional<std::chrono::milliseconds> previous_;
};

}  // namespace tutti
