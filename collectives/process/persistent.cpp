// SPDX-License-Identifier: Apache-2.0
#include "tutti/persistent.hpp"

#include "base/fork_mark.hpp"
#include "collectives/call/persistent_impl.hpp"
#include "collectives/process/prepare.hpp"
#include "device/capture_gate.hpp"
#include "device/foreign_memory.hpp"
#include "diagnostics/watching.hpp"
#include "stream/event_pool.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "transport/select/select.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::Call;
using collectives::Packing;
using collectives::PackingPolicy;
using transport::Operands;
using transport::Plan;

/// One collective of this process: the graph of its plan.
class BoundCollective final : public PersistentCollective::Impl {
 public:
  /// `tensors` are the call's operands, to be kept alive.
  BoundCollective(Call call, std::vector<Tensor> tensors)
      : runtime_(call.runtime()),
        tensors_(std::move(tensors)),
        name_(call.request().name),
        bytes_(call.request().bytes()),
        plan_(call.plan(transport::LaunchMode::persistent)),
        operands_(std::move(call.operands())),
        stand_ins_(call.has_foreign_memory() ? transport::StandIns(runtime_, *plan_, operands_, name_)
                                             : transport::StandIns()),
        temporaries_(transport::allocate_temporaries(runtime_, *plan_, operands_.lanes)) {
    mark_lanes();
    if (!plan_->steps.empty()) record_graph();
  }
  ~BoundCollective() override {
    if (fork_mark_.is_in_child()) return;  // all of it is its parent's
    // Launches may still be running: the allocators hand the memory out again only when these streams have
    // passed.
    for (const Stream& stream : launched_on_) {
      for (const Tensor& tensor : tensors_) tensor.record_stream(stream);
      for (const auto& temporary : temporaries_) temporary->record_stream(stream);
      stand_ins_.record_stream(stream);
    }
    if (graph_ != nullptr) runtime_.backend().destroy_graph(graph_);
  }

  void launch(const Stream& stream) override {
    if (plan_->steps.empty()) return;
    const backend::StreamRef home = StreamAccess::ref(stream);
    const watching::CallRange range([&] {
      return watching::WatchedCall{.runtime = &runtime_,
                                   .name = name_,
                                   .bytes = bytes_,
                                   .plan = plan_->summary,
                                   .explain = [this] { return explain(); },
                                   .streams = std::span(&home, 1)};
    });
    if (!stand_ins_.empty()) range.note_stand_ins();
    if (!marks_.empty()) follow_lanes(home);
    if (std::ranges::find(launched_on_, stream) == launched_on_.end()) launched_on_.push_back(stream);
    runtime_.backend().launch_graph(graph_, home);
  }

  void launch_on(StreamList) override {
    throw Error(
        ErrorCode::invalid_argument,
        "PersistentCollective::launch: streams: this is a collective of one process, expected one stream");
  }

  [[nodiscard]] int home_device() const noexcept override {
    return plan_->lane_devices.empty() ? 0 : plan_->lane_devices[plan_->home_lane];
  }
  [[nodiscard]] std::string explain() const override {
    std::string text = transport::to_text(*plan_);
    if (!stand_ins_.empty()) {
      text +=
          fmt::format("memory goes through stand-ins, copies that take time and room in each launch, as {}\n",
                      closed_to_peers);
    }
    return text;
  }
  [[nodiscard]] PlanSummary summary() const override {
    PlanSummary summary = plan_->summary;
    if (!stand_ins_.empty()) summary.algorithm += transport::through_stand_ins;
    return summary;
  }

 private:
  /// Streams of its own for every lane, which nobody else can be using.
  class LaneStreams {
   public:
    LaneStreams(Runtime& runtime, const std::vector<int>& devices) : LaneStreams(runtime) {
      for (const int device : devices) streams_.push_back(runtime.backend().create_stream(device, 0));
    }
    LaneStreams(const LaneStreams&) = delete;
    LaneStreams& operator=(const LaneStreams&) = delete;
    ~LaneStreams() {
      if (fork_mark_.is_in_child()) return;
      for (const backend::StreamRef stream : streams_) runtime_.backend().destroy_stream(stream);
    }
    [[nodiscard]] const std::vector<backend::StreamRef>& streams() const noexcept { return streams_; }

   private:
    /// The one above delegates to this, so that streams already made go when making another fails.
    explicit LaneStreams(Runtime& runtime) : runtime_(runtime) {}

    ForkMark fork_mark_;
    Runtime& runtime_;
    std::vector<backend::StreamRef> streams_;
  };

  /// Marks what is queued on the lanes of stand-ins: it may still use what was in their memory before, and
  /// launches are on other streams.
  void mark_lanes() {
    stand_ins_.visit_lanes([this](transport::LaneId lane) {
      const backend::StreamRef stream = operands_.lanes[lane];
      if (runtime_.backend().is_capturing(stream)) return;  // memory of the capture's graph
      marks_.emplace_back(runtime_.part<EventPool>(), stream.device).record(stream);
    });
  }

  /// Makes a launch on `home` follow the marks that have not been passed.
  void follow_lanes(backend::StreamRef home) {
    if (runtime_.backend().is_capturing(home)) return;  // which cannot wait for what is queued outside
    std::erase_if(marks_,
                  [this](const PooledEvent& mark) { return runtime_.backend().has_passed(mark.handle()); });
    for (const PooledEvent& mark : marks_) runtime_.part<Streams>().wait_event(home, mark.handle());
  }

