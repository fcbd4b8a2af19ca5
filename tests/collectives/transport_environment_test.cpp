#include "support/collective_test.hpp"
#include "support/errors.hpp"

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
  EXPECT_NE(text.find(from_environment() + " was asked for"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::test
