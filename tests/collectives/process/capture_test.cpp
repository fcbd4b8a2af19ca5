// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "support/collectives/collective_test.hpp"
#include "support/collectives/exercise.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/memory_books.hpp"
#include "support/stream_gate.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"

#include <functional>
#include <vector>

/// Calls while one of their streams is being captured: they become part of the graph, or are refused, as
/// nothing of them would be.
namespace tutti::test {
namespace {

const Sizes shape{4, 6};

class Capture : public testing::Test {
 protected:
  void TearDown() override { EXPECT_NO_THROW(synchronize_all()); }

  static backend::Backend& backend() { return Runtime::get().backend(); }
  static Device root() { return first_devices().front(); }
  static Device other() { return first_devices(2).back(); }

  static Tensor dense(Device device, const Sizes& sizes = shape) {
    return zeros(sizes, {.dtype = DType::float32, .device = device});
  }
  static Tensor strided(Device device, const Sizes& sizes = shape) {
    return dense(device, {sizes[0], sizes[1] + 2}).narrow(1, 1, sizes[1]);
  }
  static Tensor on_host(const Sizes& sizes, HostMemory memory) {
    return zeros(sizes, {.dtype = DType::float32, .device = Device::host(), .host_memory = memory});
  }

  /// The graph of what `body` enqueues while `origin` is being captured.
  static backend::GraphHandle capture(const Stream& origin, const std::function<void()>& body) {
    backend().begin_capture(StreamAccess::ref(origin), CaptureErrorMode::thread);
    body();
    return backend().end_capture(StreamAccess::ref(origin), nullptr);
  }
  /// `call` is refused whoever's stream is captured, and the capture goes on.
  static void expect_refused(const std::function<void()>& call, const std::vector<std::string>& fragments) {
    const PooledStreams streams;  // legacy default streams cannot be captured
    synchronize_all();
    for (const Device device : {root(), other()}) {
      SCOPED_TRACE(testing::Message()
                   << fragments[0] << " " << fragments[1] << ", capturing on " << to_string(device));
      const backend::GraphHandle graph = capture(current_stream(device.index()), [&] {
        EXPECT_TRUE(refuses(call, ErrorCode::unsupported, fragments));
      });
      backend().destroy_graph(graph);
    }
    EXPECT_NO_THROW(call()) << "when nothing is captured";
  }
};

TEST_F(Capture, RefusesInputsThatNeedStandIns) {
  const std::string why = "captured must be dense";
  const Tensor a = dense(root());
  const Tensor b = dense(other());
  const Tensor strided_a = strided(root());
  const Tensor strided_b = strided(other());
  const Tensor sum = dense(root());
  const Tensor joined = dense(root(), {8, 6});
  const std::vector<Tensor> halves{dense(root(), {2, 6}), dense(other(), {2, 6})};
  using Rows = std::vector<std::vector<Tensor>>;

  expect_refused([&] { broadcast(strided_a, {sum, b}); }, {"broadcast", "tensor has strides [8, 1]", why});
  expect_refused(
      [&] {
        broadcast_coalesced({a, strided_a}, Rows{{dense(other()), dense(other())}});
      },
      {"broadcast_coalesced", "tensors[1]", why});
  expect_refused([&] { reduce_add({a, strided_b}, sum); }, {"reduce_add", "inputs[1]", why});
  expect_refused(
      [&] {
        reduce_add_coalesced(Rows{{a}, {strided_b}}, {sum});
      },
      {"reduce_add_coalesced", "inputs[1][0]", why});
  expect_refused([&] { reduce({a, strided_b}, sum, ReduceOp::min); }, {"reduce", "inputs[1]", why});
  expect_refused(
      [&] {
        reduce_coalesced(Rows{{a}, {strided_b}}, {sum}, ReduceOp::min);
      },
      {"reduce_coalesced", "inputs[1][0]", why});
  expect_refused([&] { scatter(strided_a, halves); }, {"scatter", "tensor", why});
  expect_refused([&] { gather({a, strided_b}, joined); }, {"gather", "tensors[1]", why});
}

TEST_F(Capture, RefusesOutputsThatNeedStandIns) {
  const std::string why = "captured must be dense";
  const Tensor a = dense(root());
  const Tensor b = dense(other());
  const Tensor out = dense(other());
  const Tensor strided_out = strided(other());
  const Tensor strided_joined = strided(other(), {8, 6});
  const std::vector<Tensor> halves{dense(root(), {2, 6}), strided(other(), {2, 6})};
  using Rows = std::vector<std::vector<Tensor>>;

  expect_refused([&] { broadcast(a, {out, strided_out}); }, {"broadcast", "out[1]", why});
  expect_refused(
      [&] {
        broadcast_coalesced({a}, Rows{{out}, {strided_out}});
      },
      {"broadcast_coalesced", "out[1][0]", why});
  expect_refused([&] { reduce_add({a, b}, strided_out); }, {"reduce_add", "out", why});
  expect_refused(
      [&] {
        reduce_add_coalesced(Rows{{a}, {b}}, {strided_out});
      },
      {"reduce_add_coalesced", "out[0]", why});
  expect_refused([&] { scatter(a, halves); }, {"scatter", "out[1]", why});
  expect_refused([&] { gather({a, b}, strided_joined); }, {"gather", "out", why});
}

TEST_F(Capture, ReplaysReductionsByAnyOperation) {
  const PooledStreams streams;
  const Tensor a = full(shape, 3, {.device = root()});
  const Tensor b = full(shape, 5, {.device = other()});
  const Tensor greatest = dense(root());
  const Tensor product = dense(other());
  using Rows = std::vector<std::vector<Tensor>>;
  const auto call = [&] {
    reduce({a, b}, greatest, ReduceOp::max);
    reduce_coalesced(Rows{{a}, {b}}, {product}, ReduceOp::prod);
  };
  call();  // the self-test is not for a capture
  synchronize_all();
  for (const Device device : {root(), other()}) {
    greatest.fill_(0);
    product.fill_(0);
    a.fill_(3);
    synchronize_all();
    const Stream origin = current_stream(device.index());
    const Graph graph = Graph::capture(origin, call);
    a.fill_(7);
    synchronize_all();
    EXPECT_EQ(greatest.to_vector<float>(), std::vector<float>(24, 0.0F)) << "nothing has run";
    graph.launch(origin);
    synchronize_all();
    EXPECT_EQ(greatest.to_vector<float>(), std::vector<float>(24, 7.0F));
    EXPECT_EQ(product.to_vector<float>(), std::vector<float>(24, 35.0F));
  }
}

TEST_F(Capture, AsksTheGivenStreams) {
  const Tensor a = strided(root());
  const std::vector<Tensor> out{dense(root()), dense(other())};
  const std::vector<Stream> given{Stream(root().index()), Stream(other().index())};
  const Tensor whole = strided(root(), {8, 6});
  synchronize_all();
  for (const Stream& stream : given) {
    const backend::GraphHandle graph = capture(stream, [&] {
      EXPECT_TRUE(refuses([&] { scatter(whole, out, 0, given); }, ErrorCode::unsupported,
                          {"scatter", "tensor", "captured"}));
    });
    backend().destroy_graph(graph);
  }
}

TEST_F(Capture, RefusesToWaitForResultsOnTheHost) {
  const std::vector<Tensor> tensors{dense(root()), dense(other())};
  const Tensor pinned = on_host({8, 6}, HostMemory::pinned);
  const Tensor pageable = on_host({8, 6}, HostMemory::pageable);
  expect_refused([&] { static_cast<void>(gather(tensors, 0, Device::host())); },
                 {"gather", "options.blocking is yes", "captured"});
  expect_refused([&] { gather(tensors, pinned); }, {"gather", "options.blocking is yes", "captured"});
  expect_refused([&] { gather(tensors, pageable, 0, {.blocking = Blocking::no}); },
                 {"gather", "out is in pageable host memory", "captured"});
}

TEST_F(Capture, GathersIntoPinnedMemoryWithoutWaiting) {
  const PooledStreams streams;
  std::vector<HostArray> parts;
  std::vector<Tensor> tensors;
  for (const Device device : {root(), other()}) {
    parts.push_back(random_bits(DType::float32, shape, test_seed() + parts.size()));
    tensors.push_back(make_tensor(parts.back(), device));
  }
  const Tensor out = on_host({8, 6}, HostMemory::pinned);
  const auto call = [&] { gather(tensors, out, 0, {.blocking = Blocking::no}); };
  call();  // the self-test is not for a capture
  synchronize_all();
  for (const Device device : {root(), other()}) {
    out.fill_(0);
    const Stream origin = current_stream(device.index());
    const backend::GraphHandle graph = capture(origin, call);
    EXPECT_EQ(read(out), read(on_host({8, 6}, HostMemory::pageable))) << "ran while it was captured";
    backend().launch_graph(graph, StreamAccess::ref(origin));
    origin.synchronize();
    EXPECT_TRUE(holds(out, Device::host(), concatenate(parts, 0)));
    backend().destroy_graph(graph);
  }
}

/// Calls that make their outputs, which nobody keeps, and what they stage.
TEST_F(Capture, OverwritesNoTensorWithWhatCallsMakeAndDrop) {
  const PooledStreams streams;
  const std::vector<Device> devices{root(), other()};
  const Tensor a = full(shape, 1, {.dtype = DType::float32, .device = root()});
  const Tensor b = full(shape, 2, {.dtype = DType::float32, .device = other()});
  const auto call = [&] {
    static_cast<void>(broadcast(a, devices));
    static_cast<void>(broadcast_coalesced({a, a}, devices));
    static_cast<void>(reduce_add({a, b}));
    static_cast<void>(scatter(a, devices));
    static_cast<void>(gather({a, b}, 0, root()));
  };
  call();  // the self-test is not for a capture
  synchronize_all();
  const Stream origin = current_stream(root().index());
  const std::vector<Stream> captured{origin, current_stream(other().index())};
  const Graph graph = Graph::capture(other() == root() ? std::vector{origin} : captured, call);
  std::vector<Tensor> victims;
  for (const Device device : devices) {
    for (int i = 0; i < 100; ++i)
      victims.push_back(full(shape, 9, {.dtype = DType::float32, .device = device}));
  }
  synchronize_all();
  graph.launch(origin);
  origin.synchronize();
  for (const Tensor& victim : victims) EXPECT_EQ(victim.to_vector<float>(), std::vector<float>(24, 9.0F));
}

/// Calls that make their outputs, some of them on another device than that whose stream is captured.
class CapturedResults : public Capture {
 protected:
  using Results = std::vector<Tensor>;
  using Calls = std::vector<std::function<Results()>>;

