// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/persistent.hpp"
#include "tutti/stream.hpp"

#include <functional>
#include <string>

namespace tutti {

/// The work that a persistent collective launches.
class PersistentCollective::Impl {
 public:
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  virtual ~Impl() = default;

  /// Launches the call on a stream of `home_device()`.
  virtual void launch(const Stream& stream) = 0;
  /// Launches the call on a stream for each local member.
  virtual void launch_on(StreamList streams) = 0;
  [[nodiscard]] virtual int home_device() const noexcept = 0;
  [[nodiscard]] virtual std::string explain() const = 0;
  [[nodiscard]] virtual PlanSummary summary() const = 0;
  /// Returns the calls of a communicator that are bound; empty for other collectives.
  [[nodiscard]] virtual std::function<void()> calls() const { return nullptr; }
  /// Returns how they are bound.
  [[nodiscard]] virtual PersistentOptions options() const { return {}; }
};

}  // namespace tutti
