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

/// Communicators with one device each, in ranks of one host or of several, that do not wait long for one
/// another, whether others are late or give no sign of life.
namespace tutti::test::ranks {

inline const std::chrono::milliseconds timeout = patient(std::chrono::milliseconds(1500));
/// As messages tell of a time.
inline std::string within(std::chrono::milliseconds time) {
  return fmt::format("within {} ms", time.count());
}
inline const std::string within_timeout = within(timeout);
/// What may come on top: looking around, waking up, on a busy machine.
inline const std::chrono::milliseconds slack = patient(std::chrono::seconds(3));

/// `limit`: for ranks that give no sign of life, and for those that are late.
Communicator make(Exchange& exchange, std::chrono::milliseconds limit = timeout);
/// Ranks that give no sign of life are waited for as `timeout` says, those that are late for much longer.
Communicator make_patient(Exchange& exchange);
[[nodiscard]] Tensor some_tensor(std::int64_t count = 10'000);

/// This rank says that it is on another host than those that give other numbers; before it makes a
/// communicator.
void pretend_host(int host);

/// One of three ranks on so many hosts leaves where the others make a call.
void expect_that_who_leaves_ends_calls(int hosts);
/// Of four ranks on so many hosts some leave before the last one makes a call that they have made.
void expect_that_who_leaves_waits_for_late_ranks(int hosts);
/// Rank 1 of two does not make the call that rank 0 makes, which ends when it has waited for `limit`, and
/// says so; `fragments` besides.
void expect_named_as_missing(Exchange& exchange, Communicator& communicator, std::chrono::milliseconds limit,
                             const std::vector<std::string>& fragments);
/// The communicator comes to be ended, and says so from then on, whatever is called.
void expect_end(Communicator& communicator, ErrorCode code, const std::vector<std::string>& fragments);
void expect_endings(Ranks& ranks, const std::vector<Ending>& expected);
/// Two ranks on so many hosts make communicators and give them up again.
void expect_nothing_left_behind(int hosts);

}  // namespace tutti::test::ranks
