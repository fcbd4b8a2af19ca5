// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/stream_order.hpp"

#include "support/collectives/collective_test.hpp"
#include "support/collectives/exercise.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

/// The promises about streams, for every collective alike: an input is read after the work queued before on
/// the current stream of its device and before work queued there later; an output is complete for work queued
/// later.
namespace tutti::test {
namespace {

class StreamOrder : public EveryCollective {
 protected:
  static Exercise exercise(std::int64_t rows = 211) {
    return make_exercise(collective(), shuffled(first_devices(4)), rows);
  }
  static int seeds() { return static_cast<int>(scaled(12)); }
  static void keep_devices_busy() {
    for (const Device device : first_devices(4)) keep_busy(current_stream(device.index()));
  }
  /// Copies on the devices themselves, queued on their current streams.
  static std::vector<Tensor> copies_of(Tensors tensors) {
    std::vector<Tensor> copies;
    for (const Tensor& tensor : tensors) {
      copies.push_back(empty_like(tensor));
      copies.back().copy_(tensor);
    }
    return copies;
  }
  /// Makes calls from several threads, on the streams that are current where `on_streams` runs them, and
  /// looks at all results.
  static void call_from_several_threads(
      const std::function<void(const std::function<void()>& calls)>& on_streams) {
    const Exercise run = exercise(101);
    const auto call = [&](std::uint64_t seed) {
      for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(scaled(10)); ++round) {
        const std::vector<HostArray> values = run.values(seed * 1000 + round);
        std::vector<Tensor> inputs = make_inputs(run, values);
        const std::vector<Tensor> results = make(run, inputs);
        for (const Tensor& input : inputs) input.fill_(0);
        inputs.clear();
        EXPECT_TRUE(all_hold(run, results, run.expect(values))) << "thread " << seed << " round " << round;
      }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 0; seed < 4; ++seed)
      threads.emplace_back([&, seed] { on_streams([&] { call(seed); }); });
    for (std::thread& thread : threads) thread.join();
    synchronize_all();
  }
  /// Where memory lies and how much it is.
  struct Memory {
    Device device;
    std::int64_t bytes = 0;
  };
  static std::vector<Memory> memories_of(const std::vector<TestTensor>& tensors) {
    std::vector<Memory> memories;
    for (const TestTensor& each : tensors) {
      const Tensor& tensor = each.tensor();
      memories.push_back({tensor.device(), static_cast<std::int64_t>(tensor.storage()->bytes())});
    }
    return memories;
  }
  /// Tensors of threes in as much memory, allocated and filled on the default streams, complete.
  static std::vector<Tensor> reuse(const std::vector<Memory>& memories) {
    std::vector<Tensor> reusers;
    for (const Memory& memory : memories) {
      const StreamGuard guard(default_stream(memory.device.index()));
      reusers.push_back(full({memory.bytes}, 3, {.dtype = DType::uint8, .device = memory.device}));
    }
    for (const Memory& memory : memories) default_stream(memory.device.index()).synchronize();
    return reusers;
  }
};
TUTTI_FOR_EVERY_COLLECTIVE(StreamOrder);

TEST_P(StreamOrder, SeesInputsWrittenLate) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise();
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> staged = make_inputs(run, values);
    const std::vector<Tensor> inputs = make_inputs(run, run.values(~seed));
    keep_devices_busy();
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(staged[i]);
    EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
  });
}

TEST_P(StreamOrder, IsNotDisturbedByInputsOverwrittenLater) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise();
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> inputs = make_inputs(run, values);
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    keep_devices_busy();
    write(run, inputs, tensors_of(outputs));
    for (const Tensor& input : inputs) input.fill_(-1);
    EXPECT_TRUE(all_hold(outputs, run.expect(values)));
  });
}

TEST_P(StreamOrder, CompletesOutputsForLaterWork) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise();
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> inputs = make_inputs(run, values);
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    keep_busy(current_stream(run.inputs.front().device.index()));
    write(run, inputs, tensors_of(outputs));
    const std::vector<Tensor> copies = copies_of(tensors_of(outputs));
    for (const TestTensor& output : outputs)
      output.tensor().fill_(-1);  // what follows the copies must not matter
    EXPECT_TRUE(all_hold(run, copies, run.expect(values)));
  });
}

TEST_P(StreamOrder, LetsEarlierWorkOnOutputsFinishFirst) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise();
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> inputs = make_inputs(run, values);
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    std::vector<HostArray> before;
    for (const Tensor& output : tensors_of(outputs)) before.push_back(read(output));
    for (const Slot& output : run.outputs) keep_busy(current_stream(output.device.index()));
    const std::vector<Tensor> saved = copies_of(tensors_of(outputs));
    write(run, inputs, tensors_of(outputs));
    EXPECT_TRUE(all_hold(run, saved, before));
    EXPECT_TRUE(all_hold(outputs, run.expect(values)));
  });
}

TEST_P(StreamOrder, InputsMayBeFreedRightAfterTheCall) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise();
    const std::vector<HostArray> values = run.values(seed);
    std::vector<Tensor> inputs = make_inputs(run, values);
    keep_devices_busy();
    const std::vector<Tensor> results = make(run, inputs);
    inputs.clear();
    std::vector<Tensor> reusers;  // of the freed memory, on its own stream
    for (const Slot& input : run.inputs) {
      reusers.push_back(full(input.sizes, -1, {.dtype = run.dtype, .device = input.device}));
    }
    EXPECT_TRUE(all_hold(run, results, run.expect(values)));
  });
}

