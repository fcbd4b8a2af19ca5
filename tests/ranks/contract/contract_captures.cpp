// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/checks.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "tutti/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

/// Operands of one call of each collective, for the own members.
class EveryCall {
 public:
  explicit EveryCall(const Group& group) : group_(group) {
    for (int i = 0; i < group.locals(); ++i) {
      streams_.emplace_back(group.device(i).index());
      small_.push_back(numbers(i, count, group.member(i) + 1));
      bulk_.push_back(numbers(i, bulk_count, group.member(i) + 5));
      other_.push_back(numbers(i, 3, 100 * (group.member(i) + 1)));
      large_.push_back(numbers(i, count * group.members(), 7 * (group.member(i) + 1)));
      lists_.push_back({small_.back(), other_.back()});
      large_lists_.push_back({large_.back(), numbers(i, 3 * group.members(), 11 * (group.member(i) + 1))});
    }
    for (int member = 0; member < group.members(); ++member) sizes_.push_back(5 + 300 * member);
    for (int i = 0; i < group.locals(); ++i) {
      const std::int64_t own = sizes_[static_cast<std::size_t>(group.member(i))];
      uneven_.push_back(numbers(i, own, group.member(i) + 1));
      uneven_columns_.push_back(numbers(i, 3 * own, group.member(i) + 1).view({3, own}));
      to_others_.push_back(sizes_);
      from_others_.emplace_back(sizes_.size(), own);
    }
  }

  struct Outputs {
    std::vector<std::vector<Tensor>> of_call;  ///< one for each own member
    std::vector<std::vector<std::vector<Tensor>>> of_coalesced_call;
  };
  [[nodiscard]] Outputs make_outputs() const {
    Outputs outputs;
    const auto add = [&](const auto& length_of) {
      outputs.of_call.emplace_back();
      for (int i = 0; i < group_.locals(); ++i)
        outputs.of_call.back().push_back(numbers(i, length_of(group_.member(i)), -1));
    };
    for (const std::int64_t length : {count, count, count, count * group_.members(), count, count,
                                      count * group_.members(), count, count, count})
      add([&](int) { return length; });
    add([&](int) { return count * group_.members(); });  // of an all_to_all
    add([&](int) { return std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0}); });
    add([&](int member) { return sizes_[static_cast<std::size_t>(member)]; });
    add([&](int member) { return sizes_[static_cast<std::size_t>(member)] * group_.members(); });
    add([&](int) { return 3 * std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0}); });
    add([&](int member) { return 3 * sizes_[static_cast<std::size_t>(member)]; });
    for (const std::int64_t length : {count, count, count, bulk_count}) add([&](int) { return length; });
    add([&](int member) { return 3 * sizes_[static_cast<std::size_t>(member)]; });
    for (const std::int64_t parts : {1, 1, 1, 1, 1, group_.members(), 1, group_.members(), 1}) {
      outputs.of_coalesced_call.emplace_back();
      for (int i = 0; i < group_.locals(); ++i)
        outputs.of_coalesced_call.back().push_back(
            {numbers(i, count * parts, -1), numbers(i, 3 * parts, -1)});
    }
    return outputs;
  }

  void make(const Outputs& outputs) const {
    Communicator& communicator = group_.communicator;
    const int root = group_.members() - 1;
    const auto own_root = static_cast<std::size_t>(group_.is_local(root) ? root - group_.member(0) : 0);
    const auto& out = outputs.of_call;
    const auto& lists = outputs.of_coalesced_call;
    communicator.broadcast(small_[own_root], out[0], root, streams_);
    communicator.reduce_add(small_, out[1], root, streams_);
    communicator.all_reduce_add(small_, out[2], streams_);
    communicator.barrier(streams_);
    communicator.all_gather(small_, out[3], streams_);
    communicator.reduce_scatter_add(large_, out[4], streams_);
    communicator.scatter(large_[own_root], out[5], root, 0, streams_);
    communicator.gather(small_, out[6][own_root], root, 0, streams_);
    communicator.broadcast_coalesced(lists_[own_root], lists[0], root, streams_);
    communicator.reduce_add_coalesced(lists_, lists[1], root, streams_);
    communicator.all_reduce_add_coalesced(lists_, lists[2], streams_);
    communicator.reduce(small_, out[7], ReduceOp::max, root, streams_);
    communicator.all_reduce(small_, out[8], ReduceOp::premul_sum(3.0), streams_);
    communicator.reduce_scatter(large_, out[9], ReduceOp::avg, streams_);
    communicator.reduce_coalesced(lists_, lists[3], ReduceOp::prod, root, streams_);
    communicator.all_reduce_coalesced(lists_, lists[4], ReduceOp::bxor, streams_);
    communicator.all_gather_coalesced(lists_, lists[5], streams_);
    communicator.reduce_scatter_coalesced(large_lists_, lists[6], ReduceOp::max, streams_);
    communicator.all_to_all_coalesced(large_lists_, lists[7], streams_);
    communicator.all_to_all(large_, out[10], streams_);
    communicator.all_gather(uneven_, out[11], sizes_, streams_);
    communicator.reduce_scatter(out[11], out[12], ReduceOp::min, sizes_, streams_);
    communicator.all_to_all(out[11], out[13], to_others_, from_others_, streams_);
    communicator.all_gather(uneven_columns_, in_rows(out[14]), sizes_, 1, streams_);
    communicator.reduce_scatter(in_rows(out[14]), in_rows(out[15]), ReduceOp::sum, sizes_, -1, streams_);
    communicator.reduce(small_, out[16], compiled_, root, streams_);
    communicator.all_reduce(small_, out[17], compiled_, streams_);
    communicator.reduce_scatter(large_, out[18], compiled_, streams_);
    communicator.all_reduce(bulk_, out[19], compiled_, streams_);
    communicator.reduce_scatter(in_rows(out[14]), in_rows(out[20]), compiled_, sizes_, 1, streams_);
    communicator.all_reduce_coalesced(lists_, lists[8], compiled_, streams_);
    communicator.barrier(streams_);
  }
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  void finish() const {
    for (const Stream& stream : streams_) stream.synchronize();
  }

 private:
  static constexpr std::int64_t count = 700;
  static constexpr std::int64_t bulk_count = 20'001;  ///< more than is gathered on all members

  [[nodiscard]] Tensor numbers(int own_member, std::int64_t length, std::int32_t value) const {
    Tensor made = full({length}, value, {.dtype = DType::int32, .device = group_.device(own_member)});
    current_stream(group_.device(own_member).index()).synchronize();
    return made;
  }

  /// Three each.
  [[nodiscard]] static std::vector<Tensor> in_rows(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> views;
    for (const Tensor& tensor : tensors) views.push_back(tensor.view({3, tensor.numel() / 3}));
    return views;
  }

  const Group& group_;
  std::vector<Stream> streams_;  ///< one for each own member
  const ReduceOp compiled_ = can_compile() ? compiled_difference() : ReduceOp(ReduceOp::sum);
  std::vector<Tensor> small_;
  std::vector<Tensor> bulk_;
  std::vector<Tensor> other_;
  std::vector<Tensor> large_;
  std::vector<std::vector<Tensor>> lists_;
  std::vector<std::vector<Tensor>> large_lists_;
  std::vector<std::int64_t> sizes_;  ///< of the members' parts
  std::vector<Tensor> uneven_;
  std::vector<Tensor> uneven_columns_;
  std::vector<std::vector<std::int64_t>> to_others_;
  std::vector<std::vector<std::int64_t>> from_others_;
};

