// SPDX-License-Identifier: Apache-2.0
#include "settings/environment.hpp"
#include "support/collectives/exercise.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"

#include <map>

namespace tutti::test {
namespace {

using virtual_devices::FaultKind;
using virtual_devices::Operation;

class FailingOperations : public EveryCollective {
 protected:
  void SetUp() override { boot("island", 3); }
  void TearDown() override {
    virtual_devices::clear_faults();
    EveryCollective::TearDown();
  }
};
TUTTI_FOR_EVERY_COLLECTIVE(FailingOperations);

TEST_P(FailingOperations, AreReportedByTheCallThatCouldNotEnqueue) {
  const Exercise run = make_exercise(collective(), first_devices(), 1000);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
  const bool has_one_lane = last_plan().transport == "p2p";  // for so few bytes
  const MemoryInUse before = memory_in_use();

  std::map<Operation, int> failures;
  for (const Operation operation : {Operation::kernel, Operation::copy, Operation::create_event,
                                    Operation::create_stream, Operation::signal}) {
    for (std::uint64_t passed = 0; passed < 60; ++passed) {
      try {
        const InjectedFault fault({.operation = operation, .skip = passed, .count = 1});
        const std::vector<Tensor> results = make(run, inputs);
        break;  // the call has no such operation any more
      } catch (const Error&) {
        ++failures[operation];
      }
      EXPECT_NO_THROW(synchronize_all());
      EXPECT_EQ(memory_in_use(), before);
      ASSERT_TRUE(all_hold(run, make(run, inputs), run.expect(values)))
          << "after operation " << passed << " failed";
    }
  }
  EXPECT_GT(failures[Operation::kernel] + failures[Operation::copy], 0);
  if (Environment::get().signals == SignalChoice::on && has_one_lane) {
    EXPECT_GT(failures[Operation::signal], 0);
  }
}

TEST_P(FailingOperations, SurfaceWithTheirNameWhenTheyFailLater) {
  const Exercise run = make_exercise(collective(), first_devices(), 1000);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));

  int surfaced = 0;
  for (const Operation operation : {Operation::kernel, Operation::copy}) {
    {
      const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
      const InjectedFault fault({.operation = operation, .kind = FaultKind::fail_asynchronously, .count = 1});
      try {
        write(run, inputs, tensors_of(outputs));
        synchronize_all();
      } catch (const Error& error) {
        ++surfaced;
        EXPECT_EQ(error.code(), ErrorCode::device_failure);
        const std::string message = error.what();
        const bool named = message.find("fan_out") != std::string::npos ||
                           message.find("copy") != std::string::npos ||
                           message.find("ordered_reduction") != std::string::npos ||
                           message.find("team_round") != std::string::npos;
        EXPECT_TRUE(named) << message;
        EXPECT_NE(message.find("device"), std::string::npos) << message;
      }
    }
    // The failure was reported once; the process goes on.
    for (int device = 0; device < device_count(); ++device) {
      try {
        synchronize(device);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::device_failure);
      }
    }
    EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
  }
  EXPECT_GT(surfaced, 0);
}

TEST_P(FailingOperations, SlowDevicesDelayButDoNotSpoil) {
  const Exercise run = make_exercise(collective(), first_devices(), 1000);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  for (int device = 0; device < device_count(); ++device) {
    for (const Operation operation : {Operation::kernel, Operation::copy}) {
      virtual_devices::inject({.operation = operation,
                               .kind = FaultKind::delay,
                               .device = device,
                               .count = forever,
                               .delay_microseconds = 500});
    }
    EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values))) << "device " << device << " is slow";
    virtual_devices::clear_faults();
  }
}

}  // namespace
}  // namespace tutti::test
