// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/exercise.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/machines/machines.hpp"
#include "tutti/memory.hpp"

#include <functional>

namespace tutti::test {
namespace {

using virtual_devices::Operation;

/// Runs out of memory in the first allocation of a call, then in the second, and so on until it succeeds.
class OutOfMemory : public EveryCollective {
 protected:
  void SetUp() override { boot(); }
  void TearDown() override {
    EveryCollective::TearDown();
    virtual_devices::clear_faults();
  }

  /// Calls `attempt` with ever later refusals; after each failure, checks that memory is as before and calls
  /// `after_failure`. Returns how many attempts failed.
  static int fail_every_allocation(Operation operation, const std::function<void()>& attempt,
                                   const std::function<void()>& after_failure) {
    for (std::uint64_t passed = 0; passed < 200; ++passed) {
      drop_caches();
      const MemoryInUse before = memory_in_use();
      try {
        const InjectedFault fault({.operation = operation, .skip = passed, .count = forever});
        attempt();
        return static_cast<int>(passed);
      } catch (const OutOfMemoryError&) {
        EXPECT_EQ(memory_in_use(), before) << "leaked when allocation " << passed << " failed";
        after_failure();
      }
      if (HasFailure()) return -1;
    }
    ADD_FAILURE() << "still out of memory after 200 allocations";
    return -1;
  }
};
TUTTI_FOR_EVERY_COLLECTIVE(OutOfMemory);

TEST_P(OutOfMemory, OfCallsThatMakeTheirOutputsLeavesNoTrace) {
  const Exercise run = make_exercise(collective(), first_devices(), scaled(70'000));
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<HostArray> expected = run.expect(values);
  const std::vector<Tensor> inputs = make_inputs(run, values);
  synchronize_all();
  const PooledStreams streams;  // whose cache is empty: memory of other streams is not for them
  EXPECT_TRUE(all_hold(run, make(run, inputs), expected));  // what is made once per process is made now

  std::vector<Tensor> results;
  const auto check_next_call = [&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(read(inputs[i]), values[i]);
    EXPECT_TRUE(all_hold(run, make(run, inputs), expected));
  };
  for (const Operation operation : {Operation::allocate_device, Operation::allocate_pinned}) {
    results.clear();
    const int failures = fail_every_allocation(
        operation, [&] { results = make(run, inputs); }, check_next_call);
    EXPECT_TRUE(all_hold(run, results, expected));
    EXPECT_TRUE(operation != Operation::allocate_device || failures > 0) << "outputs need memory";
  }
}

TEST_P(OutOfMemory, LeavesGivenOutputsUntouched) {
  const Exercise run = make_exercise(collective(), first_devices(), scaled(40'000));
  const std::vector<HostArray> values = run.values(test_seed());
  // Strided inputs and outputs may need temporaries, which may fail.
  std::vector<TestTensor> inputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    inputs.emplace_back(values[i], run.inputs[i].device, Placement::gapped);
  }
  std::vector<TestTensor> outputs;
  const auto renew_outputs = [&] {
    outputs.clear();
    for (const Slot& output : run.outputs) {
      outputs.push_back(TestTensor::poisoned(run.dtype, output.sizes, output.device, Placement::gapped));
    }
  };
  renew_outputs();
  synchronize_all();
  const PooledStreams streams;
  write(run, tensors_of(inputs), tensors_of(outputs));

  for (const Operation operation : {Operation::allocate_device, Operation::allocate_pinned}) {
    renew_outputs();
    fail_every_allocation(
        operation, [&] { write(run, tensors_of(inputs), tensors_of(outputs)); },
        [&] {
          for (const TestTensor& output : outputs) EXPECT_TRUE(output.untouched()) << "half written";
          for (const TestTensor& input : inputs) EXPECT_TRUE(input.untouched());
        });
    EXPECT_TRUE(all_hold(outputs, run.expect(values)));
  }
}

TEST_P(OutOfMemory, InTheVeryFirstCallLeavesTheLibraryUsable) {
  int failures = 0;
  int failures_before = -1;
  for (std::uint64_t passed = 0; failures != failures_before; ++passed) {
    failures_before = failures;
    boot("island", 3);
    const Exercise run = make_exercise(collective(), first_devices(), 300);
    const std::vector<HostArray> values = run.values(passed);
    const std::vector<Tensor> inputs = make_inputs(run, values);
    drop_caches();
    for (const Operation operation : {Operation::allocate_pinned, Operation::allocate_device}) {
      try {
        const InjectedFault fault({.operation = operation, .skip = passed, .count = forever});
        EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
      } catch (const Error& error) {
        // Peer access that could not be tested for want of memory is not used, which a bound P2P may report.
        const bool is_expected =
            error.code() == ErrorCode::out_of_memory ||
            (error.code() == ErrorCode::unsupported && transport() == TransportKind::p2p);
        EXPECT_TRUE(is_expected) << error.what();
        ++failures;
      }
    }
    EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values))) << "after " << passed << " allocations";
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 0);
}

TEST(BoundedMemory, TellsWhatWasAskedForAndWhatWasThere) {
  boot("island", 2, std::size_t{32} << 20);
  const Tensor source = zeros({16 << 20}, {.dtype = DType::uint8, .device = 0});
  const Tensor ballast = zeros({24 << 20}, {.dtype = DType::uint8, .device = 1});
  try {
    static_cast<void>(broadcast(source, {1}));
    ADD_FAILURE() << "16 MiB fitted beside 24 MiB in 32 MiB";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_GE(error.figures().requested, std::size_t{16} << 20);
    EXPECT_EQ(error.figures().total, std::size_t{32} << 20);
    EXPECT_GE(error.figures().allocated, std::size_t{24} << 20);
  }
  EXPECT_EQ(source.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(16 << 20, 0));
}

TEST(BoundedMemory, ReusesWhatEarlierCallsGaveUp) {
  boot("island", 2, std::size_t{64} << 20);
  const Tensor source = full({10 << 20}, 7, {.dtype = DType::uint8, .device = 0});
  // Forty results of 10 MiB pass through a device of 64 MiB.
  for (int round = 0; round < 40; ++round) {
    const Tensor result = broadcast(source, {1}).front();
    ASSERT_EQ(result.narrow(0, 12'345, 1).item<std::uint8_t>(), 7);
  }
}

}  // namespace
}  // namespace tutti::test
