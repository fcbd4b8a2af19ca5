// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"
#include "base/fork_mark.hpp"
#include "collectives/call/persistent_impl.hpp"
#include "collectives/communicator/bound_calls_scope.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "device/capture_gate.hpp"
#include "device/runtime.hpp"
#include "diagnostics/watching.hpp"
#include "os/thread.hpp"
#include "stream/current_streams.hpp"
#include "stream/stream_access.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Calls of a communicator that are bound once and launched many times.
namespace tutti {
namespace {

using collectives::TeamContext;

/// Streams to record calls on, which nobody else uses meanwhile. They live as long as the devices, as graphs
/// and communicators remember them. There are as many as have been needed at once.
class RecordingStreams {
 public:
  explicit RecordingStreams(Runtime& runtime) : runtime_(runtime) {}
  RecordingStreams(const RecordingStreams&) = delete;
  RecordingStreams& operator=(const RecordingStreams&) = delete;
  ~RecordingStreams() {
    if (fork_mark_.is_in_child()) return;
    for (const backend::StreamRef stream : made_) runtime_.backend().destroy_stream(stream);
  }

  [[nodiscard]] Stream take(int device) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(free_, device, &Stream::device);
    if (found != free_.end()) {
      const Stream stream = *found;
      free_.erase(found);
      return stream;
    }
    made_.reserve(made_.size() + 1);
    free_.reserve(made_.size() + 1);  // for when it comes back
    made_.push_back(runtime_.backend().create_stream(device, 0));
    return StreamAccess::make(made_.back());
  }
  void give_back(const Stream& stream) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(stream);
  }

 private:
  const ForkMark fork_mark_;
  Runtime& runtime_;
  std::mutex mutex_;
  std::vector<backend::StreamRef> made_;
  std::vector<Stream> free_;
};

/// One stream of each device, to record on.
class LeasedStreams {
 public:
  LeasedStreams(Runtime& runtime, const std::vector<Device>& devices)
      : LeasedStreams(runtime.part<RecordingStreams>()) {
    streams_.reserve(devices.size());
    for (const Device device : devices) streams_.push_back(owner_.take(device.index()));
  }
  LeasedStreams(const LeasedStreams&) = delete;
  LeasedStreams& operator=(const LeasedStreams&) = delete;
  ~LeasedStreams() {
    for (const Stream& stream : streams_) owner_.give_back(stream);
  }
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }

 private:
  /// The one above delegates to this, so that streams go back when there are no more.
  explicit LeasedStreams(RecordingStreams& owner) : owner_(owner) {}

  RecordingStreams& owner_;
  std::vector<Stream> streams_;
};

class BoundCalls : public PersistentCollective::Impl {
 public:
  BoundCalls(TeamContext& context, std::function<void()> calls)
      : runtime_(context.runtime()),
        context_(context.watch()),
        home_device_(context.devices().front().index()),
        calls_(std::make_shared<const std::function<void()>>(std::move(calls))) {}

  [[nodiscard]] int home_device() const noexcept override { return home_device_; }
  [[nodiscard]] PlanSummary summary() const override { return summary_; }
  [[nodiscard]] std::function<void()> calls() const override { return *calls_; }

 protected:
  /// Returns the state of the communicator, which the caller lets live meanwhile. Throws
  /// Error(invalid_argument) if it is gone.
  [[nodiscard]] TeamContext& context() const {
    if (const auto context = context_.lock()) return *context;
    throw Error(
        ErrorCode::invalid_argument,
        "PersistentCollective::launch: the communicator of the bound calls is gone, expected one that "
        "they are bound to (see rebind)");
  }
  [[nodiscard]] const std::shared_ptr<const std::function<void()>>& kept() const noexcept { return calls_; }
  /// Stores the summary of the communicator's latest call.
  void learn_summary() {
    TeamContext& context = this->context();
    const std::lock_guard lock(context.team().calls().mutex());
    summary_ = context.last_plan();
    const collectives::Request& request = context.scratch().request;  // until the next call begins
    name_ = request.name.empty() ? "messages" : request.name;
    bytes_ = request.bytes();
  }
  [[nodiscard]] watching::WatchedCall watched(std::span<const backend::StreamRef> streams) const {
    return {.runtime = &runtime_,
            .name = name_,
            .bytes = bytes_,
            .plan = summary_,
            .explain = [this] { return explain(); },
            .streams = streams};
  }
  [[nodiscard]] std::string explain_as(const char* what) const {
    if (summary_.transport.empty()) return fmt::format("calls of a communicator, {}\n", what);
    return fmt::format("calls of a communicator, {}; the last by {} ({})\n", what, summary_.transport,
                       summary_.algorithm);
  }

