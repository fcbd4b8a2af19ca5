// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

/// Streams, events and signals of the virtual machine.
namespace tutti::backend::host {

using virtual_devices::Operation;

namespace {

/// About what a GPU's queues hold. Entries take about a kilobyte each.
constexpr std::uint64_t longest_queue = 1024;
/// Without an entry coming to its end, until as much again is let in: the stream may wait for what this very
/// thread does next, or others that wait for it.
constexpr std::chrono::milliseconds queue_patience{100};

HostEvent& event_of(EventHandle event) {
  return *reinterpret_cast<HostEvent*>(event);
}

std::chrono::steady_clock::time_point time_of(const HostEvent& event, std::string_view argument) {
  const Ticket ticket = event.ticket();
  const auto refuse = [argument](std::string_view reason) {
    throw Error(ErrorCode::invalid_argument, fmt::format("elapsed_time: the {} event {}", argument, reason));
  };
  if (event.timing() == EventTiming::off) refuse("was created with timing off");
  if (!ticket.recorded()) refuse("was never recorded");
  if (ticket.captured != nullptr) refuse("was recorded during a capture");
  if (!ticket.complete()) refuse("is not complete");
  return ticket.stamp->time;
}

}  // namespace

StreamWorker& Machine::add_stream(int device, int priority) {
  VirtualDevice& owner = device_at(device);
  return *streams_.emplace_back(std::make_unique<StreamWorker>(device, owner.streams_created++, priority,
                                                               owner.failures, *interleaver_));
}

std::uint64_t Machine::submit(StreamWorker& worker, std::unique_ptr<Task> task) {
  if (record_if_captured(worker, task)) return 0;
  make_room(worker);
  return interleaver_->submit(worker, std::move(task));
}

void Machine::make_room(StreamWorker& worker) {
  Progress& progress = *worker.progress();
  // Work that queues work is not held up: the stream may be waiting for it.
  if (progress.submitted() < progress.room.load(std::memory_order_relaxed) || is_in_stream_work()) return;
  for (;;) {
    const std::uint64_t submitted = progress.submitted();
    const std::uint64_t completed = progress.completed();
    if (submitted - completed < longest_queue) return progress.room.store(completed + longest_queue);
    // Somewhat more than one entry's, as to be woken for each would take longer than the entry.
    const std::uint64_t wanted = submitted - longest_queue + longest_queue / 8;
    const auto deadline = std::chrono::steady_clock::now() + queue_patience;
    bool is_reached = false;
    do {
      interleaver_->wait_elsewhere();
      constexpr std::chrono::milliseconds look{1};
      is_reached = progress.wait_until(
          wanted, interleaver_->active() ? std::chrono::steady_clock::now() + look : deadline);
    } while (!is_reached && std::chrono::steady_clock::now() < deadline);
    if (!is_reached && progress.completed() == completed)
      return progress.room.store(submitted + longest_queue);
  }
}

void Machine::end_kernel(StreamRef stream) {
  if (launches_block()) return end_launch(stream);
  if (!kernels_block_.load(std::memory_order_relaxed) || is_in_stream_work()) return;
  if (worker_of(stream).is_captured()) return;
  const auto& progress = worker_of(stream).progress();
  wait_until(progress, progress->submitted(), host_spin);
}

void Machine::end_launch(StreamRef stream) {
  if (!launches_block() || is_in_stream_work() || worker_of(stream).is_captured()) return;
  const auto& progress = worker_of(stream).progress();
  wait_until(progress, progress->submitted(), host_spin);
  report_failures(stream.device);
}

StreamRef Machine::default_stream(int device) {
  return {reinterpret_cast<StreamHandle>(device_at(device).default_stream), device};
}

StreamRef Machine::create_stream(int device, int priority) {
  if (faults_.disturb(Operation::create_stream, device).refused) {
    throw Error(ErrorCode::device_failure,
                fmt::format("create_stream on device {} was refused by an injected fault", device));
  }
  const std::lock_guard lock(streams_mutex_);
  reap_retired_streams();
  return {reinterpret_cast<StreamHandle>(&add_stream(device, priority)), device};
}

int Machine::stream_priority(StreamRef stream) {
  return worker_of(stream).priority();
}

std::optional<int> Machine::device_of(StreamRef stream) {
  const std::lock_guard lock(streams_mutex_);
  const auto found = std::ranges::find_if(streams_, [stream](const auto& worker) {
    return reinterpret_cast<StreamHandle>(worker.get()) == stream.handle;
  });
  return found == streams_.end() ? std::nullopt : std::optional((*found)->device());
}

void Machine::destroy_stream(StreamRef stream) noexcept {
  StreamWorker& worker = worker_of(stream);
  leave_capture(worker);
  const std::lock_guard lock(streams_mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&worker](const auto& other) { return other.get() == &worker; });
  if (found == streams_.end() || &worker == device_at(worker.device()).default_stream) return;
  retired_.push_back(std::move(*found));
  streams_.erase(found);
  worker.close();
  reap_retired_streams();
}

