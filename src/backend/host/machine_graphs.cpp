// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"
#include "backend/host/queues/host_graph.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

/// Graphs of the virtual machine. A stream that is being captured has its entries recorded instead of queued.
/// A launch queues copies of them: those of the stream on which the capture began on the stream that the
/// graph is launched on, those of others on streams of the graph's own, with the waits between them. So the
/// interleaver orders them like any other work.
namespace tutti::backend::host {
namespace {

HostGraph& graph_of(GraphHandle graph) {
  return *reinterpret_cast<HostGraph*>(graph);
}

[[noreturn]] void refuse_capture(const std::string& reason) {
  throw Error(ErrorCode::unsupported, reason);
}

std::string words_for(const StreamWorker& stream) {
  return fmt::format("stream {} of device {}", stream.id(), stream.device());
}

}  // namespace

std::shared_ptr<Capture> Machine::open_capture_of(const StreamWorker& stream) {
  const auto found = std::ranges::find_if(captures_, [&stream](const auto& capture) {
    return std::ranges::find(capture->streams(), &stream) != capture->streams().end();
  });
  return found == captures_.end() ? nullptr : *found;
}

Capture& Machine::valid_capture_of(const StreamWorker& stream, std::string_view call) {
  const std::shared_ptr<Capture> capture = open_capture_of(stream);
  if (capture == nullptr)
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: the stream is not being captured", call));
  if (!capture->is_valid()) {
    refuse_capture(fmt::format("{}: the stream is being captured, and the capture has become invalid: {}",
                               call, capture->complaint()));
  }
  return *capture;
}

bool Machine::record_if_captured(const StreamWorker& stream, std::unique_ptr<Task>& task) {
  if (!stream.is_captured()) [[likely]]
    return false;
  const std::lock_guard lock(captures_mutex_);
  if (!stream.is_captured()) return false;
  Capture& capture = valid_capture_of(stream, task->name());
  capture.add(stream, std::move(task));
  return true;
}

bool Machine::mark_if_captured(const StreamWorker& stream, HostEvent& event) {
  if (!stream.is_captured()) [[likely]]
    return false;
  const std::lock_guard lock(captures_mutex_);
  if (!stream.is_captured()) return false;
  Capture& capture = valid_capture_of(stream, "record_event");
  event.set_ticket({.captured = std::make_shared<CapturedMark>(
                        CapturedMark{open_capture_of(stream), capture.mark(stream)})});
  return true;
}

bool Machine::wait_if_captured(StreamWorker& stream, const Ticket& ticket) {
  if (!stream.is_captured() && ticket.captured == nullptr) [[likely]]
    return false;
  const std::lock_guard lock(captures_mutex_);
  const std::shared_ptr<Capture> here = open_capture_of(stream);
  if (ticket.captured == nullptr) {
    if (here == nullptr) return false;
    static_cast<void>(valid_capture_of(stream, "wait_event"));
    here->invalidate("a stream was to wait for an event that was recorded outside the capture");
    refuse_capture(
        "wait_event: the stream is being captured, and the event was recorded outside the capture");
  }
  Capture& there = *ticket.captured->capture;
  if (!there.is_open()) {
    refuse_capture(
        "wait_event: the event was recorded in a capture that has ended: record it anew to wait for it");
  }
  if (here != nullptr && here.get() != &there) {
    for (Capture* const capture : {here.get(), &there})
      capture->invalidate("a stream of one capture was to wait for an event of another");
    refuse_capture("wait_event: the stream and the event are parts of different captures");
  }
  if (!there.is_valid()) {
    refuse_capture(fmt::format("wait_event: the event is part of a capture that has become invalid: {}",
                               there.complaint()));
  }
  if (&stream == device_at(stream.device()).default_stream) {
    there.invalidate("a default stream was to wait for an event of the capture");
    refuse_capture(
        fmt::format("wait_event: the event is part of a capture, and the default stream of device "
                    "{} cannot be captured",
                    stream.device()));
  }
  there.wait(stream, ticket.captured->mark);
  stream.set_captured(true);
  return true;
}

void Machine::require_uncaptured(const StreamWorker& stream, std::string_view call) {
  if (!stream.is_captured()) [[likely]]
    return;
  const std::lock_guard lock(captures_mutex_);
  const std::shared_ptr<Capture> capture = open_capture_of(stream);
  if (capture == nullptr) return;
  capture->invalidate(fmt::format("{} was called for a stream that is part of it", call));
  refuse_capture(
      fmt::format("{}: {} is being captured: the host can neither wait for it nor ask how far it is", call,
                  words_for(stream)));
}

void Machine::require_uncaptured(const Ticket& ticket, std::string_view call) {
  if (ticket.captured == nullptr) [[likely]]
    return;
  const std::lock_guard lock(captures_mutex_);
  Capture& capture = *ticket.captured->capture;
  if (capture.is_open())
    capture.invalidate(fmt::format("{} was called for an event that is part of it", call));
  refuse_capture(fmt::format(
      "{}: the event was recorded during a capture: the host can neither wait for it nor ask about it",
      call));
}

void Machine::require_uncaptured_device(int device, std::string_view call) {
  if (captures_open_.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  const std::lock_guard lock(captures_mutex_);
  for (const std::shared_ptr<Capture>& capture : captures_) {
    if (!capture->involves(device)) continue;
    capture->invalidate(
        fmt::format("{} was called for device {}, of which a stream is part of it", call, device));
    refuse_capture(fmt::format(
        "{}: a stream of device {} is being captured: the host cannot wait for the device", call, device));
  }
}

void Machine::leave_capture(StreamWorker& stream) noexcept {
  if (!stream.is_captured()) return;
  Recording dropped;  // not under the lock: what was recorded may own what comes back here
  const std::lock_guard lock(captures_mutex_);
  if (const std::shared_ptr<Capture> capture = open_capture_of(stream)) {
    capture->invalidate("a stream that is part of it was destroyed");
    if (&capture->origin() == &stream) {  // it cannot end any more
      dropped = close(*capture);
    } else {
      capture->forget(stream);
    }
  }
  stream.set_captured(false);
}

Recording Machine::close(Capture& capture) {
  for (StreamWorker* const captured : capture.streams()) {
    if (captured != nullptr) captured->set_captured(false);
  }
  Recording recording = capture.end();
  std::erase_if(captures_, [&capture](const auto& open) { return open.get() == &capture; });
  --captures_open_;
  return recording;
}

bool Machine::is_capturing(StreamRef stream) {
  return worker_of(stream).is_captured();
}

std::uint64_t Machine::capture_id(StreamRef stream) {
  const StreamWorker& worker = worker_of(stream);
  if (!worker.is_captured()) return 0;
  const std::lock_guard lock(captures_mutex_);
  return worker.is_captured() ? valid_capture_of(worker, "capture_id").id() : 0;
}

bool Machine::has_capture_on(int device) {
  if (captures_open_.load() == 0) return false;
  const std::lock_guard lock(captures_mutex_);
  return std::ranges::any_of(captures_, [device](const auto& capture) { return capture->involves(device); });
}

void Machine::begin_capture(StreamRef stream, CaptureErrorMode mode) {
  StreamWorker& worker = worker_of(stream);
  if (&worker == device_at(worker.device()).default_stream) {
    refuse_capture(
        fmt::format("begin_capture: the stream is the default stream of device {}, which cannot be "
                    "captured; expected another one",
                    worker.device()));
  }
  const std::lock_guard lock(captures_mutex_);
  if (worker.is_captured()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("begin_capture: {} is being captured already", words_for(worker)));
  }
  const auto ends_on = mode == CaptureErrorMode::relaxed ? std::thread::id() : std::this_thread::get_id();
  captures_.push_back(std::make_shared<Capture>(++last_capture_, worker, ends_on));
  ++captures_open_;
  worker.set_captured(true);
}

GraphHandle Machine::end_capture(StreamRef stream, std::string* description) {
  StreamWorker& worker = worker_of(stream);
  // Recorded resources may call back here when they are destroyed: not under the lock.
  auto graph = std::make_unique<HostGraph>();
  const std::lock_guard lock(captures_mutex_);
  const std::shared_ptr<Capture> capture = open_capture_of(worker);
  if (capture == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("end_capture: {} is not being captured", words_for(worker)));
  }
  const std::thread::id ends_on = capture->ends_on();
  if (ends_on != std::thread::id() && ends_on != std::this_thread::get_id()) {
    refuse_capture(
        fmt::format("end_capture: the capture of {} was begun by another thread, which has to end it",
                    words_for(worker)));
  }
  if (&capture->origin() != &worker) {
    capture->invalidate("it was to end on another stream than the one it began on");
    refuse_capture(fmt::format("end_capture: the capture began on {}, and cannot end on {}",
                               words_for(capture->origin()), words_for(worker)));
  }
  const StreamWorker* const unjoined = capture->unjoined();
  graph->recording = std::make_shared<const Recording>(close(*capture));
  if (!capture->is_valid()) {
    refuse_capture(fmt::format("end_capture: the capture has become invalid: {}", capture->complaint()));
  }
  if (unjoined != nullptr) {
    refuse_capture(
        fmt::format("end_capture: the capture has unjoined work on {}: {}, on which the capture began, must "
                    "wait for it before",
                    words_for(*unjoined), words_for(worker)));
  }
  if (description != nullptr) *description = describe(*graph->recording);
  graph->streams.resize(graph->recording->lane_devices.size());
  HostGraph* const made = graph.get();
  graphs_.emplace(made, std::move(graph));
  return reinterpret_cast<GraphHandle>(made);
}

