#include "transport/plan_cache.hpp"

namespace tutti::transport {

std::shared_ptr<const Plan> PlanCache::find_or_make(const PlanKey& key, const std::function<Plan()>& make) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
  }
  // Outside the lock: planning may test peers or load a library, and others should not wait for that.
  auto plan = std::make_shared<const Plan>(make());
  if (plan->is_provisional) return plan;
  const std::scoped_lock lock(mutex_);
  if (plans_.size() >= capacity) plans_.clear();
  return plans_.try_emplace(key, std::move(plan)).first->second;
}

}  // namespace tutti::transport
