// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"
#include "device/runtime.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "support/collectives/exercise.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/memory.hpp"
#include "tutti/rng.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

/// The caller captures collectives with given outputs into a CUDA graph of their own.
namespace tutti::test {
namespace {

void check(cudaError_t error, const char* call) {
  ASSERT_EQ(error, cudaSuccess) << call << ": " << cudaGetErrorString(error);
}

/// An instantiated graph of what `body` enqueues while `stream` is being captured.
class CapturedGraph {
 public:
  template <class Body>
  CapturedGraph(const Stream& stream, Body&& body) : stream_(to_cuda(stream)) {
    const StreamGuard guard(stream);
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    std::forward<Body>(body)();
    check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }

  void launch() const { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

class Capture : public EveryCollective {
 protected:
  /// Legacy default streams cannot join a capture: the tests work on pooled streams.
  static Stream root_stream(const Exercise& run) { return current_stream(run.inputs.front().device.index()); }
};
TUTTI_FOR_EVERY_COLLECTIVE(Capture);

TEST_P(Capture, ReplaysTheCollectiveWithNewInputs) {
  const PooledStreams streams;
  for (const std::int64_t rows : {std::int64_t{5}, std::int64_t{1001}, std::int64_t{200'003}}) {
    const Exercise run = make_exercise(collective(), first_devices(), rows);
    const std::vector<Tensor> inputs = make_inputs(run, run.values(0));
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    const std::vector<Tensor> out = tensors_of(outputs);
    // What is made once per shape, the self-test and allocations of staging memory among it, is not for a
    // capture.
    write(run, inputs, out);
    synchronize_all();

    const Stream stream = root_stream(run);
    const CapturedGraph graph(stream, [&] { write(run, inputs, out); });
    if (HasFatalFailure()) return;
    for (std::uint64_t round = 1; round <= 5; ++round) {
      const std::vector<HostArray> values = run.values(test_seed() + round);
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(make_tensor(values[i], Device::host()));
      synchronize_all();
      graph.launch();
      stream.synchronize();  // the devices that joined the capture are part of the graph
      ASSERT_TRUE(all_hold(outputs, run.expect(values))) << "rows " << rows << " round " << round;
    }
  }
}

TEST_P(Capture, RunsNothingWhileCapturing) {
  const PooledStreams streams;
  const Exercise run = make_exercise(collective(), first_devices(), 100);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(1));
  const std::vector<TestTensor> warm_up = make_poisoned_outputs(run);
  write(run, inputs, tensors_of(warm_up));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  synchronize_all();
  const Stream stream = root_stream(run);
  const CapturedGraph graph(stream, [&] { write(run, inputs, tensors_of(outputs)); });
  if (HasFatalFailure()) return;
  synchronize_all();
  for (const TestTensor& output : outputs) EXPECT_TRUE(output.untouched());
}

TEST_P(Capture, MayBeLaunchedAgainAtOnce) {
  const PooledStreams streams;
  const Exercise run = make_exercise(collective(), first_devices(), 100);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  write(run, inputs, tensors_of(outputs));
  synchronize_all();
  const CapturedGraph graph(root_stream(run), [&] { write(run, inputs, tensors_of(outputs)); });
  if (HasFatalFailure()) return;
  for (int launch = 0; launch < 10; ++launch) graph.launch();
  root_stream(run).synchronize();
  EXPECT_TRUE(all_hold(outputs, run.expect(values)));
}

TEST_P(Capture, LeavesEagerCallsUndisturbed) {
  const PooledStreams streams;
  const Exercise run = make_exercise(collective(), first_devices(), 100);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  write(run, inputs, tensors_of(outputs));
  synchronize_all();
  {
    const Stream stream = root_stream(run);
    const CapturedGraph graph(stream, [&] { write(run, inputs, tensors_of(outputs)); });
    if (HasFatalFailure()) return;
    graph.launch();
    synchronize_all();
  }
  EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
}

class OwnGraph : public testing::Test {
 protected:
  static Tensor numbers(std::int64_t count, double value) {
    return full({count}, value, {.dtype = DType::int32, .device = Device(0)});
  }
  static bool hold(const std::vector<Tensor>& tensors, std::int32_t value) {
    return std::ranges::all_of(tensors, [value](const Tensor& tensor) {
      const auto values = tensor.to_vector<std::int32_t>();
      return values == std::vector<std::int32_t>(values.size(), value);
    });
  }
  static std::ptrdiff_t segments_of_graphs() {
    return std::ranges::count_if(memory_snapshot(),
                                 [](const auto& segment) { return segment.graph_pool != 0; });
  }

  Stream stream_{0};
};

TEST_F(OwnGraph, OverwritesNoTensorWithWhatItsWorkMakesAndDrops) {
  const StreamGuard guard(stream_);
  const Tensor out = numbers(1000, 0);
  synchronize(0);
  {
    const CapturedGraph graph(stream_, [&] { out.copy_(numbers(1000, 7)); });
    if (HasFatalFailure()) return;
    std::vector<Tensor> victims;
    for (int i = 0; i < 100; ++i) victims.push_back(numbers(1000, 1));
    EXPECT_GT(segments_of_graphs(), 0);
    graph.launch();
    stream_.synchronize();
    EXPECT_TRUE(hold(victims, 1));
    EXPECT_TRUE(hold({out}, 7));
  }
  // The driver tells of a graph's end when it likes; then all that is known is who must be waited for.
  EXPECT_TRUE(becomes_true([] {
    empty_cache();
    return segments_of_graphs() == 0;
  }));
}

TEST_F(OwnGraph, OfAStreamThatCudaMadeIsNotSpoiltWhereCachesAreEmptied) {
  cudaStream_t native = nullptr;
  check(cudaStreamCreate(&native), "cudaStreamCreate");
  static_cast<void>(numbers(1000, 0));
  synchronize(0);
  check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  EXPECT_TRUE(Runtime::get().backend().has_capture_on(0));
  empty_cache();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(native);
  EXPECT_FALSE(Runtime::get().backend().has_capture_on(0));
}

TEST_F(OwnGraph, OfOthersStreamsIsNotSpoiltByOtherThreadsWhileTheyAreCurrent) {
  cudaStream_t native = nullptr;
  check(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  static_cast<void>(numbers(1000, 0));
  synchronize(0);
  cudaGraph_t graph = nullptr;
  {
    const StreamGuard guard(from_cuda(native, Device(0)));
    check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    std::thread([] { empty_cache(); }).join();
    EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaStreamDestroy(native);
  empty_cache();  // asks nothing of what is gone
}

TEST_F(OwnGraph, RefusesRandomNumbersThatWouldRepeat) {
  const StreamGuard guard(stream_);
  const Tensor tensor = empty({100}, {.device = Device(0)});
  synchronize(0);
  const RngState before = get_rng_state(0);
  const CapturedGraph graph(stream_, [&] {
    EXPECT_TRUE(refuses([&] { uniform_(tensor); }, ErrorCode::unsupported,
                        {"uniform_", "captured", "not by the library"}));
    EXPECT_TRUE(refuses([&] { normal_(tensor); }, ErrorCode::unsupported, {"normal_"}));
  });
  EXPECT_EQ(get_rng_state(0), before);
}

/// What graphs of others retain is let go of when they are destroyed: that must not be before their launches
/// are done.
TEST_F(OwnGraph, KeepsWhatItRetainsUntilItsLastLaunchIsDone) {
  const StreamGuard guard(stream_);
  const Tensor out = numbers(1000, 0);
  synchronize(0);
  auto resource = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = resource;
  Runtime& runtime = Runtime::get();
  StreamGate gate(stream_);
  {
    const CapturedGraph graph(stream_, [&] {
      out.fill_(1);
      runtime.part<GraphCaptures>().retain(StreamAccess::ref(stream_), std::move(resource));
    });
    if (HasFatalFailure()) return;
    graph.launch();
    gate.open_soon();
  }
  EXPECT_TRUE(becomes_true([&] {
    runtime.part<LateReleases>().release();
    const bool has_gone = watched.expired();
    EXPECT_TRUE(!has_gone || stream_.query()) << "let go of while the launch may be running";
    return has_gone;
  }));
}

}  // namespace
}  // namespace tutti::test
