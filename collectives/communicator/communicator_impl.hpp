// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fork_mark.hpp"
#include "collectives/communicator/team_context.hpp"
#include "transport/team/team.hpp"
#include "tutti/communicator.hpp"

#include <chrono>
#include <memory>
#include <vector>

namespace tutti {

/// The parts of a communicator, from its options to its end.
class CommunicatorCollectives::Impl {
 public:
  /// Makes a communicator. `beside`: inside a call of another communicator.
  Impl(Exchange& exchange, const CommunicatorOptions& options, bool beside)
      : context(std::make_unique<collectives::TeamContext>(exchange, checked(exchange, options, beside))) {}
  /// Makes a communicator of this process alone.
  explicit Impl(const CommunicatorOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// Throws what the constructor throws for bad options.
  static void check(const CommunicatorOptions& options) { static_cast<void>(settings(options)); }

  /// Returns true in a forked child, which has none of the threads; the team is its parent's.
  [[nodiscard]] bool is_forked_off() const noexcept { return fork_mark_.is_in_child(); }

  /// Returns the options with which it was made, for another one like it.
  [[nodiscard]] CommunicatorOptions options() const;
  /// Before ranks go on as another communicator: if this one runs, waits for its calls on all ranks, for
  /// `longest` at most. If it has ended, waits a moment for what is left of them on the streams, and takes
  /// the failures of this: the caller knows. Returns true if it runs and none of its work is under way. The
  /// lock of the team's calls must be held.
  [[nodiscard]] bool settle_calls(std::chrono::milliseconds longest);

  std::unique_ptr<collectives::TeamContext> context;

 private:
  /// Releases symmetric memory, and waits for that. Returns false if kernels may still use it later.
  [[nodiscard]] bool end_symmetric_memory();
  /// Waits until the work of this rank's calls, which uses the shared memory, is done. Returns false if some
  /// of it may still run later.
  [[nodiscard]] bool end_work_of_calls();
  /// Waits for all work of the devices, as launches of graphs may be queued anywhere. After `longest` the
  /// communicator ends for the reason, and with it what the launches wait for.
  void end_launches(std::chrono::milliseconds longest, const char* reason);
  /// Takes the failures of work that failed because the team was ended. Virtual devices would otherwise
  /// report them in a later call.
  void take_failures();
  static std::vector<Device> checked_devices(const CommunicatorOptions& options);
  /// Returns `settings`. If it throws, tells the error to the other ranks, which wait for this one.
  static transport::team::Team::Settings checked(Exchange& exchange, const CommunicatorOptions& options,
                                                 bool beside);
  /// Returns `settings`, after freeing windows of earlier communicators, whose memory this one may need.
  static transport::team::Team::Settings prepared(const CommunicatorOptions& options);
  static transport::team::Team::Settings settings(const CommunicatorOptions& options);

  const ForkMark fork_mark_;
};

/// Gives the rest of the library access to a communicator's parts.
struct CommunicatorAccess {
  [[nodiscard]] static collectives::TeamContext& context(Communicator& communicator) {
    return *communicator.impl().context;
  }
};

}  // namespace tutti