  /// One tensor on each device, of 1.5 MiB: more than a root has written without the other device's stream.
  explicit CapturedResults() {
    for (const Device device : {root(), other()})
      inputs_.push_back(full({384, 1024}, 1 + device.index(), {.dtype = DType::float32, .device = device}));
    synchronize_all();
  }

  /// Each makes its outputs on `there`, of what is on the other device, or on both.
  [[nodiscard]] Calls onto(Device there) const {
    const Tensor& from = inputs_[there == root() ? 1 : 0];
    const Tensor row = from.narrow(0, 0, 1);
    const std::vector<Tensor>& all = inputs_;
    const auto lists = std::vector{std::vector{all[0]}, std::vector{all[1]}};
    return {[=] { return broadcast(from, {there}); },
            [=] { return broadcast(row, {there}); },
            [=] {
              return broadcast_coalesced({from, row}, {there}).front();
            },
            [=] { return broadcast_coalesced({row}, {there}).front(); },
            [=] { return scatter(from, {there}); },
            [=] { return scatter(row, {there}); },
            [=] { return Results{gather(all, 0, there)}; },
            [=] { return Results{reduce_add(all, there)}; },
            [=] { return reduce_add_coalesced(lists, there); },
            [=] { return Results{reduce(all, ReduceOp::max, there)}; },
            [=] { return reduce_coalesced(lists, ReduceOp::max, there); }};
  }

