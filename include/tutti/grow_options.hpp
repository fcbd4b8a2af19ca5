// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/shrink_options.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

/// Says where processes that are to become ranks meet the ranks of a communicator, over TCP; the same on all
/// of them. Both ends prove that they know the secret and belong to the same job, as in `tutti::tcp`.
struct MeetingPoint {
  std::string address{"127.0.0.1"};  ///< of the ranks' host, by name or number
  int port = 0;                      ///< 1 to 65535
  /// A secret of 16 bytes or more. It may be empty for loopback addresses only; then other users of the host
  /// must be trusted.
  std::string secret{};
  std::string job{};  ///< tells apart jobs that have the same secret
};

/// Options of `Communicator::grow`; the same on all ranks, except for the timeouts.
struct GrowOptions {
  MeetingPoint meeting_point{};
  int most = 1;  ///< new ranks that are let in, 1 to 16
  /// New ranks that are enough once their timeout has passed, 1 to `most`. Empty: `most`.
  std::optional<int> fewest{};
  /// Longest wait for new ranks to come, once all ranks have called it; then `fewest` are enough. Those that
  /// have come are always let in: 0 takes those that wait already, at an `OpenMeetingPoint`. 0 or more;
  /// empty, or more than `timeout`: `timeout`.
  std::optional<std::chrono::milliseconds> new_rank_timeout{};
  /// Longest wait for ranks to call it and for new ranks to come, and again while they make the communicator.
  /// It begins anew if a new rank is lost meanwhile. More than 0; more than a year counts as a year. Empty:
  /// the communicator's `timeout`.
  std::optional<std::chrono::milliseconds> timeout{};
};

/// Options of `Communicator::replace`; the same on all ranks, except for the timeout.
struct ReplaceOptions {
  MeetingPoint meeting_point{};
  std::vector<int> leaving{};  ///< as `ShrinkOptions::leaving`
  LateRanks late = LateRanks::fail;
  /// As `GrowOptions::timeout`; it also begins anew if another rank is lost.
  std::optional<std::chrono::milliseconds> timeout{};
};

/// Options of `Communicator::join`.
struct JoinOptions {
  MeetingPoint meeting_point{};
  /// Longest wait until ranks let this process in. More than 0; more than a year counts as a year.
  std::chrono::milliseconds timeout{60'000};
  /// A function that the waiting thread calls about every 10 ms until a rank has let this process in. An
  /// exception from it ends the wait.
  std::function<void()> watch{};
};

}  // namespace tutti
