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

/// Where ranks are, as far as memory goes: those of one host can share it.
struct Places {
  std::vector<std::string> hosts;  ///< by rank; what the rank says, and more where such ranks are told apart
  std::string reason;              ///< why any are, in a sentence; empty if none are
  /// Ranks of this host hand memory to one another by this, and keep it for as long as they do: its name goes
  /// with it.
  std::shared_ptr<DescriptorPort> port;
};

/// Ranks that call themselves of one host, by `names`, try whether each can open the others' memory; those
/// that cannot are taken to be on different hosts. Collective over the exchange; all come to the same places.
[[nodiscard]] Places places_of(Exchange& exchange, std::vector<std::string> names);

/// Which of `names`, and of those alike, go together: `reaches(a, b)` says whether a can open b's memory.
/// Those that go together get a name of their own, after the first of them, unless that is the first of its
/// name.
[[nodiscard]] std::vector<std::string> told_apart(
    std::vector<std::string> names, const std::function<bool(std::size_t, std::size_t)>& reaches);

}  // namespace tutti::transport::team