void Machine::reap_retired_streams() {
  std::erase_if(retired_, [](const auto& stream) {
    if (!stream->progress()->idle()) return false;
    stream->join();  // ends now
    return true;
  });
}

bool Machine::query_stream(StreamRef stream) {
  require_uncaptured(worker_of(stream), "query_stream");
  interleaver_->pass_time();
  const bool idle = worker_of(stream).progress()->idle();
  report_failures(stream.device);
  return idle;
}

void Machine::synchronize_stream(StreamRef stream) {
  const StreamWorker& worker = worker_of(stream);
  require_uncaptured(worker, "synchronize_stream");
  if (worker.is_running_here()) return;  // what was queued before is over, and the rest waits for the caller
  const auto& progress = worker.progress();
  wait_until(progress, progress->submitted(), host_spin);
  report_failures(stream.device);
}

void Machine::wait_event(StreamRef stream, EventHandle event) {
  StreamWorker& worker = worker_of(stream);
  if (const auto& marks = event_of(event).marks()) {
    require_uncaptured(worker, "wait_event, for an event that other processes share,");
    const std::optional<SharedMarks::Mark> latest = marks->latest();
    if (!latest || (marks->reached(*latest) && !interleaver_->active())) return;
    submit(worker, std::make_unique<SharedMarkTask>("wait_event", marks, latest));
    return;
  }
  Ticket ticket = event_of(event).ticket();
  if (!ticket.recorded() || wait_if_captured(worker, ticket)) return;
  if (ticket.progress == worker.progress()) return;  // a stream waits for itself anyway
  if (ticket.complete() && !interleaver_->active()) return;
  submit(worker, std::make_unique<WaitTask>(std::move(ticket)));
}

bool Machine::is_in_stream_work() const noexcept {
  return StreamWorker::is_any_running_here();
}

void Machine::launch_host_function(StreamRef stream, void (*function)(void*), void* argument) {
  submit(worker_of(stream),
         make_task("host function", counted(stream, [function, argument] { function(argument); })));
  if (is_in_stream_work()) ++queued_by_work_;
  end_launch(stream);
}

void Machine::require_event(int device) {
  if (!faults_.disturb(Operation::create_event, device).refused) return;
  throw Error(ErrorCode::device_failure,
              fmt::format("create_event on device {} was refused by an injected fault", device));
}

EventHandle Machine::add_event(std::unique_ptr<HostEvent> event) {
  HostEvent* const added = event.get();
  const std::lock_guard lock(events_mutex_);
  events_.emplace(added, std::move(event));
  return reinterpret_cast<EventHandle>(added);
}

EventHandle Machine::create_event(int device, EventTiming timing, EventWait wait) {
  require_event(device);
  return add_event(std::make_unique<HostEvent>(device, timing, wait));
}

EventHandle Machine::create_shared_event(int device, EventWait wait) {
  require_event(device);
  return add_event(std::make_unique<HostEvent>(device, wait, std::make_shared<SharedMarks>(device)));
}

SharedEventHandle Machine::share_event(EventHandle event) {
  return event_of(event).marks()->share();
}

EventHandle Machine::open_event(int device, const SharedEventHandle& handle) {
  require_event(device);
  return add_event(
      std::make_unique<HostEvent>(device, EventWait::spin, std::make_shared<SharedMarks>(device, handle)));
}