void Machine::launch_graph(GraphHandle handle, StreamRef stream) {
  HostGraph& graph = graph_of(handle);
  StreamWorker& target = worker_of(stream);
  if (target.is_captured()) {
    const std::lock_guard lock(captures_mutex_);
    return valid_capture_of(target, "launch_graph").add(target, graph.recording);
  }
  const std::lock_guard lock(graph.mutex);
  const Recording& recording = *graph.recording;
  std::vector<std::unique_ptr<Task>> tasks;
  for (const GraphEntry& entry : recording.entries) {
    tasks.push_back(entry.task == nullptr ? nullptr : entry.task->clone());
    if (tasks.back() != nullptr) tasks.back()->begin_launch();
  }
  const std::vector<StreamWorker*> streams = streams_for_launch(graph, target);

  const auto follow = [this](StreamWorker& later, Ticket earlier) {
    if (!earlier.recorded() || earlier.progress == later.progress()) return;
    if (!earlier.complete() || interleaver_->active())
      submit(later, std::make_unique<WaitTask>(std::move(earlier)));
  };
  const auto now = [](const StreamWorker& worker) {
    return Ticket{.progress = worker.progress(), .position = worker.progress()->submitted()};
  };
  follow(target, graph.latest);
  StreamWorker& origin = *streams.front();
  follow(origin, now(target));
  // By lane: what a wait for so many of its entries waits for.
  std::vector<std::vector<std::uint64_t>> positions(streams.size());
  positions.front().push_back(origin.progress()->submitted());
  for (std::size_t lane = 1; lane < positions.size(); ++lane) positions[lane].push_back(0);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const GraphEntry& entry = recording.entries[i];
    std::unique_ptr<Task>& task = tasks[i];
    if (task == nullptr) {
      task = std::make_unique<WaitTask>(
          Ticket{.progress = streams[entry.awaited_lane]->progress(),
                 .position = positions[entry.awaited_lane][static_cast<std::size_t>(entry.awaited)]});
    }
    positions[entry.lane].push_back(submit(*streams[entry.lane], std::move(task)));
  }
  follow(target, now(origin));
  // The resources of the graph stay until the launch is over.
  const std::uint64_t end =
      submit(target, make_task("graph", [kept = graph.recording] { static_cast<void>(kept); }));
  graph.latest = {.progress = target.progress(), .position = end};
  if (is_in_stream_work()) ++queued_by_work_;
  end_kernel(stream);
  if (!launches_block() || is_in_stream_work()) return;
  for (const int device : recording.lane_devices) report_failures(device);
}

