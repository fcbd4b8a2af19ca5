// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hash.hpp"
#include "runtime.hpp"
#include "transport/plan.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace tutti::transport {

/// What a plan depends on, as numbers: operation, options, lanes, homes and shapes, but no addresses.
class PlanKey {
 public:
  PlanKey() = default;
  /// With room for `words` numbers.
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
      // Several chains at once: each step of one has to wait for the step before.
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

/// Plans by shape: a runtime extension for what one process does alone, and one of each team. Thread-safe.
/// Holds at most so many plans, which take at most about `most_bytes`, and starts over when full: programs
/// that meet so many shapes do not repeat them.
class PlanCache {
 public:
  static constexpr std::size_t usual_capacity = 4096;
  static constexpr std::size_t most_bytes = std::size_t{64} << 20U;

  PlanCache() = default;
  explicit PlanCache(Runtime& /*runtime*/) {}
  /// Of at most `capacity` plans.
  explicit PlanCache(std::size_t capacity) : capacity_(capacity) {}

  /// The plan for `key`; made by `make` if there is none, without a lock, as planning may test peers or load
  /// a library. Two threads may both make one, and then the first is kept. A provisional one is not kept.
  template <class Make>
  [[nodiscard]] std::shared_ptr<const Plan> find_or_make(const PlanKey& key, const Make& make) {
    if (auto found = find(key)) return found;
    return keep(key, make());
  }

 private:
  [[nodiscard]] std::shared_ptr<const Plan> find(const PlanKey& key);
  [[nodiscard]] std::shared_ptr<const Plan> keep(const PlanKey& key, Plan made);

  std::size_t capacity_ = usual_capacity;
  std::shared_mutex mutex_;
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKey::Hash> plans_;
  std::size_t bytes_ = 0;  ///< of all of them, about
};

}  // namespace tutti::transport
