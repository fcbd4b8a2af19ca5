// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/bucket_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::collectives {

std::vector<std::vector<int>> plan_buckets(std::span<const Tensor> gradients, const BucketLimits& limits) {
  struct Open {
    std::vector<int> bucket;
    std::size_t bytes = 0;
    std::size_t limit = 0;
  };
  std::map<DType, Open> open;
  std::vector<std::vector<int>> buckets;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    Open& current =
        open.try_emplace(gradients[i].dtype(), Open{.bucket = {}, .limit = limits.first}).first->second;
    current.bucket.push_back(static_cast<int>(i));
    current.bytes += gradients[i].nbytes();
    if (current.bytes < current.limit) continue;
    buckets.push_back(std::move(current.bucket));
    current = Open{.bucket = {}, .limit = limits.others};
  }
  for (auto& [dtype, rest] : open) {
    if (!rest.bucket.empty()) buckets.push_back(std::move(rest.bucket));
  }
  // A bucket is complete with its last gradient, and the backward pass goes down.
  std::ranges::sort(buckets, std::greater{}, [](const std::vector<int>& bucket) { return bucket.back(); });
  return buckets;
}

}  // namespace tutti::collectives
