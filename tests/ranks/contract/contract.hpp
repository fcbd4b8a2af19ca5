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
  bool is_in_short = false;                        ///< one of `short_contract`
};
std::ostream& operator<<(std::ostream& stream, const Rule& rule);

/// All rules. They hold for any number of ranks and members, on any devices.
[[nodiscard]] const std::vector<Rule>& contract();

/// A few of them, which between them make calls of every kind: for ranks that have come together in a way of
/// their own and then do what others do, who are held to all.
[[nodiscard]] std::vector<Rule> short_contract();

/// For an exchange of one rank.
void refuses_devices_it_cannot_take(Exchange& exchange);

}  // namespace tutti::test::ranks
