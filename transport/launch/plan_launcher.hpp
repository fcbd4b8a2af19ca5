// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "stream/streams.hpp"
#include "transport/launch/operands.hpp"
#include "transport/plan/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {
class JitCombination;
}

namespace tutti::transport {

/// Holds the events of one launch. They are returned when it is enqueued, as a wait remembers what it saw.
class Marks {
 public:
  Marks(Runtime& runtime, std::size_t count) : runtime_(runtime), marks_(count) {}

  void record(MarkId id, backend::StreamRef stream) {
    Mark& mark = marks_[id];
    mark = {PooledEvent(runtime_.part<EventPool>(), stream.device), stream};
    mark.event.record(stream);
  }
  void wait(MarkId id, backend::StreamRef stream) {
    // Lanes may share a stream (captures, replays), whose own order is enough then.
    if (marks_[id].stream != stream) runtime_.part<Streams>().wait_event(stream, marks_[id].event.handle());
  }

 private:
  struct Mark {
    PooledEvent event;
    backend::StreamRef stream;
  };
  Runtime& runtime_;
  std::vector<Mark> marks_;
};

/// Launches a plan once: visits its steps in order and enqueues each on its lane. The arguments must outlive
/// it; the operands have memory and a stream for all buffers and lanes of the plan.
class PlanLauncher {
 public:
  /// `team` is the team's call that a team's plan is launched for.
  PlanLauncher(Runtime& runtime, const Plan& plan, const Operands& operands,
               const TeamBinding* team = nullptr);

  /// Enqueues all steps. Throws the errors of the backend and of libraries; what was enqueued before then
  /// runs.
  void run();
  /// Enqueues the steps of the body only, like `run`.
  void run_body();

 private:
  void run(const Step& step);
  [[nodiscard]] backend::StreamRef stream(LaneId lane) const { return binding_.lanes[lane]; }

  void enqueue(const RecordStep& step) { marks_.record(step.mark, stream(step.lane)); }
  void enqueue(const WaitStep& step) { marks_.wait(step.mark, stream(step.lane)); }
  void enqueue(const CopyStep& step);
  void enqueue(const FanOutStep& step);
  void enqueue(const ReductionStep& step);
  void enqueue(const AcceleratedStep& step) { step.work->enqueue(binding_); }
  void enqueue(const RoundsStep& step);

  /// Combines elements by the compiled operation, with a kernel for each segment.
  void combine(const ReductionStep& step);
  /// Returns the addresses of a kernel's places; valid until the next call.
  std::span<std::byte* const> resolve(const std::vector<Place>& places);

  Runtime& runtime_;
  backend::Backend& backend_;
  const Plan& plan_;
  const JitCombination* combination_;  ///< nullptr: the backend's kernels combine
  Binding binding_;
  Marks marks_;
  std::vector<std::byte*> pointers_;
};

}  // namespace tutti::transport
