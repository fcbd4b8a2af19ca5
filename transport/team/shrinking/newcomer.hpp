// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_memory.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/shrinking/entrance.hpp"
#include "transport/team/shrinking/survivor_agreement.hpp"
#include "tutti/exchange.hpp"

#include <functional>

namespace tutti::transport::team {

/// The part of a process that is to become a rank: by its ticket, it agrees with the ranks that let it in.
class Newcomer {
 public:
  /// Maps the ranks' memory. Throws Error(invalid_argument) if they are of another build, and
  /// Error(unsupported) if the memory cannot be opened, as on another host.
  explicit Newcomer(const Ticket& ticket);
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;
  /// Frees its place in the agreement for others.
  ~Newcomer();

  /// Agrees, as `SurvivorAgreement::run` does. Returns false if enough others had come. `wait_elsewhere` is
  /// called again and again while it waits.
  [[nodiscard]] bool run(const std::function<void()>& wait_elsewhere,
                         const std::function<void(Exchange&)>& make, const std::function<void()>& discard);

 private:
  const Ticket ticket_;
  const SharedMemory memory_;
  const SharedState state_;
};

}  // namespace tutti::transport::team
