// SPDX-License-Identifier: Apache-2.0
// Calls of which the last part fails: what has been queued before goes on, and nobody may get its memory.

#include "support/collectives/exercise.hpp"
#include "support/machines/machines.hpp"
#include "support/stream_gate.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/memory.hpp"
#include "tutti/persistent.hpp"

#include <optional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {
namespace {

using virtual_devices::FaultKind;
using virtual_devices::Operation;

constexpr std::int64_t count = 1 << 18;

class HalfWay : public testing::Test {
 protected:
  void SetUp() override { boot("island", 3); }
  void TearDown() override { virtual_devices::clear_faults(); }

  static Tensor filled(int device, int value) {
    return full({count}, value, {.dtype = DType::int32, .device = Device(device)});
  }
};

TEST_F(HalfWay, CopiesBetweenDevicesKeepTheirTarget) {
  const Tensor source = filled(0, 7);
  std::optional<Tensor> target = filled(1, 0);
  synchronize_all();
  StreamGate gate(current_stream(0));
  bool has_failed = false;
  // The first event orders the copy behind the target's stream, the second the target's stream behind it.
  for (std::uint64_t skip = 0; skip < 2 && !has_failed; ++skip) {
    const InjectedFault fault({.operation = Operation::create_event, .skip = skip, .count = 1});
    try {
      target->copy_(source);
    } catch (const Error&) {
      has_failed = skip == 1;
    }
  }
  EXPECT_TRUE(has_failed);
  target.reset();
  const Tensor other = filled(1, 1);
  gate.open();
  synchronize_all();
  EXPECT_TRUE(holds(other, 1));
}

TEST_F(HalfWay, PersistentLaunchesKeepTheirMemory) {
  int failures = 0;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::uint64_t skip = i / 2;
    const Operation operation = i % 2 == 0 ? Operation::kernel : Operation::copy;
    SCOPED_TRACE(skip);
    boot("island", 3);
    std::optional<Tensor> source = filled(0, 7);
    std::vector<Tensor> copies{filled(1, 0), filled(2, 0)};
    synchronize_all();
    std::optional<PersistentCollective> persistent = persistent_broadcast(*source, copies);
    StreamGate gate(current_stream(0));
    {
      const InjectedFault fault({.operation = operation, .skip = skip, .count = 1});
      try {
        persistent->launch();
      } catch (const Error&) {
        ++failures;
      }
    }
    gate.open_soon();
    copies.clear();
    source.reset();
    persistent.reset();
    const std::vector<Tensor> others{filled(0, 1), filled(1, 1), filled(2, 1)};
    synchronize_all();
    for (const Tensor& other : others) EXPECT_TRUE(holds(other, 1));
  }
  EXPECT_GT(failures, 0);
}

TEST_F(HalfWay, AGatherToTheHostReportsFailuresOfAllItsDevices) {
  const std::vector<Tensor> inputs{filled(0, 1), filled(1, 2), filled(2, 3)};
  static_cast<void>(gather(inputs, 0, Device::host()));  // links are tested at first use
  synchronize_all();
  for (const Operation operation : {Operation::copy, Operation::kernel}) {
    virtual_devices::inject({.operation = operation, .kind = FaultKind::fail_asynchronously, .device = 2});
  }
  EXPECT_THROW(static_cast<void>(gather(inputs, 0, Device::host())), Error);
}

TEST_F(HalfWay, EmptyCacheGoesOnWithOtherDevices) {
  for (int device = 0; device < 3; ++device) static_cast<void>(filled(device, 1));
  synchronize_all();
  virtual_devices::launch(current_stream(0), "fails", {},
                          [](std::span<void* const>) { throw std::runtime_error("broken"); });
  EXPECT_THROW(empty_cache(), Error);
  for (int device = 0; device < 3; ++device) EXPECT_EQ(memory_reserved(device), 0U) << device;
}

}  // namespace
}  // namespace tutti::test
