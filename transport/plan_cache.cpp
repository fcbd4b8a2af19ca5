// SPDX-License-Identifier: Apache-2.0
#include "transport/plan_cache.hpp"

#include "transport/rounds/round_plan.hpp"

#include <utility>
#include <variant>

namespace tutti::transport {
namespace {

template <class T>
std::size_t bytes_in(const std::vector<T>& list) noexcept {
  return list.capacity() * sizeof(T);
}

template <class Step>
std::size_t bytes_in_tables(const Step&) noexcept {
  return 0;
}
std::size_t bytes_in_tables(const FanOutStep& step) noexcept {
  return bytes_in(step.segments) + bytes_in(step.pointers);
}
std::size_t bytes_in_tables(const ReductionStep& step) noexcept {
  return bytes_in(step.segments) + bytes_in(step.pointers);
}
std::size_t bytes_in_tables(const AcceleratedStep& step) noexcept {
  return step.work->bytes();
}
std::size_t bytes_in_tables(const RoundsStep& step) noexcept {
  return step.rounds->bytes();
}

std::size_t bytes_of(const Plan& plan) noexcept {
  std::size_t bytes = sizeof(Plan) + bytes_in(plan.steps) + bytes_in(plan.homes) + bytes_in(plan.temporaries);
  for (const PlannedStep& planned : plan.steps)
    bytes += std::visit([](const auto& step) { return bytes_in_tables(step); }, planned.step);
  if (plan.process_rounds) bytes += bytes_of(*plan.process_rounds->otherwise);
  return bytes;
}

}  // namespace

std::shared_ptr<const Plan> PlanCache::find(const PlanKey& key) {
  const std::shared_lock lock(mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : found->second;
}

std::shared_ptr<const Plan> PlanCache::keep(const PlanKey& key, Plan made) {
  auto plan = std::make_shared<const Plan>(std::move(made));
  if (plan->is_provisional) return plan;
  const std::scoped_lock lock(mutex_);
  const std::size_t bytes = key.bytes() + bytes_of(*plan);
  if (plans_.size() >= capacity_ || bytes_ + bytes > most_bytes) {
    plans_.clear();
    bytes_ = 0;
  }
  const auto [kept, is_new] = plans_.try_emplace(key, std::move(plan));
  if (is_new) bytes_ += bytes;
  return kept->second;
}

}  // namespace tutti::transport
