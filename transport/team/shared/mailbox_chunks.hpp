// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/shared/rank_status.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::transport::team {

/// Calls `exchange(chunk, offset)` for the chunks of `mine` that fit into a mailbox, in order: at least once,
/// because ranks that have nothing to say meet, too.
template <class ExchangeChunk>
void for_each_mailbox_chunk(std::span<const std::byte> mine, const ExchangeChunk& exchange) {
  std::size_t offset = 0;
  do {
    const std::size_t bytes = std::min(mine.size() - offset, Mailbox::capacity);
    exchange(mine.subspan(offset, bytes), offset);
    offset += bytes;
  } while (offset < mine.size());
}

}  // namespace tutti::transport::team
