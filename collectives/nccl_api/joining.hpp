// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/device.hpp"
#include "tutti/nccl_api.h"

#include <vector>

namespace tutti::nccl_api {

/// One rank that is to become part of a new communicator.
struct Joining {
  ncclComm_t* result = nullptr;  ///< where the program expects its handle
  MeetingAddress address{};
  int ranks = 1;
  int rank = 0;
  Device device{};

  /// Says that there is no communicator.
  void give_up() const noexcept { *result = nullptr; }
};

/// One rank's part in the split of a communicator.
struct Splitting {
  ncclComm_t comm = nullptr;
  int color = 0;  ///< `NCCL_SPLIT_NOCOLOR`: the rank becomes part of none
  int key = 0;
  ncclComm_t* result = nullptr;
};

/// Makes the communicators that the ranks join, and returns when all their other ranks have come. Ranks whose
/// numbers follow one another become local members of one communicator of tutti. Throws a `Refusal` if one
/// cannot be made; there is no handle then.
void join(std::vector<Joining> joinings);
/// Makes a communicator of this process's devices alone, and a handle for each.
void join_alone(ncclComm_t* results, const std::vector<Device>& devices);
/// Splits communicators. All local ranks of each are given.
void split(std::vector<Splitting> splittings);
/// Makes a communicator of the ranks that are not in `excluded`, and ends the one that it comes from. Throws
/// a `Refusal` if ranks have been made together.
void shrink(ncclComm_t comm, std::vector<int> excluded, ncclComm_t* result);

/// Returns the content of a unique id. Throws a `Refusal` if it is none of tutti's.
[[nodiscard]] MeetingAddress meeting_of(const ncclUniqueId& id);

}  // namespace tutti::nccl_api
