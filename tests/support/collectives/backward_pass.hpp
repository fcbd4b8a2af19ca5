// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/communicator.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/reduce_op.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Simulates a backward pass of a communicator's members: gradients of several element types and sizes, whose
/// values are drawn from a seed, so that every process knows those of all members.
class BackwardPass {
 public:
  explicit BackwardPass(Communicator& communicator);

  /// Returns options for several buckets of several types.
  [[nodiscard]] static GradientBucketOptions small_buckets(const ReduceOp& operation = ReduceOp::avg) {
    return {.bucket_bytes = 4096, .first_bucket_bytes = 512, .operation = operation};
  }
  /// Returns the gradients: gradients[i] are those of local member i.
  [[nodiscard]] const std::vector<std::vector<Tensor>>& gradients() const noexcept { return gradients_; }
  [[nodiscard]] int locals() const noexcept { return static_cast<int>(gradients_.size()); }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(gradients_.front().size()); }

  /// Returns a member's values of a gradient.
  [[nodiscard]] HostArray values(int member, int index, std::uint64_t seed) const;
  /// Queues the copy of these values into the gradient, on the current stream of its device.
  void write(int local, int index, std::uint64_t seed) const;
  /// Prepares the values of another seed for `copy`, and waits for them.
  void prepare(std::uint64_t seed);
  /// Queues a copy within the device on its current stream; it may be captured.
  void copy(int local, int index) const { gradient(local, index).copy_(at(sources_, local, index)); }
  /// Writes and reports all gradients, in an order drawn from `order`; 0: backward, member by member.
  void run(GradientBuckets& buckets, std::uint64_t seed, std::uint64_t order) const;
  /// Checks that all gradients are the operation's results on all members' values. Waits for them.
  [[nodiscard]] testing::AssertionResult holds(std::uint64_t seed,
                                               const ReduceOp& operation = ReduceOp::avg) const;

 private:
  using Lists = std::vector<std::vector<Tensor>>;

  [[nodiscard]] static const Tensor& at(const Lists& lists, int local, int index) {
    return lists[static_cast<std::size_t>(local)][static_cast<std::size_t>(index)];
  }
  [[nodiscard]] const Tensor& gradient(int local, int index) const { return at(gradients_, local, index); }

  int first_member_;
  int members_;
  Lists gradients_;
  Lists sources_;
};

}  // namespace tutti::test
