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

/// A made-up backward pass of a communicator's members: gradients of several element types and sizes, whose
/// values, drawn from a seed, every process knows of all members.
class BackwardPass {
 public:
  explicit BackwardPass(Communicator& communicator);

  /// Several buckets of several types.
  [[nodiscard]] static GradientBucketOptions small_buckets(const ReduceOp& operation = ReduceOp::avg) {
    return {.bucket_bytes = 4096, .first_bucket_bytes = 512, .operation = operation};
  }
  /// gradients[i] are those of local member i.
  [[nodiscard]] const std::vector<std::vector<Tensor>>& gradients() const noexcept { return gradients_; }
  [[nodiscard]] int locals() const noexcept { return static_cast<int>(gradients_.size()); }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(gradients_.front().size()); }

  /// What a member finds.
  [[nodiscard]] HostArray values(int member, int index, std::uint64_t seed) const;
  /// Queues the copy of these values into the gradient, on the current stream of its device.
  void write(int local, int index, std::uint64_t seed) const;
  /// Has `copy` copy the values of another seed. Waits for them to be where it finds them.
  void prepare(std::uint64_t seed);
  /// Queues a copy within the device, which may be captured, on its current stream.
  void copy(int local, int index) const { gradient(local, index).copy_(at(sources_, local, index)); }
  /// Writes and reports all gradients, in an order drawn from `order`; 0: backward, member by member.
  void run(GradientBuckets& buckets, std::uint64_t seed, std::uint64_t order) const;
  /// All gradients are what the operation makes of all members' values. Waits for them.
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