  const PooledStreams streams_;
  std::vector<Tensor> inputs_;
};

TEST_F(CapturedResults, AreMemoryOfTheGraph) {
  if (root() == other()) return;  // on a machine with one GPU
  for (const Device there : {root(), other()}) {
    for (const auto& call : onto(there)) {
      static_cast<void>(call());  // the self-test is not for a capture
      synchronize_all();
      for (const Device captured : {root(), other()}) {
        Results results;
        const Stream origin = current_stream(captured.index());
        const Graph graph = Graph::capture(origin, [&] { results = call(); });
        for (const Tensor& result : results) EXPECT_EQ(graph_pool_of(result), graph.pool().id());
      }
    }
  }
}

/// What is cached for a stream may still be used there, which launches of a graph do not wait for.
TEST_F(CapturedResults, AreWhereNoWorkIsThatTheGraphDoesNotFollow) {
  if (is_under_a_tool()) GTEST_SKIP() << "the graph waits for the stream that the gate holds";
  if (root() == other()) return;
  const Stream origin = current_stream(root().index());
  for (const auto& call : onto(other())) {
    const Results expected = call();
    synchronize_all();
    StreamGate gate(current_stream(other().index()));
    for (const Tensor& like : expected) static_cast<void>(full_like(like, 9));  // and its memory is cached
    Results results;
    const Graph graph = Graph::capture(origin, [&] { results = call(); });
    graph.launch(origin);
    origin.synchronize();
    gate.open();
    synchronize_all();
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i].to_vector<float>(), expected[i].to_vector<float>());
  }
}

