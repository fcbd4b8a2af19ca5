// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"
#include "base/fork_mark.hpp"
#include "collectives/call/arguments.hpp"
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
  BoundCalls(TeamContext& context, std::function<void()> calls, const PersistentOptions& options)
      : runtime_(context.runtime()),
        context_(context.watch()),
        devices_(context.devices()),
        calls_(std::make_shared<const std::function<void()>>(std::move(calls))),
        options_(options) {}

  [[nodiscard]] int home_device() const noexcept override { return devices_.front().index(); }
  [[nodiscard]] PlanSummary summary() const override { return summary_; }
  [[nodiscard]] std::function<void()> calls() const override { return *calls_; }
  [[nodiscard]] PersistentOptions options() const override { return options_; }

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
  /// Throws Error(invalid_argument) unless there is a stream for each local member.
  void check(StreamList streams) const {
    const collectives::Arguments arguments(runtime_, "PersistentCollective::launch");
    if (streams.empty())
      arguments.fail("streams is empty, expected one per local member, {}", devices_.size());
    arguments.streams(streams, devices_, "local member");
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
  const std::vector<Device> devices_;  ///< of local members
  const std::shared_ptr<const std::function<void()>> calls_;
  const PersistentOptions options_;
  // Of the last call.
  PlanSummary summary_;
  std::string_view name_;
  std::uint64_t bytes_ = 0;
};

/// Launches graphs that hold calls of the communicator, by `launch`. They come from `streams`, one for each
/// local member, and go back to them.
template <class Launch>
void launch_graphs(TeamContext& context, std::span<const backend::StreamRef> streams, const Launch& launch) {
  transport::team::Team& team = context.team();
  transport::team::RoundLauncher& launcher = context.launcher();
  bool has_launched = false;
  try {
    launcher.begin(streams);
    launch();
    has_launched = true;
    launcher.end(streams);
  } catch (...) {
    const backend::Escaped escaped = backend::Escaped::current();
    launcher.abandon();
    // What is refused has not begun. For all else the other ranks' launches wait.
    const bool has_begun = has_launched || escaped.code != ErrorCode::unsupported;
    if (has_begun && !team.abort().is_set()) team.abort().fail("cannot launch its bound calls", escaped);
    throw;
  }
}

/// Makes graphs keep what the calls hold, which other work of theirs than calls may use.
void keep_in_graphs(Runtime& runtime, const std::vector<Stream>& streams,
                    const std::shared_ptr<const std::function<void()>>& calls) {
  for (const Stream& stream : streams) {
    runtime.part<GraphCaptures>().retain(StreamAccess::ref(stream),
                                         std::const_pointer_cast<std::function<void()>>(calls));
  }
}

/// Launches one graph of all local members' calls.
class OneGraph final : public BoundCalls {
 public:
  OneGraph(TeamContext& context, std::function<void()> calls, const PersistentOptions& options)
      : BoundCalls(context, std::move(calls), options), graph_(record(context, kept())) {
    learn_summary();
  }

  void launch(const Stream& stream) override {
    TeamContext& context = this->context().require_own_process();
    const std::lock_guard lock(context.team().calls().mutex());
    // The graph comes from this stream and goes back to it, for all members.
    queues_.assign(context.devices().size(), StreamAccess::ref(stream));
    const watching::CallRange range([this] { return watched(queues_); });
    launch_graphs(context, queues_, [&] { graph_.launch(stream); });
  }
  void launch_on(StreamList streams) override {
    check(streams);
    const Stream& home = streams.front();
    for (const Stream& stream : streams.subspan(1)) home.wait_stream(stream);
    launch(home);
    for (const Stream& stream : streams.subspan(1)) stream.wait_stream(home);
  }

  [[nodiscard]] std::string explain() const override { return explain_as("recorded as one graph"); }

 private:
  static Graph record(TeamContext& context, const std::shared_ptr<const std::function<void()>>& calls) {
    const LeasedStreams leased(context.runtime(), context.devices());
    const CaptureGate::Capture begun(context.runtime().part<CaptureGate>());
    return Graph::capture(leased.streams(), [&] {
      const backend::StreamRef first = StreamAccess::ref(leased.streams().front());
      const collectives::BoundCallsScope binding(context, {context.runtime().backend().capture_id(first)});
      (*calls)();
      keep_in_graphs(context.runtime(), {leased.streams().front()}, calls);
    });
  }

  Graph graph_;
  std::vector<backend::StreamRef> queues_;  ///< of the latest launch, for each local member
};

/// Launches the calls of each local member on a stream of its own.
class CallsApart : public BoundCalls {
 public:
  CallsApart(TeamContext& context, std::function<void()> calls, const PersistentOptions& options)
      : BoundCalls(context, std::move(calls), options) {
    for (const Device device : context.devices()) streams_.emplace_back(device);
  }