void Machine::destroy_event(EventHandle event) noexcept {
  // Waiters hold the ticket, not the event.
  const std::lock_guard lock(events_mutex_);
  events_.erase(&event_of(event));
}

void Machine::record_event(EventHandle event, StreamRef stream) {
  StreamWorker& worker = worker_of(stream);
  HostEvent& recorded = event_of(event);
  if (const auto& marks = recorded.marks()) {
    require_uncaptured(worker, "record_event, of an event that other processes share,");
    marks->record(worker.progress(), [&](const SharedMarks::Begun& begun) {
      submit(worker, std::make_unique<SharedMarkTask>("record_event", marks, begun.after, begun.mark));
    });
    return;
  }
  if (mark_if_captured(worker, recorded)) return;
  if (recorded.timing() == EventTiming::off) {
    recorded.set_ticket({worker.progress(), worker.progress()->submitted(), nullptr});
    return;
  }
  auto stamp = std::make_shared<TimeStamp>();
  const std::uint64_t position =
      submit(worker, make_task("record_event", [stamp] { stamp->time = std::chrono::steady_clock::now(); }));
  recorded.set_ticket({worker.progress(), position, std::move(stamp)});
}

bool Machine::has_passed(EventHandle event) noexcept {
  interleaver_->pass_time();
  if (const auto& marks = event_of(event).marks()) {
    const std::optional<SharedMarks::Mark> latest = marks->latest();
    return !latest || marks->reached(*latest);
  }
  return event_of(event).ticket().complete();
}

bool Machine::query_event(EventHandle event) {
  require_uncaptured(event_of(event).ticket(), "query_event");
  const bool complete = has_passed(event);
  report_failures(event_of(event).device());
  return complete;
}

void Machine::synchronize_event(EventHandle event) {
  if (const auto& marks = event_of(event).marks()) {
    constexpr int turn = 1;  // milliseconds, after which work that is held back goes on
    const std::optional<SharedMarks::Mark> latest = marks->latest();
    while (latest && !marks->wait(*latest, turn)) interleaver_->wait_elsewhere();
    return report_failures(event_of(event).device());
  }
  const Ticket ticket = event_of(event).ticket();
  require_uncaptured(ticket, "synchronize_event");
  const auto spin = event_of(event).wait() == EventWait::spin ? host_spin : std::chrono::nanoseconds{0};
  if (ticket.recorded()) wait_until(ticket.progress, ticket.position, spin);
  report_failures(event_of(event).device());
}

float Machine::elapsed_time(EventHandle start, EventHandle end) {
  const auto from = time_of(event_of(start), "start");
  const auto to = time_of(event_of(end), "end");
  return std::chrono::duration<float, std::milli>(to - from).count();
}

void SignalsTask::run() {
  static const AbortWord never;
  constexpr int turn = 1000;  // milliseconds
  for (SharedFlag& flag : flags_) {
    while (!wait_for_flag(flag, value_, never, turn)) {
    }
  }
}

bool SignalsTask::ready() const noexcept {
  return std::ranges::all_of(flags_, [this](const SharedFlag& flag) {
    return has_reached(flag.value.load(std::memory_order_acquire), value_);
  });
}

void Machine::signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) {
  require_signals(stream);
  submit(worker_of(stream), make_task("signal", [&flag, value] { set_flag(flag, value); }));
}

void Machine::wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) {
  require_signals(stream);
  submit(worker_of(stream), std::make_unique<SignalsTask>(flags, value));
}

void Machine::wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                             SharedFlag& outcome) {
  static const AbortWord never;
  submit(worker_of(stream), make_task("wait_in_kernel", [&flag, longest, &outcome] {
           const bool has_come = wait_for_flag(flag, 1, never, static_cast<int>(longest.count()));
           set_flag(outcome, has_come ? 1 : 2);
         }));
  end_kernel(stream);
}

void Machine::require_signals(StreamRef stream) {
  if (!faults_.disturb(Operation::signal, stream.device).refused) return;
  throw Error(ErrorCode::device_failure,
              fmt::format("a signal on device {} was refused by an injected fault", stream.device));
}

}  // namespace tutti::backend::host