/// A call that ends without results leaves the capture as it was.
TEST_F(CapturedResults, ThatThereIsNoMemoryForLeaveTheCaptureAlone) {
  const Stream origin = current_stream(root().index());
  const Tensor out = dense(root());
  synchronize_all();
  const double fraction = get_per_process_memory_fraction(other());
  set_per_process_memory_fraction(0, other());
  const Graph graph = Graph::capture(origin, [&] {
    EXPECT_TRUE(refuses([&] { static_cast<void>(reduce_add(inputs_, other())); }, ErrorCode::out_of_memory,
                        {"out of memory"}));
    out.fill_(5);
  });
  set_per_process_memory_fraction(fraction, other());
  graph.launch(origin);
  origin.synchronize();
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(24, 5.0F));
}

class CapturedCalls : public EveryCollective {
 protected:
  /// Legacy default streams cannot be captured: the tests work on pooled streams.
  static Stream root_stream(const Exercise& run) { return current_stream(run.inputs.front().device.index()); }
};
TUTTI_FOR_EVERY_COLLECTIVE(CapturedCalls);

TEST_P(CapturedCalls, OnADefaultStreamAreRefusedAndLeaveTheCaptureAlone) {
  const Exercise run = make_exercise(collective(), first_devices(), 5);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(0));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  synchronize_all();
  const Stream stream(run.inputs.front().device);
  const Graph graph = Graph::capture(stream, [&] {
    EXPECT_TRUE(refuses([&] { write(run, inputs, tensors_of(outputs)); }, ErrorCode::unsupported,
                        {run.function + ": ", "is the default stream"}));
    inputs.front().copy_(inputs.front());
  });
  graph.launch(stream);
  synchronize_all();
  for (const TestTensor& output : outputs) EXPECT_TRUE(output.untouched());
}

TEST_P(CapturedCalls, AreReplayedWithNewInputs) {
  const PooledStreams streams;
  for (const std::int64_t rows : {std::int64_t{5}, std::int64_t{20'003}}) {
    const Exercise run = make_exercise(collective(), first_devices(), rows);
    const std::vector<Tensor> inputs = make_inputs(run, run.values(0));
    const std::vector<TestTensor> warm_up = make_poisoned_outputs(run);
    write(run, inputs, tensors_of(warm_up));  // what is made once per shape is not for a capture
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    const std::vector<Tensor> out = tensors_of(outputs);
    synchronize_all();
    const Stream stream = root_stream(run);
    const Graph graph = Graph::capture(stream, [&] { write(run, inputs, out); });
    synchronize_all();
    for (const TestTensor& output : outputs) EXPECT_TRUE(output.untouched()) << "ran while it was captured";
    for_each_interleaving(5, [&](std::uint64_t seed) {
      const std::vector<HostArray> values = run.values(test_seed() + seed);
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(make_tensor(values[i], Device::host()));
      synchronize_all();
      graph.launch(stream);
      graph.launch(stream);
      stream.synchronize();  // the devices that joined the capture are part of the graph
      ASSERT_TRUE(all_hold(outputs, run.expect(values))) << "rows " << rows << " seed " << seed;
    });
  }
}

}  // namespace
}  // namespace tutti::test
