#include "support/exercise.hpp"
#include "support/stream_order.hpp"
#include "tutti/cuda_interop.hpp"

#include <utility>

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

}  // namespace
}  // namespace tutti::test