std::vector<StreamWorker*> Machine::streams_for_launch(HostGraph& graph, StreamWorker& target) {
  const std::vector<int>& devices = graph.recording->lane_devices;
  for (std::size_t lane = 0; lane < devices.size(); ++lane) {
    if (graph.streams[lane] != nullptr || (lane == 0 && target.device() == devices.front())) continue;
    const std::lock_guard lock(streams_mutex_);
    graph.streams[lane] = &add_stream(devices[lane], 0);
  }
  std::vector<StreamWorker*> streams = graph.streams;
  if (target.device() == devices.front()) streams.front() = &target;
  for (StreamWorker* const worker : streams) worker->start();  // nothing is queued if there is no thread left
  return streams;
}

void Machine::destroy_graph(GraphHandle handle) noexcept {
  if (handle == nullptr) return;
  std::unique_ptr<HostGraph> graph;
  {
    const std::lock_guard lock(captures_mutex_);
    const auto found = graphs_.find(&graph_of(handle));
    if (found == graphs_.end()) return;
    graph = std::move(found->second);
    graphs_.erase(found);
  }
  for (StreamWorker* const worker : graph->streams) {
    if (worker != nullptr) destroy_stream({reinterpret_cast<StreamHandle>(worker), worker->device()});
  }
}

void Machine::retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) {
  const StreamWorker& worker = worker_of(stream);
  const std::lock_guard lock(captures_mutex_);
  const std::shared_ptr<Capture> capture = open_capture_of(worker);
  if (capture != nullptr && capture->is_valid()) capture->retain(std::move(resource));
}

}  // namespace tutti::backend::host
