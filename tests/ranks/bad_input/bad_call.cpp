// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"

#include "ranks/contract/checks.hpp"
#include "tutti/topology.hpp"

namespace tutti::test::ranks {

void expect_refusal(Communicator& communicator, const BadCall& call) {
  const auto prepare = [&](Scene& scene) -> std::function<void()> {
    return [&communicator, bad = call.prepare(scene)] { bad(communicator); };
  };
  test::expect_refusal(BadInput{call.name, prepare, call.message});
  EXPECT_TRUE(communicator.is_running());
}

void BadCallTest::SetUp() {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  self_test_peers();  // its operations are not the call's
  if (communicator && communicator->is_running()) return;
  communicator.emplace(CommunicatorOptions{.devices = {0, 1}});
}

void BadCallTest::expect_refusal_and_go_on(const BadCall& call) {
  expect_refusal(*communicator, call);
  const Group group(*communicator);
  check_all_reduce(group, DType::int32, {1000}, false, 1);
  check_scatter_and_gather(group, DType::float32, {5, 6, 7}, 0, 1, 2);
}

}  // namespace tutti::test::ranks