  void launch(const Stream& stream) final {
    const auto come_back = [&] {
      for (const Stream& own : streams_) stream.wait_stream(own);
    };
    try {
      follow(stream);
      run(streams_);
      come_back();
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        come_back();  // some calls may have been made
      } catch (const std::exception&) {
        // A stream that takes nothing more has failed, and with it what it has taken.
      }
      std::rethrow_exception(failure);
    }
  }
  void launch_on(StreamList streams) final {
    check(streams);
    run(streams);
  }

 private:
  virtual void run(StreamList streams) = 0;
  /// Makes the streams follow another one. For a launch that fails here the other ranks wait, too.
  void follow(const Stream& stream) {
    transport::team::Team& team = context().require_own_process().team();
    try {
      for (const Stream& own : streams_) own.wait_stream(stream);
    } catch (...) {
      if (!team.abort().is_set())
        team.abort().fail("cannot launch its bound calls", backend::Escaped::current());
      throw;
    }
  }

  std::vector<Stream> streams_;  ///< one of each local member's device
};

/// Launches a graph for each local member.
class GraphPerDevice final : public CallsApart {
 public:
  GraphPerDevice(TeamContext& context, std::function<void()> calls, const PersistentOptions& options)
      : CallsApart(context, std::move(calls), options) {
    const LeasedStreams leased(context.runtime(), context.devices());
    const CaptureGate::Capture begun(context.runtime().part<CaptureGate>());
    record(context, leased.streams(), context.devices().size());
    learn_summary();
  }

  [[nodiscard]] std::string explain() const override {
    return explain_as("recorded as a graph for each device");
  }

 private:
  /// Records the calls in graphs of the first `count` members, within the captures of the others.
  void record(TeamContext& context, const std::vector<Stream>& streams, std::size_t count) {
    if (count == 0) return record_calls(context, streams);
    Graph graph = Graph::capture(streams[count - 1], [&] { record(context, streams, count - 1); });
    graphs_.push_back(std::move(graph));
  }
  void record_calls(TeamContext& context, const std::vector<Stream>& streams) {
    std::vector<std::uint64_t> captures;
    for (const Stream& stream : streams)
      captures.push_back(context.runtime().backend().capture_id(StreamAccess::ref(stream)));
    const collectives::BoundCallsScope binding(context, std::move(captures));
    (*kept())();
    keep_in_graphs(context.runtime(), streams, kept());
  }
  void run(StreamList streams) override {
    TeamContext& context = this->context().require_own_process();
    const std::lock_guard lock(context.team().calls().mutex());
    queues_.clear();
    for (const Stream& stream : streams) queues_.push_back(StreamAccess::ref(stream));
    const watching::CallRange range([this] { return watched(queues_); });
    launch_graphs(context, queues_, [&] {
      for (std::size_t local = 0; local < streams.size(); ++local) launch_part(local, streams[local]);
    });
  }
  void launch_part(std::size_t local, const Stream& stream) {
    try {
      graphs_[local].launch(stream);
    } catch (const Error& error) {
      // The parts before wait for this one: it is no longer refused, but has failed.
      if (local == 0 || error.code() != ErrorCode::unsupported) throw;
      throw Error(ErrorCode::internal, error.what());
    }
  }

  std::vector<Graph> graphs_;               ///< of local members
  std::vector<backend::StreamRef> queues_;  ///< of the latest launch
};

/// Makes the calls anew with each launch.
class RepeatedCalls final : public CallsApart {
 public:
  using CallsApart::CallsApart;

  [[nodiscard]] std::string explain() const override { return explain_as("made anew by each launch"); }

 private:
  void run(StreamList streams) override {
    TeamContext& context = this->context().require_own_process();
    transport::team::Team& team = context.team();
    const collectives::BoundCallsScope binding(context);
    try {
      const CurrentStreams current(streams);
      (*kept())();
    } catch (...) {
      const backend::Escaped escaped = backend::Escaped::current();
      // What is refused before anything is made is so on all ranks. For all else they wait.
      const bool is_refused =
          escaped.code == ErrorCode::unsupported || escaped.code == ErrorCode::invalid_argument;
      const bool is_waited_for = !is_refused || binding.has_made_calls();
      if (is_waited_for && !team.abort().is_set()) team.abort().fail("cannot make its bound calls", escaped);
      throw;
    }
    learn_summary();
  }
};

/// Returns true if the graphs of the local members' calls may be launched one after another.
bool may_launch_in_turn(TeamContext& context) {
  return context.launcher().launching() == transport::Launching::from_one_thread;
}

std::unique_ptr<PersistentCollective::Impl> bind_calls(TeamContext& context, std::function<void()> calls,
                                                       const PersistentOptions& options) {
  if (context.require_own_process().team().membership().spans_hosts())
    return std::make_unique<RepeatedCalls>(context, std::move(calls), options);
  if (options.graph_per_device && context.devices().size() > 1 && may_launch_in_turn(context))
    return std::make_unique<GraphPerDevice>(context, std::move(calls), options);
  return std::make_unique<OneGraph>(context, std::move(calls), options);
}

}  // namespace

PersistentCollective Communicator::persistent(std::function<void()> calls, const PersistentOptions& options) {
  if (calls == nullptr)
    throw Error(ErrorCode::invalid_argument, "Communicator::persistent: calls is empty, expected a function");
  return PersistentCollective(bind_calls(*impl().context, std::move(calls), options));
}

void PersistentCollective::rebind(Communicator& communicator) {
  std::function<void()> calls = impl_->calls();
  if (calls == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "PersistentCollective::rebind: this is a collective of one process, expected calls of a "
                "communicator");
  }
  impl_ = bind_calls(CommunicatorAccess::context(communicator), std::move(calls), impl_->options());
}

}  // namespace tutti
