// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/hash.hpp"
#include "device/runtime.hpp"
#include "transport/plan/plan.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace tutti::transport {

/// Encodes all that a plan depends on as numbers: operation, options, lanes, homes and shapes, but no
/// addresses.
class PlanKey {
 public:
  PlanKey() = default;
  /// Reserves memory for `words` numbers.
  explicit PlanKey(std::size_t words) { words_.reserve(words); }

  void clear() noexcept { words_.clear(); }
  void add(std::uint64_t word) { words_.push_back(word); }
  template <class Range>
  void add_all(const Range& range) {
    add(range.size());  // so that neighbouring lists cannot run into each other
    words_.insert(words_.end(), range.begin(), range.end());
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return words_.capacity() * sizeof(words_.front()); }
  friend bool operator==(const PlanKey&, const PlanKey&) = default;

  struct Hash {
    std::size_t operator()(const PlanKey& key) const noexcept {
      // Several chains are hashed at once, because each step of a chain has to wait for the step before.
      std::array<std::uint64_t, 4> chains{0x9e3779b97f4a7c15U};
      const std::size_t count = key.words_.size();
      const std::size_t even = count - count % chains.size();
      for (std::size_t i = 0; i < even; i += chains.size()) {
        for (std::size_t c = 0; c < chains.size(); ++c) chains[c] = mix(chains[c], key.words_[i + c]);
      }
      for (std::size_t i = even; i < count; ++i) chains[0] = mix(chains[0], key.words_[i]);
      return mix(mix(chains[0], chains[1]), mix(chains[2], chains[3]));
    }
  };

 private:
  std::vector<std::uint64_t> words_;
};

/// Caches plans by shape: a part of the runtime for calls of a single process, and one object in each team.
/// Thread-safe. Holds at most `most_plans`, which take about `most_bytes` at most. When it is full, the
/// oldest plan is evicted that has not been used since the last eviction passed it: shapes that never come
/// back, such as exchanges whose sizes differ in every call, evict one another and not plans in use.
class PlanCache {
 public:
  static constexpr std::size_t most_plans = 4096;
  static constexpr std::size_t most_bytes = std::size_t{64} << 20U;

  PlanCache() = default;
  explicit PlanCache(Runtime& /*runtime*/) {}

  /// Returns the plan for `key`; `make` makes it if there is none, without a lock, as planning may test peers
  /// or load a library. If two threads make it, the first one is kept. A provisional plan is not kept.
  template <class Make>
  [[nodiscard]] std::shared_ptr<const Plan> find_or_make(const PlanKey& key, const Make& make) {
    if (auto found = find(key)) return found;
    return keep(key, make());
  }

 private:
  struct Kept {
    std::shared_ptr<const Plan> plan;
    std::size_t bytes = 0;               ///< with its key, approximately
    std::atomic<bool> is_in_use{false};  ///< has been found since `make_room` passed it
  };
  using Plans = std::unordered_map<PlanKey, Kept, PlanKey::Hash>;

  [[nodiscard]] std::shared_ptr<const Plan> find(const PlanKey& key);
  [[nodiscard]] std::shared_ptr<const Plan> keep(const PlanKey& key, Plan made);
  /// Evicts plans to make room for one of so many bytes.
  void make_room(std::size_t bytes);

  std::shared_mutex mutex_;
  Plans plans_;
  std::deque<Plans::value_type*> queue_;  ///< all plans: the next to be evicted or passed over comes first
  std::size_t bytes_ = 0;                 ///< of all of them
};

}  // namespace tutti::transport