  void record_graph() {
    const LaneStreams capture(runtime_, plan_->lane_devices);
    Operands operands = operands_;
    operands.lanes = capture.streams();
    const backend::StreamRef home = capture.streams()[plan_->home_lane];
    backend::Backend& backend = runtime_.backend();
    const CaptureGate::Capture begun(runtime_.part<CaptureGate>());
    backend.begin_capture(home, CaptureErrorMode::thread);
    try {
      transport::launch_body(runtime_, *plan_, operands, home, temporaries_, stand_ins_);
    } catch (...) {
      abandon_capture(home);
      throw;
    }
    graph_ = backend.end_capture(home, nullptr);
  }

  /// Ends a capture that failed half-way; the failure that caused it is the one to report.
  void abandon_capture(backend::StreamRef home) noexcept {
    try {
      runtime_.backend().destroy_graph(runtime_.backend().end_capture(home, nullptr));
    } catch (const Error&) {
      return;
    }
  }

  Runtime& runtime_;
  ForkMark fork_mark_;
  std::vector<Tensor> tensors_;
  std::string_view name_;
  std::uint64_t bytes_;
  std::shared_ptr<const Plan> plan_;
  Operands operands_;
  transport::StandIns stand_ins_;
  std::vector<detail::IntrusivePtr<Storage>> temporaries_;
  std::vector<PooledEvent> marks_;
  backend::GraphHandle graph_ = nullptr;
  std::vector<Stream> launched_on_;
};

}  // namespace

PersistentCollective::PersistentCollective(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
PersistentCollective::PersistentCollective(PersistentCollective&&) noexcept = default;
PersistentCollective& PersistentCollective::operator=(PersistentCollective&&) noexcept = default;
PersistentCollective::~PersistentCollective() = default;

void PersistentCollective::launch(const Stream& stream) {
  if (stream.device() != home_device()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "PersistentCollective::launch: stream is a stream of device {}, expected one of device {}",
            stream.device(), home_device()));
  }
  impl_->launch(stream);
}
void PersistentCollective::launch(StreamList streams) {
  impl_->launch_on(streams);
}
void PersistentCollective::launch() {
  impl_->launch(current_stream(home_device()));
}
int PersistentCollective::home_device() const noexcept {
  return impl_->home_device();
}
std::string PersistentCollective::explain() const {
  return impl_->explain();
}
PlanSummary PersistentCollective::summary() const {
  return impl_->summary();
}

namespace {

void require_pinned_source(const Arguments& arguments, const Tensor& tensor, const collectives::Name& name) {
  if (tensor.device().is_host() && !tensor.is_pinned()) {
    arguments.fail(
        "{} is in pageable host memory, expected pinned memory: a persistent collective is replayed without "
        "the host",
        name);
  }
}

std::vector<Tensor> joined(TensorList a, TensorList b) {
  std::vector<Tensor> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::vector<Tensor> flattened(TensorLists lists, TensorList more) {
  std::vector<Tensor> all(more.begin(), more.end());
  for (const std::vector<Tensor>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

PersistentCollective bind(Call call, std::vector<Tensor> tensors) {
  return PersistentCollective(std::make_unique<BoundCollective>(std::move(call), std::move(tensors)));
}

}  // namespace

PersistentCollective persistent_broadcast(const Tensor& tensor, TensorList out,
                                          const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_broadcast", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_broadcast(arguments, packing, tensor, out, options);
  require_pinned_source(arguments, tensor, "tensor");
  return bind(std::move(call), joined(TensorList{tensor}, out));
}

PersistentCollective persistent_broadcast_coalesced(TensorList tensors, TensorLists out,
                                                    std::size_t buffer_size,
                                                    const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_broadcast_coalesced", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_broadcast_coalesced(arguments, packing, tensors, out, buffer_size, options);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    require_pinned_source(arguments, tensors[t], collectives::Name("tensors", t));
  }
  return bind(std::move(call), flattened(out, tensors));
}

PersistentCollective persistent_reduce_add(TensorList inputs, const Tensor& out,
                                           const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_reduce_add", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_reduce(arguments, packing, {"reduce_add", ReduceOp::sum}, inputs, out, options);
  return bind(std::move(call), joined(inputs, TensorList{out}));
}

PersistentCollective persistent_reduce_add_coalesced(TensorLists inputs, TensorList out,
                                                     std::size_t buffer_size,
                                                     const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_reduce_add_coalesced", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_reduce_coalesced(arguments, packing, {"reduce_add_coalesced", ReduceOp::sum}, inputs,
                                       out, buffer_size, options);
  return bind(std::move(call), flattened(inputs, out));
}

PersistentCollective persistent_reduce(TensorList inputs, const Tensor& out, const ReduceOp& op,
                                       const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_reduce", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_reduce(arguments, packing, {"reduce", op}, inputs, out, options);
  return bind(std::move(call), joined(inputs, TensorList{out}));
}

PersistentCollective persistent_reduce_coalesced(TensorLists inputs, TensorList out, const ReduceOp& op,
                                                 std::size_t buffer_size, const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_reduce_coalesced", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_reduce_coalesced(arguments, packing, {"reduce_coalesced", op}, inputs, out, buffer_size,
                                       options);
  return bind(std::move(call), flattened(inputs, out));
}

PersistentCollective persistent_scatter(const Tensor& tensor, TensorList out, int dim,
                                        const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_scatter", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_scatter(arguments, packing, tensor, out, dim, {}, options);
  require_pinned_source(arguments, tensor, "tensor");
  return bind(std::move(call), joined(TensorList{tensor}, out));
}

PersistentCollective persistent_gather(TensorList tensors, const Tensor& out, int dim,
                                       const CollectiveOptions& options) {
  const Arguments arguments(Runtime::get(), "persistent_gather", options);
  Packing packing(arguments, PackingPolicy::refuse);
  Call call = prepare_gather(arguments, packing, tensors, out, dim, options);
  return bind(std::move(call), joined(tensors, TensorList{out}));
}

}  // namespace tutti
