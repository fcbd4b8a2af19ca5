// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/collectives/bad_input.hpp"
#include "tutti/communicator.hpp"

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {

/// A call with its operands bound.
using CommunicatorCall = std::function<void(Communicator&)>;

/// One line of the contract's list of bad input, for communicators.
struct BadCall {
  std::string name;
  /// Makes the tensors and returns the call.
  std::function<CommunicatorCall(Scene&)> prepare;
  /// Required parts of the message, as in `BadInput`.
  std::vector<std::string> message;

  friend std::ostream& operator<<(std::ostream& stream, const BadCall& call) { return stream << call.name; }
};

/// Checks that a call is refused as bad input is, and that the communicator has not ended.
void expect_refusal(Communicator& communicator, const BadCall& call);

/// Tests calls of one process's communicator, of devices 0 and 1. It makes all bad calls of a suite, and must
/// carry right calls after each.
class BadCallTest : public testing::TestWithParam<BadCall> {
 protected:
  static void TearDownTestSuite() { communicator.reset(); }
  void SetUp() override;
  static void expect_refusal_and_go_on(const BadCall& call);

 private:
  static inline std::optional<Communicator> communicator;
};

/// Defines one test per line; `lines` is a function that returns a std::vector<BadCall>.
#define TUTTI_BAD_CALL_SUITE(suite, lines)                                                \
  class suite : public ::tutti::test::ranks::BadCallTest {};                              \
  INSTANTIATE_TEST_SUITE_P(Refuses, suite, testing::ValuesIn(lines()),                    \
                           [](const auto& parameters) { return parameters.param.name; }); \
  TEST_P(suite, BeforeAnythingHappens) {                                                  \
    expect_refusal_and_go_on(GetParam());                                                 \
  }

}  // namespace tutti::test::ranks
