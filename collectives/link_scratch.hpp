// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/arguments.hpp"
#include "transport/rounds/link_launcher.hpp"
#include "transport/team/links.hpp"
#include "tutti/message.hpp"
#include "tutti/tensor.hpp"

#include <compare>
#include <cstddef>
#include <vector>

namespace tutti::collectives {

/// One side of a message in a batch.
struct LinkItem {
  Message message;
  Name name;
  std::size_t local;  ///< whose side it is
  Tensor dense;       ///< its tensor, or a stand-in
};

/// Two members of this process, of which one sends to the other.
struct Crossing {
  std::size_t sender;
  std::size_t receiver;
  friend auto operator<=>(const Crossing&, const Crossing&) = default;
};

/// What one batch of messages fills and the next one fills again.
struct LinkScratch {
  std::vector<LinkItem> items;
  std::vector<Crossing> crossings;
  std::vector<transport::team::LinkHalf> halves;         ///< of what goes to other ranks or comes from them
  std::vector<transport::team::LinkTransfer> transfers;  ///< likewise
};

}  // namespace tutti::collectives
