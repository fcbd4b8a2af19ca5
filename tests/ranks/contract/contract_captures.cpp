// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/checks.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/collectives/member_call.hpp"
#include "tutti/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

using Rows = std::vector<std::vector<Tensor>>;

/// Calls of every form, which reduce by a sum, by another operation and by what is compiled at run time.
struct PlannedCall {
  CollectiveForm form;
  ReduceOp operation;
};

std::vector<PlannedCall> planned_calls(const ReduceOp& compiled) {
  const std::vector<ReduceOp> others{ReduceOp::max,  ReduceOp::prod, ReduceOp::premul_sum(3.0),
                                     ReduceOp::bxor, ReduceOp::avg,  ReduceOp::min};
  std::vector<PlannedCall> calls;
  std::size_t next = 0;
  for (const CollectiveForm form : all_forms()) {
    calls.push_back({form, ReduceOp::sum});
    if (!traits_of(form.collective).reduces) continue;
    calls.push_back({form, others[next++ % others.size()]});
    calls.push_back({form, compiled});
  }
  return calls;
}

/// Operands of one call of each kind, for the own members.
class EveryCall {
 public:
  explicit EveryCall(const Group& group) : group_(group) {
    for (int i = 0; i < group.locals(); ++i) {
      streams_.emplace_back(group.device(i).index());
      bulk_.push_back(numbers(i, bulk_count, group.member(i) + 5));
      small_.push_back(numbers(i, count, group.member(i) + 1));
      small_lists_.push_back({small_.back(), numbers(i, 3, 100 * (group.member(i) + 1))});
      large_lists_.push_back({numbers(i, count * group.members(), 7 * (group.member(i) + 1)),
                              numbers(i, 3 * group.members(), 11 * (group.member(i) + 1))});
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

  /// The outputs of each call: a row for each own member.
  using Outputs = std::vector<Rows>;
  [[nodiscard]] Outputs make_outputs() const {
    Outputs outputs;
    for (const PlannedCall& planned : planned_) outputs.push_back(outputs_of(planned.form));
    const auto add = [&](const auto& length_of) {
      outputs.emplace_back();
      for (int i = 0; i < group_.locals(); ++i)
        outputs.back().push_back({numbers(i, length_of(group_.member(i)), -1)});
    };
    const std::int64_t all = std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
    const auto own = [&](int member) { return sizes_[static_cast<std::size_t>(member)]; };
    add([&](int) { return all; });
    add(own);
    add([&](int member) { return own(member) * group_.members(); });
    add([&](int) { return 3 * all; });
    add([&](int member) { return 3 * own(member); });
    add([&](int) { return bulk_count; });
    add([&](int member) { return 3 * own(member); });
    return outputs;
  }

  void make(const Outputs& outputs) const {
    Communicator& communicator = group_.communicator;
    for (std::size_t k = 0; k < planned_.size(); ++k) {
      const MemberCall call{.inputs = inputs_of(planned_[k].form),
                            .out = outputs[k],
                            .operation = planned_[k].operation,
                            .root = group_.members() - 1};
      make_call(communicator, planned_[k].form, call, streams_);
    }
    communicator.barrier(streams_);
    std::vector<std::vector<Tensor>> out;
    for (std::size_t k = planned_.size(); k < outputs.size(); ++k) out.push_back(firsts(outputs[k]));
    communicator.all_gather(uneven_, out[0], sizes_, streams_);
    communicator.reduce_scatter(out[0], out[1], ReduceOp::min, sizes_, streams_);
    communicator.all_to_all(out[0], out[2], to_others_, from_others_, streams_);
    communicator.all_gather(uneven_columns_, in_rows(out[3]), sizes_, 1, streams_);
    communicator.reduce_scatter(in_rows(out[3]), in_rows(out[4]), ReduceOp::sum, sizes_, -1, streams_);
    communicator.all_reduce(bulk_, out[5], compiled_, streams_);
    communicator.reduce_scatter(in_rows(out[3]), in_rows(out[6]), compiled_, sizes_, 1, streams_);
    communicator.barrier(streams_);
  }
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  void finish() const {
    for (const Stream& stream : streams_) stream.synchronize();
  }

 private:
  static constexpr std::int64_t count = 700;
  static constexpr std::int64_t bulk_count = 20'001;  ///< more than is gathered on all members

  [[nodiscard]] static bool cuts(CollectiveForm form) {
    return traits_of(form.collective).output == CollectiveOutput::part;
  }
  /// Who alone has operands is the last member, and the last one here.
  [[nodiscard]] Rows inputs_of(CollectiveForm form) const {
    const CollectiveTraits& traits = traits_of(form.collective);
    Rows rows = cuts(form) ? large_lists_ : small_lists_;
    if (traits.has_root && traits.output != CollectiveOutput::one) rows = {rows.back()};
    if (!form.takes_lists) {
      for (std::vector<Tensor>& row : rows) row.resize(1);
    }
    return rows;
  }
  [[nodiscard]] Rows outputs_of(CollectiveForm form) const {
    const CollectiveTraits& traits = traits_of(form.collective);
    const bool is_exchange = cuts(form) && !traits.has_root && !traits.reduces;
    const std::int64_t parts =
        is_exchange || (moves_parts(form.collective) && !cuts(form)) ? group_.members() : 1;
    Rows rows;
    for (int i = 0; i < group_.locals(); ++i) {
      rows.push_back({numbers(i, count * parts, -1)});
      if (form.takes_lists) rows.back().push_back(numbers(i, 3 * parts, -1));
    }
    return rows;
  }
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
  const std::vector<PlannedCall> planned_ = planned_calls(compiled_);
  std::vector<Tensor> bulk_;
  std::vector<Tensor> small_;
  Rows small_lists_;
  Rows large_lists_;
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
  for (const Rows& rows : found) {
    for (const std::vector<Tensor>& row : rows)
      EXPECT_EQ(row.front().to_vector<std::int32_t>().back(), -1) << "not launched";
  }
  for (int launch = 0; launch < 3; ++launch) graph.launch(calls.streams().front());
  for (const Stream& stream : calls.streams()) stream.wait_stream(calls.streams().front());
  calls.make(calls.make_outputs());
  calls.finish();
  for (std::size_t call = 0; call < found.size(); ++call) {
    for (std::size_t i = 0; i < found[call].size(); ++i) {
      for (std::size_t t = 0; t < found[call][i].size(); ++t)
        expect_same(found[call][i][t], expected[call][i][t], call);
    }
  }
}

}  // namespace tutti::test::ranks
