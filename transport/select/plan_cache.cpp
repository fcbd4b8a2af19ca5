// SPDX-License-Identifier: Apache-2.0
#include "transport/select/plan_cache.hpp"

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
  if (found == plans_.end()) return nullptr;
  Kept& kept = found->second;
  // Written once, and not by every thread in every call: they would take the line from one another.
  if (!kept.is_in_use.load(std::memory_order_relaxed)) kept.is_in_use.store(true, std::memory_order_relaxed);
  return kept.plan;
}

std::shared_ptr<const Plan> PlanCache::keep(const PlanKey& key, Plan made) {
  auto plan = std::make_shared<const Plan>(std::move(made));
  if (plan->is_provisional) return plan;
  const std::scoped_lock lock(mutex_);
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.plan;
  const std::size_t bytes = key.bytes() + bytes_of(*plan);
  make_room(bytes);
  const auto entry = plans_.try_emplace(key).first;
  try {
    queue_.push_back(&*entry);
  } catch (...) {
    plans_.erase(entry);
    throw;
  }
  entry->second.plan = std::move(plan);
  entry->second.bytes = bytes;
  bytes_ += bytes;
  return entry->second.plan;
}

void PlanCache::make_room(std::size_t bytes) {
  while (!queue_.empty() && (queue_.size() >= most_plans || bytes_ + bytes > most_bytes)) {
    Plans::value_type* const oldest = queue_.front();
    if (oldest->second.is_in_use.exchange(false)) {
      queue_.push_back(oldest);
      queue_.pop_front();
      continue;
    }
    queue_.pop_front();
    bytes_ -= oldest->second.bytes;
    plans_.erase(plans_.find(oldest->first));
  }
}

}  // namespace tutti::transport
