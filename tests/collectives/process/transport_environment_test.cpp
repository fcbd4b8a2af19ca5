// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/errors.hpp"
#include "tutti/communicator.hpp"

#include <cstdlib>
#include <string>

/// Runs with `TUTTI_TRANSPORT` set: the variable decides where the call leaves the choice open.
namespace tutti::test {
namespace {

std::string from_environment() {
  const char* text = std::getenv("TUTTI_TRANSPORT");
  return text != nullptr ? text : "";
}

class TransportEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    ASSERT_FALSE(from_environment().empty()) << "run this test with TUTTI_TRANSPORT set";
  }
  static std::string carrier_of(TransportKind transport) {
    const HostArray values = random_bits(DType::float32, {1000}, test_seed());
    const std::vector<Tensor> results =
        broadcast(make_tensor(values, 0), first_devices(), {.transport = transport});
    EXPECT_TRUE(holds(results.at(1), 1, values));
    return last_plan().transport;
  }
};

TEST_F(TransportEnvironment, DecidesWhereTheCallDoesNot) {
  EXPECT_EQ(carrier_of(TransportKind::automatic), from_environment());
}

TEST_F(TransportEnvironment, GivesWayToTheCall) {
  EXPECT_EQ(carrier_of(TransportKind::staged), "staged");
  EXPECT_EQ(carrier_of(TransportKind::p2p), "p2p");
}

TEST_F(TransportEnvironment, CountsAsAskedForInExplain) {
  const std::string text = explain({.collective = Collective::broadcast, .bytes = 4000});
  EXPECT_NE(text.find(from_environment() + " was asked for (by TUTTI_TRANSPORT)"), std::string::npos) << text;
}

/// Runs where it cannot be had.
class RefusedTransport : public TransportEnvironment {
 protected:
  void SetUp() override {
    TransportEnvironment::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    try {
      static_cast<void>(carrier_of(TransportKind::automatic));
      GTEST_SKIP() << from_environment() << " can be had";
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    }
  }
};

TEST_F(RefusedTransport, OfTheEnvironmentIsNotTakenForTheCalls) {
  const std::string by = "transport is " + from_environment() + " (by TUTTI_TRANSPORT), which ";
  const auto broadcasting = [](TransportKind transport) {
    return [transport] {
      static_cast<void>(broadcast(zeros({1000}, {.device = 0}), first_devices(), {.transport = transport}));
    };
  };
  EXPECT_TRUE(refuses(broadcasting(TransportKind::automatic), ErrorCode::unsupported,
                      {"broadcast: " + by + "cannot carry this call: "}));
  EXPECT_TRUE(
      refuses(broadcasting(parse_transport(from_environment())), ErrorCode::unsupported,
              {"broadcast: transport is " + from_environment() + ", which cannot carry this call: "}));
  const auto joining = [](TransportKind transport) {
    return [transport] {
      const Communicator communicator({.devices = first_devices(), .transport = transport});
    };
  };
  EXPECT_TRUE(refuses(joining(TransportKind::automatic), ErrorCode::unsupported,
                      {"Communicator: " + by + "is not available: "}));
  EXPECT_TRUE(
      refuses(joining(parse_transport(from_environment())), ErrorCode::unsupported,
              {"Communicator: options.transport is " + from_environment() + ", which is not available: "}));
}

}  // namespace
}  // namespace tutti::test
