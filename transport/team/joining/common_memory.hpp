// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor_port.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Groups ranks into hosts by what memory they can share.
struct Places {
  std::vector<std::string>
      hosts;           ///< by rank; the rank's own name, with a suffix where ranks of one name are told apart
  std::string reason;  ///< why ranks are told apart, in a sentence; empty if none are
  /// The port over which ranks of this host pass memory to one another; it must live as long as they do.
  std::shared_ptr<DescriptorPort> port;
};

/// Finds out which ranks that name the same host in `names` can open each other's memory; those that cannot
/// are taken to be on different hosts. Collective over the exchange; the result is the same on all ranks.
[[nodiscard]] Places places_of(Exchange& exchange, std::vector<std::string> names);

/// Splits ranks with equal `names` into groups that share memory: `reaches(a, b)` says whether a can open b's
/// memory. Each group but the first of a name gets a name of its own, after its first rank.
[[nodiscard]] std::vector<std::string> told_apart(
    std::vector<std::string> names, const std::function<bool(std::size_t, std::size_t)>& reaches);

}  // namespace tutti::transport::team
