// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator_impl.hpp"
#include "collectives/persistent_impl.hpp"
#include "current_streams.hpp"
#include "runtime.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Calls of a communicator that are bound once and launched many times.
namespace tutti {
namespace {

using collectives::TeamContext;

class BoundCalls : public PersistentCollective::Impl {
 public:
  explicit BoundCalls(TeamContext& context) {
    for (const Device device : context.devices()) streams_.emplace_back(device);
  }

  [[nodiscard]] int home_device() const noexcept override { return streams_.front().device(); }
  [[nodiscard]] PlanSummary summary() const override { return summary_; }

 protected:
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  void set_summary(PlanSummary summary) { summary_ = std::move(summary); }
  [[nodiscard]] std::string explain_as(const char* what) const {
    return fmt::format("calls of a communicator, {}; the last by {} ({})\n", what, summary_.transport,
                       summary_.algorithm);
  }

 private:
  std::vector<Stream> streams_;  ///< one of each local member's device
  PlanSummary summary_;          ///< of the last call
};

/// By one graph.
class RecordedCalls final : public BoundCalls {
 public:
  RecordedCalls(TeamContext& context, const std::function<void()>& calls)
      : BoundCalls(context), context_(context), graph_(Graph::capture(streams(), calls)) {
    set_summary(context.last_plan());
    for (const Stream& stream : streams()) queues_.push_back(StreamAccess::ref(stream));
  }
  void launch(const Stream& stream) override {
    Runtime& runtime = context_.require_own_process().runtime();
    const std::lock_guard lock(context_.team().calls().mutex());
    const backend::StreamRef home = queues_.front() = StreamAccess::ref(stream);
    const auto others = std::span(queues_).subspan(1);
    // It takes its turn among the calls: their streams come to it, and go on from it.
    context_.launcher().begin(queues_);
    try {
      for (const backend::StreamRef other : others) runtime.order(other, home);
      graph_.launch(stream);
      for (const backend::StreamRef other : others) runtime.order(home, other);
    } catch (...) {
      context_.launcher().abandon();
      throw;
    }
    context_.launcher().end(queues_);
  }
  [[nodiscard]] std::string explain() const override { return explain_as("recorded as one graph"); }

 private:
  TeamContext& context_;
  Graph graph_;
  std::vector<backend::StreamRef> queues_;  ///< of the latest launch, for each local member
};

/// By the host, each time.
class RepeatedCalls final : public BoundCalls {
 public:
  RepeatedCalls(TeamContext& context, std::function<void()> calls)
      : BoundCalls(context), context_(context), calls_(std::move(calls)) {}
  void launch(const Stream& stream) override {
    for (const Stream& own : streams()) own.wait_stream(stream);
    {
      const CurrentStreams current(streams());
      calls_();
    }
    for (const Stream& own : streams()) stream.wait_stream(own);
    set_summary(context_.last_plan());
  }
  [[nodiscard]] std::string explain() const override { return explain_as("made anew by each launch"); }

 private:
  TeamContext& context_;
  std::function<void()> calls_;
};

}  // namespace

PersistentCollective Communicator::persistent(std::function<void()> calls) {
  if (calls == nullptr)
    throw Error(ErrorCode::invalid_argument, "Communicator::persistent: calls is empty, expected a function");
  TeamContext& context = impl_->context->require_own_process();
  if (context.team().membership().spans_hosts())
    return PersistentCollective(std::make_unique<RepeatedCalls>(context, std::move(calls)));
  return PersistentCollective(std::make_unique<RecordedCalls>(context, calls));
}

}  // namespace tutti
