#pragma once

#include "runtime.hpp"
#include "transport/plan.hpp"

#include <cstdint>
#include <functional>
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

  void add(std::uint64_t word) { words_.push_back(word); }
  template <class Range>
  void add_all(const Range& range) {
    add(range.size());  // so that neighbouring lists cannot run into each other
    words_.insert(words_.end(), range.begin(), range.end());
  }
  friend bool operator==(const PlanKey&, const PlanKey&) = default;

  struct Hash {
    std::size_t operator()(const PlanKey& key) const noexcept {
      std::uint64_t hash = 0x9e3779b97f4a7c15U;
      for (const std::uint64_t word : key.words_) {
        hash = (hash ^ word) * 0xff51afd7ed558ccdU;
        hash ^= hash >> 32U;
      }
      return hash;
    }
  };

 private:
  std::vector<std::uint64_t> words_;
};

/// Plans by shape. A runtime extension; thread-safe. Holds at most `capacity` plans and starts over when
/// full: programs that meet so many shapes do not repeat them.
class PlanCache {
 public:
  static constexpr std::size_t capacity = 4096;

  explicit PlanCache(Runtime& runtime) { static_cast<void>(runtime); }

  /// The plan for `key`; made by `make` if there is none. Two threads may both make one, and then the first
  /// is kept.
  [[nodiscard]] std::shared_ptr<const Plan> find_or_make(const PlanKey& key,
                                                         const std::function<Plan()>& make);

 private:
  std::shared_mutex mutex_;
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKey::Hash> plans_;
};

}  // namespace tutti::transport
