// SPDX-License-Identifier: Apache-2.0
#include "tutti/graphed_callables.hpp"

#include "allocator/graph_pools/private_pool.hpp"
#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "device/runtime.hpp"
#include "stream/current_streams.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tutti {

class GraphedCallable::Impl {
 public:
  /// Copies of the samples are what the graph reads.
  Impl(const std::vector<Tensor>& samples, PrivatePool& pool) {
    for (const Tensor& sample : samples) {
      inputs_.push_back(empty_like(sample));
      inputs_.back().copy_(sample);
      const int device = sample.device().index();
      const auto is_known = [device](const Stream& stream) { return stream.device() == device; };
      if (std::ranges::none_of(streams_, is_known)) streams_.push_back(pool.capture_stream(device));
    }
  }

  void warm_up(const TensorFunction& callable, int iterations) const {
    Runtime& runtime = Runtime::get();
    for (const Stream& stream : streams_)
      runtime.part<Streams>().order(current_stream_ref(runtime, stream.device()), StreamAccess::ref(stream));
    {
      const CurrentStreams current(streams_);
      for (int i = 0; i < iterations; ++i) static_cast<void>(callable(inputs_));
    }
    for (const Stream& stream : streams_) stream.synchronize();
  }

  void capture(const TensorFunction& callable, const GraphPoolHandle& pool) {
    const auto run = [&] {
      // Launches read them on whatever stream: they are the graph's, too.
      for (const Tensor& input : inputs_) input.record_stream(current_stream(input.device().index()));
      outputs_ = callable(inputs_);
    };
    graph_.emplace(Graph::capture(streams_, run, {.pool = pool}));
  }

  void run(const std::vector<Tensor>& inputs) const {
    if (inputs.size() != inputs_.size()) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("GraphedCallable: {} inputs are given, expected {}", inputs.size(), inputs_.size()));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) require_like_sample(inputs[i], i);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].data() != inputs_[i].data() || inputs[i].layout() != inputs_[i].layout())
        inputs_[i].copy_(inputs[i]);
    }
    Runtime& runtime = Runtime::get();
    const int home = streams_.front().device();
    const backend::StreamRef launched_on = current_stream_ref(runtime, home);
    const auto for_each_other = [&](const auto& call) {
      for (const Stream& stream : streams_) {
        if (stream.device() != home) call(current_stream_ref(runtime, stream.device()));
      }
    };
    for_each_other([&](backend::StreamRef other) { runtime.part<Streams>().order(other, launched_on); });
    graph_->launch(current_stream(home));
    for_each_other([&](backend::StreamRef other) { runtime.part<Streams>().order(launched_on, other); });
  }

  [[nodiscard]] const std::vector<Tensor>& inputs() const noexcept { return inputs_; }
  [[nodiscard]] const std::vector<Tensor>& outputs() const noexcept { return outputs_; }
  [[nodiscard]] GraphPoolHandle pool() const { return graph_->pool(); }

 private:
  void require_like_sample(const Tensor& input, std::size_t i) const {
    require_defined(input, "GraphedCallable", fmt::format("inputs[{}]", i));
    const Tensor& sample = inputs_[i];
    if (std::ranges::equal(input.sizes(), sample.sizes()) && input.dtype() == sample.dtype() &&
        input.device() == sample.device())
      return;
    const auto shown = [](const Tensor& tensor) {
      return fmt::format("{} of sizes {} on {}", name_of(tensor.dtype()), to_string(tensor.sizes()),
                         to_string(tensor.device()));
    };
    throw Error(ErrorCode::invalid_argument,
                fmt::format("GraphedCallable: inputs[{}] is {}, expected {} as its sample was", i,
                            shown(input), shown(sample)));
  }

  std::vector<Tensor> inputs_;
  std::vector<Stream> streams_;  ///< one for each device, the first input's first
  std::vector<Tensor> outputs_;
  std::optional<Graph> graph_;
};

std::vector<Tensor> GraphedCallable::operator()(const std::vector<Tensor>& inputs) const {
  impl_->run(inputs);
  return impl_->outputs();
}
const std::vector<Tensor>& GraphedCallable::static_inputs() const noexcept {
  return impl_->inputs();
}
const std::vector<Tensor>& GraphedCallable::static_outputs() const noexcept {
  return impl_->outputs();
}
GraphPoolHandle GraphedCallable::pool() const {
  return impl_->pool();
}

GraphedCallable make_graphed_callables(const TensorFunction& callable, const std::vector<Tensor>& samples,
                                       const GraphedOptions& options) {
  return make_graphed_callables(std::vector<TensorFunction>{callable},
                                std::vector<std::vector<Tensor>>{samples}, options)
      .front();
}

std::vector<GraphedCallable> make_graphed_callables(const std::vector<TensorFunction>& callables,
                                                    const std::vector<std::vector<Tensor>>& samples,
                                                    const GraphedOptions& options) {
  const auto refuse = [](const std::string& reason) {
    throw Error(ErrorCode::invalid_argument, "make_graphed_callables: " + reason);
  };
  if (callables.size() != samples.size()) {
    refuse(fmt::format("samples has {} entries, expected one for each of {} callables", samples.size(),
                       callables.size()));
  }
  if (options.warmup_iterations < 0)
    refuse(fmt::format("warmup_iterations is {}, expected 0 or more", options.warmup_iterations));
  for (std::size_t c = 0; c < samples.size(); ++c) {
    if (callables[c] == nullptr) refuse(fmt::format("callables[{}] is empty, expected a function", c));
    if (samples[c].empty()) refuse(fmt::format("samples[{}] is empty, expected one tensor at least", c));
    for (std::size_t i = 0; i < samples[c].size(); ++i) {
      const Tensor& sample = samples[c][i];
      require_defined(sample, "make_graphed_callables", fmt::format("samples[{}][{}]", c, i));
      if (sample.device().is_host())
        refuse(fmt::format("samples[{}][{}] is on the host, expected a device", c, i));
    }
  }
  const BlockingCall blocks("make_graphed_callables");
  const std::shared_ptr<PrivatePool> pool =
      GraphPoolAccess::pool_for(Runtime::get(), options.pool, "make_graphed_callables");
  // Warming up would spoil a capture that uses the pool's streams.
  { const PrivatePool::Use is_free(pool, "make_graphed_callables"); }
  std::vector<std::shared_ptr<GraphedCallable::Impl>> made;
  for (const std::vector<Tensor>& inputs : samples)
    made.push_back(std::make_shared<GraphedCallable::Impl>(inputs, *pool));
  for (std::size_t c = 0; c < made.size(); ++c) made[c]->warm_up(callables[c], options.warmup_iterations);
  std::vector<GraphedCallable> graphed;
  for (std::size_t c = 0; c < made.size(); ++c) {
    made[c]->capture(callables[c], GraphPoolAccess::make(pool));
    graphed.push_back(GraphedCallable(made[c]));
  }
  return graphed;
}

}  // namespace tutti