 private:
  Runtime& runtime_;
  const std::weak_ptr<TeamContext> context_;
  const int home_device_;
  const std::shared_ptr<const std::function<void()>> calls_;
  // Of the last call.
  PlanSummary summary_;
  std::string_view name_;
  std::uint64_t bytes_ = 0;
};

/// By one graph.
class RecordedCalls final : public BoundCalls {
 public:
  RecordedCalls(TeamContext& context, std::function<void()> calls)
      : BoundCalls(context, std::move(calls)), graph_(record(context, kept())) {
    learn_summary();
  }

  void launch(const Stream& stream) override {
    TeamContext& context = this->context().require_own_process();
    transport::team::Team& team = context.team();
    transport::team::RoundLauncher& launcher = context.launcher();
    const std::lock_guard lock(team.calls().mutex());
    // The graph comes from this stream and goes back to it, for all members.
    queues_.assign(context.devices().size(), StreamAccess::ref(stream));
    const watching::CallRange range([this] { return watched(queues_); });
    try {
      launcher.begin(queues_);
      graph_.launch(stream);
    } catch (...) {
      const backend::Escaped escaped = backend::Escaped::current();
      launcher.abandon();
      // What is refused has not begun. For all else the other ranks' launches wait.
      if (escaped.code != ErrorCode::unsupported && !team.abort().is_set())
        team.abort().fail("cannot launch its bound calls", escaped);
      throw;
    }
    launcher.end(queues_);
  }

  [[nodiscard]] std::string explain() const override { return explain_as("recorded as one graph"); }

 private:
  static Graph record(TeamContext& context, const std::shared_ptr<const std::function<void()>>& calls) {
    const LeasedStreams leased(context.runtime(), context.devices());
    const CaptureGate::Capture begun(context.runtime().part<CaptureGate>());
    return Graph::capture(leased.streams(), [&] {
      const backend::StreamRef first = StreamAccess::ref(leased.streams().front());
      const collectives::BoundCallsScope binding(context, context.runtime().backend().capture_id(first));
      (*calls)();
      // What they hold may be used by other work of theirs than calls.
      context.runtime().part<GraphCaptures>().retain(first,
                                                     std::const_pointer_cast<std::function<void()>>(calls));
    });
  }

  Graph graph_;
  std::vector<backend::StreamRef> queues_;  ///< of the latest launch, for each local member
};

/// By the host, each time.
class RepeatedCalls final : public BoundCalls {
 public:
  RepeatedCalls(TeamContext& context, std::function<void()> calls) : BoundCalls(context, std::move(calls)) {
    for (const Device device : context.devices()) streams_.emplace_back(device);
  }

  void launch(const Stream& stream) override {
    TeamContext& context = this->context().require_own_process();
    transport::team::Team& team = context.team();
    const auto come_back = [&] {
      for (const Stream& own : streams_) stream.wait_stream(own);
    };
    const collectives::BoundCallsScope binding(context, 0);
    try {
      for (const Stream& own : streams_) own.wait_stream(stream);
      const CurrentStreams current(streams_);
      (*kept())();
      come_back();
    } catch (...) {
      const backend::Escaped escaped = backend::Escaped::current();
      // What is refused before anything is made is so on all ranks. For all else they wait.
      const bool is_refused =
          escaped.code == ErrorCode::unsupported || escaped.code == ErrorCode::invalid_argument;
      const bool is_waited_for = !is_refused || binding.has_made_calls();
      if (is_waited_for && !team.abort().is_set()) team.abort().fail("cannot make its bound calls", escaped);
      try {
        come_back();  // some calls may have been made
      } catch (const std::exception&) {
        // A stream that takes nothing more has failed, and with it what it has taken.
      }
      throw;
    }
    learn_summary();
  }

  [[nodiscard]] std::string explain() const override { return explain_as("made anew by each launch"); }

 private:
  std::vector<Stream> streams_;  ///< one of each local member's device
};

std::unique_ptr<PersistentCollective::Impl> bind(TeamContext& context, std::function<void()> calls) {
  if (context.require_own_process().team().membership().spans_hosts())
    return std::make_unique<RepeatedCalls>(context, std::move(calls));
  return std::make_unique<RecordedCalls>(context, std::move(calls));
}

}  // namespace

PersistentCollective Communicator::persistent(std::function<void()> calls) {
  if (calls == nullptr)
    throw Error(ErrorCode::invalid_argument, "Communicator::persistent: calls is empty, expected a function");
  return PersistentCollective(bind(*impl().context, std::move(calls)));
}

void PersistentCollective::rebind(Communicator& communicator) {
  std::function<void()> calls = impl_->calls();
  if (calls == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "PersistentCollective::rebind: this is a collective of one process, expected calls of a "
                "communicator");
  }
  impl_ = bind(CommunicatorAccess::context(communicator), std::move(calls));
}

}  // namespace tutti
