// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"

#include <iosfwd>
#include <vector>

/// The contract of the collectives between processes, for whatever starts the processes.
namespace tutti::test::ranks {

/// A rule of the contract. All ranks check it together; each reports its findings by GoogleTest.
struct Rule {
  const char* name;
  void (*check)(Communicator& communicator);
  Determinism determinism = Determinism::bitwise;  ///< of a communicator that keeps it on all devices
  bool is_in_short = false;                        ///< one of `short_contract`
  bool is_of_all_operations = false;               ///< tries every operation of every element type
};
std::ostream& operator<<(std::ostream& stream, const Rule& rule);

/// Returns all rules. They hold for any number of ranks and members, on any devices.
[[nodiscard]] const std::vector<Rule>& contract();

/// Returns all rules but those that try every operation of every element type, which take minutes under
/// sanitizers.
[[nodiscard]] std::vector<Rule> contract_of_few_operations();

/// Returns a few of them, which between them make calls of every kind: for ranks that are started in a
/// special way but then behave like others, which are held to all.
[[nodiscard]] std::vector<Rule> short_contract();

/// Checks the refusal of devices on an exchange of one rank.
void refuses_devices_it_cannot_take(Exchange& exchange);

}  // namespace tutti::test::ranks
