// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "transport/launch/messages.hpp"
#include "transport/rounds/link_launcher.hpp"
#include "transport/team/calls/links.hpp"
#include "tutti/message.hpp"
#include "tutti/tensor.hpp"

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

/// Buffers that each batch of messages fills again.
struct LinkScratch {
  std::vector<LinkItem> items;
  std::vector<transport::team::LinkHalf> halves;         ///< of what goes to other ranks or comes from them
  std::vector<transport::team::LinkTransfer> transfers;  ///< likewise
  std::vector<transport::InsideMessage> inside;          ///< what stays in this process
};

}  // namespace tutti::collectives
