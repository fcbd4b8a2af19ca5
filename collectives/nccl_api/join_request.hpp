// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/configuration.hpp"
#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/device.hpp"
#include "tutti/nccl_api.h"

#include <memory>
#include <optional>

namespace tutti::nccl_api {

class Clique;

/// One rank that is to become part of a new communicator.
struct Joining {
  ncclComm_t* result = nullptr;  ///< where the program expects its handle
  MeetingAddress address{};
  int ranks = 1;
  int rank = 0;
  Device device{};
  Configuration configuration{};
  Need need = Need::none;
  Purpose purpose = Purpose::make;
  std::shared_ptr<Clique> parent{};  ///< of a rank of a communicator that grows: that one
  bool is_split = false;             ///< becomes part of a communicator that is split

  /// Returns the interface's function by which the rank joins.
  [[nodiscard]] const char* function() const noexcept {
    if (is_split) return "ncclCommSplit";
    return purpose == Purpose::make ? "ncclCommInitRank" : "ncclCommGrow";
  }
  /// Returns whether the others of its meeting come at the same time, and wait in vain if it does not.
  [[nodiscard]] bool is_awaited() const noexcept { return is_split || parent != nullptr; }
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

/// One rank's part in the growth of a communicator.
struct Growing {
  ncclComm_t comm = nullptr;
  int ranks = 1;                          ///< of the communicator that is made
  std::optional<MeetingAddress> given{};  ///< what the program has given as unique id
  ncclComm_t* result = nullptr;
  Configuration configuration{};
  Need need = Need::none;
  MeetingAddress* found = nullptr;  ///< where it is written where the new ranks come
};

}  // namespace tutti::nccl_api
