// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/launch/launch.hpp"
#include "transport/plan/plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {
class JitCombination;
}

namespace tutti::transport {

/// The events of one launch; given back when it is enqueued, because a wait remembers what it saw.
class Marks {
 public:
  Marks(Runtime& runtime, std::size_t count) : runtime_(runtime), marks_(count) {}

  void record(MarkId id, backend::StreamRef stream) {
    Mark& mark = marks_[id];
    mark = {PooledEvent(runtime_.events(), stream.device), stream};
    mark.event.record(stream);
  }
  void wait(MarkId id, backend::StreamRef stream) {
    // Lanes may share a stream (captures, replays), and then its own order is enough.
    if (marks_[id].stream != stream) runtime_.wait_event(stream, marks_[id].event.handle());
  }

 private:
  struct Mark {
    PooledEvent event;
    backend::StreamRef stream;
  };
  Runtime& runtime_;
  std::vector<Mark> marks_;
};

/// One launch of a plan: visits its steps in order, whatever they are, and enqueues each on its lane. The
/// arguments outlive it; the operands have memory and a stream for all buffers and lanes of the plan.
class PlanLauncher {
 public:
  /// `team`: of a team's plan, the call that it is launched for.
  PlanLauncher(Runtime& runtime, const Plan& plan, const Operands& operands,
               const TeamBinding* team = nullptr);

  /// Enqueues all steps. Throws what the backend and libraries throw; what was enqueued before then runs.
  void run();
  /// Likewise, those of the body alone.
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

  /// By the compiled operation: a kernel for each segment.
  void combine(const ReductionStep& step);
  /// The addresses behind a kernel's places; valid until the next call.
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
