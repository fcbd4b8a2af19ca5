// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace tutti::mpi {

/// The tags that networks on one MPI communicator use on this rank. One rank assigns every tag, to one
/// network at a time; networks that have no rank in common may use the same tag. A tag is free again when all
/// ranks have released it. Thread-safe.
class Tags {
 public:
  /// Makes the tags on rank `rank` of `size`. Tag 0 is taken, by the first network.
  Tags(int rank, int size, int largest) : rank_(rank), size_(size), largest_(largest) {}

  /// Takes a tag that this rank gives out and that is free here: a new one as long as there are such, else
  /// the one that has been free for the longest time. Others must `take` it, too.
  [[nodiscard]] std::optional<int> propose() {
    const std::scoped_lock lock(mutex_);
    std::int64_t tag = rank_ + (proposed_ + 1) * size_;
    if (tag <= largest_) {
      ++proposed_;
    } else if (!free_.empty()) {
      tag = free_.front();
      free_.pop_front();
    } else {
      return std::nullopt;
    }
    taken_.insert(static_cast<int>(tag));
    return static_cast<int>(tag);
  }
  /// Takes the tag. Returns false if it is not free here.
  [[nodiscard]] bool take(int tag) {
    const std::scoped_lock lock(mutex_);
    return taken_.insert(tag).second;
  }
  /// Releases the tag: this rank has no more messages with it under way.
  void release(int tag) {
    const std::scoped_lock lock(mutex_);
    taken_.erase(tag);
    if (tag % size_ == rank_) free_.push_back(tag);
  }

 private:
  std::int64_t rank_;
  std::int64_t size_;
  std::int64_t largest_;
  std::mutex mutex_;
  std::int64_t proposed_ = 0;  ///< how many new ones
  std::set<int> taken_{0};
  std::deque<int> free_;  ///< tags that this rank gives out, and that have been released
};

/// Tags that are released at the end of the scope unless they are kept.
class TakenTags {
 public:
  explicit TakenTags(Tags& tags) : tags_(tags) {}
  TakenTags(const TakenTags&) = delete;
  TakenTags& operator=(const TakenTags&) = delete;
  ~TakenTags() {
    for (const int tag : taken_) tags_.release(tag);
  }

  [[nodiscard]] std::optional<int> propose() {
    const std::optional<int> tag = tags_.propose();
    if (tag) taken_.push_back(*tag);
    return tag;
  }
  [[nodiscard]] bool take(int tag) {
    if (!tags_.take(tag)) return false;
    taken_.push_back(tag);
    return true;
  }
  void keep_last() { taken_.pop_back(); }

 private:
  Tags& tags_;
  std::vector<int> taken_;
};

}  // namespace tutti::mpi