TEST_P(StreamOrder, OutputMemoryMayBeReusedRightAfterTheCall) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise();
    const std::vector<Tensor> inputs = make_inputs(run, run.values(seed));
    keep_devices_busy();
    static_cast<void>(make(run, inputs));  // and drops the results
    std::vector<Tensor> reusers;
    for (const Slot& output : run.outputs) {
      reusers.push_back(full(output.sizes, 3, {.dtype = run.dtype, .device = output.device}));
    }
    for (std::size_t i = 0; i < reusers.size(); ++i) {
      const HostArray threes = read(full(run.outputs[i].sizes, 3, {.dtype = run.dtype}));
      EXPECT_TRUE(holds(reusers[i], run.outputs[i].device, threes)) << "written late by the dropped call";
    }
  });
}

TEST_P(StreamOrder, StridedInputsOfAnotherStreamMayBeFreedRightAfterTheCall) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const Exercise run = exercise();
    const std::vector<HostArray> values = run.values(seed);
    std::vector<TestTensor> inputs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      inputs.emplace_back(values[i], run.inputs[i].device, Placement::gapped);
    }
    const std::vector<Memory> memories = memories_of(inputs);
    const PooledStreams streams;
    keep_devices_busy();
    const std::vector<Tensor> results = make(run, tensors_of(inputs));
    inputs.clear();
    const std::vector<Tensor> reusers = reuse(memories);
    EXPECT_TRUE(all_hold(run, results, run.expect(values)));
    synchronize_all();
  });
}

TEST_P(StreamOrder, StridedOutputsOfAnotherStreamMayBeFreedRightAfterTheCall) {
  for_each_interleaving(seeds(), [](std::uint64_t seed) {
    const Exercise run = exercise();
    const std::vector<Tensor> inputs = make_inputs(run, run.values(seed));
    std::vector<TestTensor> outputs;
    for (const Slot& output : run.outputs) {
      outputs.push_back(TestTensor::poisoned(run.dtype, output.sizes, output.device, Placement::gapped));
    }
    const std::vector<Memory> memories = memories_of(outputs);
    synchronize_all();  // the inputs are complete for every stream
    const PooledStreams streams;
    keep_devices_busy();
    write(run, inputs, tensors_of(outputs));
    outputs.clear();
    const std::vector<Tensor> reusers = reuse(memories);
    synchronize_all();
    for (const Tensor& reuser : reusers) {
      EXPECT_EQ(std::ranges::count(reuser.to_vector<std::uint8_t>(), 3), reuser.numel())
          << "written late by the call";
    }
  });
}

TEST_P(StreamOrder, ChainsCallsOverTheSameTensorsWithoutTheHostWaiting) {
  for_each_interleaving(seeds() / 2 + 1, [](std::uint64_t seed) {
    const PooledStreams streams;
    const Exercise run = exercise(67);
    const std::vector<Tensor> inputs = make_inputs(run, run.values(seed));
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    std::vector<std::vector<HostArray>> values;
    std::vector<std::vector<Tensor>> next;
    for (std::uint64_t link = 0; link < 4; ++link) {
      values.push_back(run.values(seed + link));
      next.push_back(make_inputs(run, values.back()));
    }
    std::vector<std::vector<Tensor>> saved;
    for (const std::vector<Tensor>& tensors : next) {
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(tensors[i]);
      write(run, inputs, tensors_of(outputs));
      saved.push_back(copies_of(tensors_of(outputs)));
    }
    for (std::size_t link = 0; link < saved.size(); ++link) {
      EXPECT_TRUE(all_hold(run, saved[link], run.expect(values[link]))) << "link " << link;
    }
  });
}

TEST_P(StreamOrder, FollowsTheStreamsThatAreCurrentAtTheCall) {
  for_each_interleaving(seeds() / 2 + 1, [](std::uint64_t seed) {
    const Exercise run = exercise();
    for (std::uint64_t round = 0; round < 4; ++round) {
      const PooledStreams streams;  // other ones every round
      const std::vector<HostArray> values = run.values(seed + round);
      const std::vector<Tensor> staged = make_inputs(run, values);
      std::vector<Tensor> inputs;
      for (const Tensor& tensor : staged) inputs.push_back(empty_like(tensor));
      keep_devices_busy();
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(staged[i]);
      EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
    }
  });
}

TEST_P(StreamOrder, HoldsForCallsFromSeveralThreads) {
  call_from_several_threads([](const std::function<void()>& calls) {
    const PooledStreams streams;
    calls();
  });
}

/// Their copies to and from pageable memory wait on streams of one another's calls.
TEST_P(StreamOrder, HoldsForCallsFromSeveralThreadsOnTheSameStreams) {
  call_from_several_threads([](const std::function<void()>& calls) { calls(); });
}

/// Which has not asked for anything else before.
TEST_P(StreamOrder, HoldsForTheFirstCallOfAThread) {
  const Exercise run = exercise();
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds()); ++seed) {
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> inputs = make_inputs(run, values);
    std::vector<Tensor> results;
    std::thread([&] { results = make(run, inputs); }).join();
    EXPECT_TRUE(all_hold(run, results, run.expect(values)));
  }
}

}  // namespace
}  // namespace tutti::test
