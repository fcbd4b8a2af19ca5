// SPDX-License-Identifier: Apache-2.0
#include "transport/launch/plan_launcher.hpp"

#include "jit/jit_combination.hpp"
#include "transport/rounds/round_launcher.hpp"

#include <algorithm>
#include <variant>

namespace tutti::transport {

PlanLauncher::PlanLauncher(Runtime& runtime, const Plan& plan, const Operands& operands,
                           const TeamBinding* team)
    : runtime_(runtime),
      backend_(runtime.backend()),
      plan_(plan),
      combination_(ReduceOpAccess::combination(operands.operation)),
      binding_{backend_,       operands.addresses,
               operands.lanes, {operands.operation.kind(), operands.operation.factors()},
               team,           plan.most_multiprocessors},
      marks_(runtime, plan.mark_count) {}

void PlanLauncher::run() {
  for (const PlannedStep& planned : plan_.steps) run(planned.step);
}

void PlanLauncher::run_body() {
  for (const PlannedStep& planned : plan_.steps) {
    if (planned.phase == Phase::body) run(planned.step);
  }
}

void PlanLauncher::run(const Step& step) {
  std::visit([this](const auto& s) { enqueue(s); }, step);
}

void PlanLauncher::enqueue(const CopyStep& step) {
  backend_.copy(stream(step.lane), {.target = binding_.at(step.target),
                                    .target_pitch = step.target_pitch,
                                    .source = binding_.at(step.source),
                                    .source_pitch = step.source_pitch,
                                    .row_bytes = step.row_bytes,
                                    .rows = step.rows});
}

void PlanLauncher::enqueue(const FanOutStep& step) {
  backend_.fan_out(stream(step.lane), {.segments = step.segments,
                                       .pointers = resolve(step.pointers),
                                       .most_multiprocessors = binding_.most_multiprocessors});
}

void PlanLauncher::enqueue(const ReductionStep& step) {
  if (combination_ != nullptr) return combine(step);
  backend_.ordered_reduction(stream(step.lane), {.dtype = step.dtype,
                                                 .reducing = binding_.reducing,
                                                 .input_count = step.input_count,
                                                 .output_count = 1,
                                                 .segments = step.segments,
                                                 .pointers = resolve(step.pointers),
                                                 .most_multiprocessors = binding_.most_multiprocessors});
}

void PlanLauncher::enqueue(const RoundsStep& step) {
  binding_.team->launcher.launch(binding_.team->sequence, *step.rounds, binding_);
}

void PlanLauncher::combine(const ReductionStep& step) {
  const std::span<std::byte* const> pointers = resolve(step.pointers);
  for (const backend::OrderedReductionSegment& segment : step.segments) {
    const auto inputs = pointers.subspan(segment.first_input, step.input_count);
    const std::vector<const void*> operands(inputs.begin(), inputs.end());
    combination_->run(runtime_, stream(step.lane), step.dtype, pointers[segment.first_output], operands,
                      segment.count);
  }
}

std::span<std::byte* const> PlanLauncher::resolve(const std::vector<Place>& places) {
  pointers_.resize(places.size());
  std::ranges::transform(places, pointers_.begin(), [this](Place place) { return binding_.at(place); });
  return pointers_;
}

}  // namespace tutti::transport
