// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fork_mark.hpp"
#include "collectives/communicator/team_context.hpp"
#include "transport/team/team.hpp"
#include "tutti/communicator.hpp"

#include <memory>
#include <vector>

namespace tutti {

/// The parts of a communicator, from its options to its end.
class CommunicatorCollectives::Impl {
 public:
  /// `beside`: is made in a call of another communicator's.
  Impl(Exchange& exchange, const CommunicatorOptions& options, bool beside)
      : context(std::make_unique<collectives::TeamContext>(exchange, checked(exchange, options, beside))) {}
  /// Makes a communicator of this process alone.
  explicit Impl(const CommunicatorOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// A forked child has none of the threads, and the team is its parent's.
  [[nodiscard]] bool is_forked_off() const noexcept { return fork_mark_.is_in_child(); }

  std::unique_ptr<collectives::TeamContext> context;

 private:
  /// Waits until what this rank's calls have queued, which uses the shared memory, is over. False if some of
  /// it may be still to come.
  [[nodiscard]] bool end_work_of_calls();
  /// Waits for all work of the devices, as launches of graphs may be queued anywhere.
  void end_launches();
  /// Virtual devices keep that work failed because the team was ended, which would be taken for a failure of
  /// what comes next.
  void take_failures();
  static std::vector<Device> checked_devices(const CommunicatorOptions& options);
  /// `settings`. What it throws is told to the other ranks, who wait for this one.
  static transport::team::Team::Settings checked(Exchange& exchange, const CommunicatorOptions& options,
                                                 bool beside);
  /// `settings`, once windows are freed that earlier communicators have left: they may take the memory that
  /// this one needs.
  static transport::team::Team::Settings prepared(const CommunicatorOptions& options);
  static transport::team::Team::Settings settings(const CommunicatorOptions& options);

  const ForkMark fork_mark_;
};

/// Gives the rest of the library what it uses of a communicator.
struct CommunicatorAccess {
  [[nodiscard]] static collectives::TeamContext& context(Communicator& communicator) {
    return *communicator.impl_->context;
  }
};

}  // namespace tutti
