// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/configuration.hpp"
#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/device.hpp"
#include "tutti/nccl_api.h"

namespace tutti::nccl_api {

/// One rank that is to become part of a new communicator.
struct Joining {
  ncclComm_t* result = nullptr;  ///< where the program expects its handle
  MeetingAddress address{};
  int ranks = 1;
  int rank = 0;
  Device device{};
  Configuration configuration{};
  Need need = Need::none;

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

}  // namespace tutti::nccl_api
