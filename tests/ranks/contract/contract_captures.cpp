// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "ranks/contract/checks.hpp"
#include "stream/stream_access.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/collectives/member_call.hpp"
#include "support/errors.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
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

/// The replays' results, with other calls in between.
void replay(Group& group, std::int64_t count) {
  const Stream stream(group.device(0).index());
  const StreamGuard guard(stream);
  const Tensor number =
      full({count}, group.member(0) + 1, {.dtype = DType::int32, .device = group.device(0)});
  const Tensor sum = zeros({count}, {.dtype = DType::int32, .device = group.device(0)});
  stream.synchronize();

  backend::Backend& backend = Runtime::get().backend();
  backend.begin_capture(StreamAccess::ref(stream), CaptureErrorMode::thread);
  if (group.communicator.explain().find(" hosts:") != std::string::npos) {
    // Replays could not be sent to other hosts, and NCCL may not add.
    EXPECT_TRUE(refuses([&] { group.communicator.all_reduce_add({number}, {sum}); }, ErrorCode::unsupported,
                        {"all_reduce", "captured", "hosts"}));
    return backend.destroy_graph(backend.end_capture(StreamAccess::ref(stream), nullptr));
  }
  group.communicator.all_reduce_add({number}, {sum});
  group.communicator.broadcast({sum}, 0);
  group.communicator.reduce_add({sum}, {number}, group.members() - 1);
  backend::GraphHandle graph = backend.end_capture(StreamAccess::ref(stream), nullptr);
  const int members = group.members();
  std::int32_t last = members;  // what the last member's number is
  std::int32_t expected = 0;
  for (int round = 0; round < 20; ++round) {
    backend.launch_graph(graph, StreamAccess::ref(stream));
    expected = members * (members - 1) / 2 + last;
    last = expected * members;
    if (round % 3 == 0) {
      check_broadcast(group, DType::uint8, {999}, round % members, 1300);
      if (group.member(0) + 1 == members) {
        EXPECT_EQ(number.to_vector<std::int32_t>()[0], last);
      }
    }
    const auto sums = sum.to_vector<std::int32_t>();
    EXPECT_EQ(std::ranges::count(sums, expected), count) << round;
    number.fill_(group.member(0) + 1);
    last = members;
  }
  stream.synchronize();
  backend.destroy_graph(graph);
}

/// The same for local members on streams of their own, of which one begins and ends the capture.
void replay_from(Group& group, int first, std::int64_t count) {
  const auto origin = static_cast<std::size_t>(first);
  std::vector<Stream> streams;
  std::vector<Tensor> numbers;
  std::vector<Tensor> sums;
  std::vector<Tensor> transposed;
  for (int i = 0; i < group.locals(); ++i) {
    streams.emplace_back(group.device(i).index());
    transposed.push_back(zeros({3, 4}, {.device = group.device(i)}).transpose(0, 1));
    numbers.push_back(full({count}, group.member(i) + 1, {.dtype = DType::int32, .device = group.device(i)}));
    sums.push_back(zeros({count}, {.dtype = DType::int32, .device = group.device(i)}));
    current_stream(group.device(i).index()).synchronize();
  }
  Communicator& communicator = group.communicator;
  const auto calls = [&] {
    communicator.all_reduce_add(numbers, sums, streams);
    // What is refused half-way leaves the capture as it was.
    EXPECT_TRUE(refuses([&] { communicator.broadcast(transposed, 0, streams); }, ErrorCode::unsupported,
                        {"broadcast", "strides", "captured"}));
    communicator.all_reduce_add(sums, sums, streams);
  };
  std::vector<Stream> origin_first = streams;
  std::swap(origin_first.front(), origin_first[origin]);
  const int members = group.members();
  for (const bool all_join_first : {false, true}) {
    const Graph graph =
        all_join_first ? Graph::capture(origin_first, calls) : Graph::capture(streams[origin], calls);
    for (int round = 0; round < 5; ++round) {
      for (const Tensor& sum : sums) sum.fill_(0);
      for (const Tensor& sum : sums) current_stream(sum.device().index()).synchronize();
      graph.launch(streams[origin]);
      streams[origin].synchronize();
      for (const Tensor& sum : sums) {
        const auto values = sum.to_vector<std::int32_t>();
        EXPECT_EQ(std::ranges::count(values, members * members * (members + 1) / 2), count)
            << round << (all_join_first ? ", all streams joined first" : "");
      }
    }
  }
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

void captured_calls_can_be_replayed(Group& group) {
  // Between hosts only what NCCL carries can be captured, and no sums in one order.
  if (group.communicator.explain().find(" hosts:") != std::string::npos) return;
  for (const std::int64_t count : {5'000, 200'000}) {
    if (group.locals() == 1) replay(group, count);
    for (const int origin : {0, group.locals() - 1}) replay_from(group, origin, count);
  }
}

}  // namespace tutti::test::ranks