void expect_same(const Tensor& found, const Tensor& expected, std::size_t call) {
  EXPECT_EQ(found.to_vector<std::int32_t>(), expected.to_vector<std::int32_t>()) << "call " << call;
}

}  // namespace

void every_call_can_be_captured(Group& group) {
  // Between hosts only what NCCL carries can be captured, and no sums in one order.
  if (group.communicator.explain().find(" hosts:") != std::string::npos) return;
  const EveryCall calls(group);
  const EveryCall::Outputs expected = calls.make_outputs();
  calls.make(expected);
  calls.finish();
  const EveryCall::Outputs found = calls.make_outputs();
  const Graph graph = Graph::capture(calls.streams(), [&] { calls.make(found); });
  calls.finish();
  for (const auto& outputs : found.of_call) {
    for (const Tensor& output : outputs)
      EXPECT_EQ(output.to_vector<std::int32_t>().back(), -1) << "not launched";
  }
  for (int launch = 0; launch < 3; ++launch) graph.launch(calls.streams().front());
  for (const Stream& stream : calls.streams()) stream.wait_stream(calls.streams().front());
  calls.make(calls.make_outputs());
  calls.finish();
  for (std::size_t call = 0; call < found.of_call.size(); ++call) {
    for (std::size_t i = 0; i < found.of_call[call].size(); ++i)
      expect_same(found.of_call[call][i], expected.of_call[call][i], call);
  }
  for (std::size_t call = 0; call < found.of_coalesced_call.size(); ++call) {
    for (std::size_t i = 0; i < found.of_coalesced_call[call].size(); ++i) {
      for (std::size_t t = 0; t < 2; ++t) {
        expect_same(found.of_coalesced_call[call][i][t], expected.of_coalesced_call[call][i][t],
                    found.of_call.size() + call);
      }
    }
  }
}

}  // namespace tutti::test::ranks
