// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

/// Makes communicators with one device each, in ranks of one host or of several, with short limits for
/// waiting, whether others are late or give no sign of life.
namespace tutti::test::ranks {

inline const std::chrono::milliseconds timeout = patient(std::chrono::milliseconds(1500));
/// Formats a time as messages do.
inline std::string within(std::chrono::milliseconds time) {
  return fmt::format("within {} ms", time.count());
}
inline const std::string within_timeout = within(timeout);
/// Allowance for detection and wake-up on a busy machine.
inline const std::chrono::milliseconds slack = patient(std::chrono::seconds(3));

/// Makes a communicator with `limit` for ranks that give no sign of life and for late ones.
Communicator make(Exchange& exchange, std::chrono::milliseconds limit = timeout);
/// Makes a communicator that waits `timeout` for ranks that give no sign of life, and much longer for late
/// ones.
Communicator make_patient(Exchange& exchange);
[[nodiscard]] Tensor some_tensor(std::int64_t count = 10'000);

/// Makes this rank claim to be on another host than ranks with other numbers. Call it before making a
/// communicator.
void pretend_host(int host);

/// Checks that calls end if one of three ranks on so many hosts leaves before it makes them.
void expect_that_who_leaves_ends_calls(int hosts);
/// Checks that a late rank can complete a call that the others, of four ranks on so many hosts, have made
/// before they left.
void expect_that_who_leaves_waits_for_late_ranks(int hosts);
/// Checks rank 0's error if rank 1 of two does not make its call: the call ends after `limit`, and its
/// message contains `fragments`.
void expect_named_as_missing(Exchange& exchange, Communicator& communicator, std::chrono::milliseconds limit,
                             const std::vector<std::string>& fragments);
/// Waits until the communicator has ended, and checks that every later call reports that.
void expect_end(Communicator& communicator, ErrorCode code, const std::vector<std::string>& fragments);
void expect_endings(Ranks& ranks, const std::vector<Ending>& expected);
/// Checks that communicators of two ranks on so many hosts leave nothing behind.
void expect_nothing_left_behind(int hosts);

}  // namespace tutti::test::ranks
