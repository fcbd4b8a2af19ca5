// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"

#include <iosfwd>
#include <vector>

/// The contract of the collectives between processes, for whatever starts the processes.
namespace tutti::test::ranks {

/// One sentence of the contract. All ranks check it together; each reports by GoogleTest what it sees.
struct Rule {
  const char* name;
  void (*check)(Communicator& communicator);
  Determinism determinism = Determinism::bitwise;  ///< of a communicator that keeps it on all devices
};
std::ostream& operator<<(std::ostream& stream, const Rule& rule);

/// All rules. They hold for any number of ranks and members, on any devices.
[[nodiscard]] const std::vector<Rule>& contract();

/// For an exchange of one rank.
void refuses_devices_it_cannot_take(Exchange& exchange);

}  // namespace tutti::test::ranks
