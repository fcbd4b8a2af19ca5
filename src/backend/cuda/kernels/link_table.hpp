// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/team_links.hpp"

#include <cstdint>

/// Builds the argument table of the kernel for messages between members, as one blob: the addresses of all
/// windows, the parts, the messages. Everything here runs on the host and needs no GPU.
namespace tutti::backend::cuda {

struct LinkTable : TableBlob {
  std::uint32_t parts_offset = 0;     ///< in bytes from the start of the blob
  std::uint32_t messages_offset = 0;  ///< likewise
};

/// Fills `table` for `task`.
void build_table(const TeamLinks& task, LinkTable& table);

}  // namespace tutti::backend::cuda
