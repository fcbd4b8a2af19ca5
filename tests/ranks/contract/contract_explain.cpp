// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_explain.hpp"

#include "support/collectives/member_call.hpp"
#include "support/errors.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

/// Calls like those that workloads describe.
class Calls {
 public:
  explicit Calls(Group& group) : group_(group) {}

  void make(const Workload& what) const {
    const CollectiveForm form(what.collective, !what.tensor_bytes.empty());
    const CollectiveTraits& traits = traits_of(what.collective);
    MemberCall call{.operation = what.reduce_kind, .root = what.root.index(), .dim = what.dim};
    if (traits.has_own_sizes) {
      (traits.output == CollectiveOutput::part ? call.inputs : call.out) = whole(what);
      (traits.output == CollectiveOutput::part ? call.out : call.inputs) = parts(what);
    } else {
      set_in_place(call, what);
    }
    make_call(group_.communicator, form, call);
  }

 private:
  /// All that can be in place is.
  void set_in_place(MemberCall& call, const Workload& what) const {
    const CollectiveTraits& traits = traits_of(what.collective);
    const bool has_parts = moves_parts(what.collective);
    const auto make_wholes = [&] {
      return has_parts ? cut_to_parts(lists(what), group_.members()) : lists(what);
    };
    const std::vector<std::vector<Tensor>> wholes = make_wholes();
    const bool are_outputs_parts = traits.output == CollectiveOutput::part;
    const bool is_exchange = are_outputs_parts && !traits.reduces;
    const bool is_from_root = traits.has_root && !traits.reduces;
    if (!is_from_root) call.inputs = has_parts && !are_outputs_parts ? parts_of(wholes) : wholes;
    call.out = is_exchange ? make_wholes() : are_outputs_parts ? parts_of(wholes) : wholes;
  }
  /// As many elements of each as make equal parts.
  [[nodiscard]] static std::vector<std::vector<Tensor>> cut_to_parts(std::vector<std::vector<Tensor>> wholes,
                                                                     std::int64_t members) {
    for (std::vector<Tensor>& list : wholes) {
      for (Tensor& whole : list) whole = whole.narrow(0, 0, whole.numel() / members * members);
    }
    return wholes;
  }
  /// Each where it belongs in its whole.
  [[nodiscard]] std::vector<std::vector<Tensor>> parts_of(
      const std::vector<std::vector<Tensor>>& wholes) const {
    std::vector<std::vector<Tensor>> all;
    for (int i = 0; i < group_.locals(); ++i) {
      all.emplace_back();
      for (const Tensor& whole : wholes[static_cast<std::size_t>(i)]) {
        const std::int64_t elements = whole.numel() / group_.members();
        all.back().push_back(whole.narrow(0, group_.member(i) * elements, elements));
      }
    }
    return all;
  }
  [[nodiscard]] static Tensor tensor(const std::vector<std::int64_t>& sizes, DType dtype, Device device) {
    return zeros(sizes, {.dtype = dtype, .device = device});
  }
  [[nodiscard]] std::vector<std::vector<Tensor>> lists(const Workload& what) const {
    std::vector<std::vector<Tensor>> all;
    for (int i = 0; i < group_.locals(); ++i) {
      std::vector<Tensor>& list = all.emplace_back();
      const std::vector<std::size_t> only{what.bytes};
      for (const std::size_t bytes : what.tensor_bytes.empty() ? only : what.tensor_bytes) {
        const DType dtype = what.tensor_dtypes.empty() ? what.dtype : what.tensor_dtypes[list.size()];
        list.push_back(tensor({static_cast<std::int64_t>(bytes / size_of(dtype))}, dtype, group_.device(i)));
      }
    }
    return all;
  }
  /// Of `length` along the dimension that is cut.
  [[nodiscard]] static std::vector<std::int64_t> sizes_of(const Workload& what, std::int64_t length) {
    if (what.dim == 0) return {length};
    return {256, length};
  }
  [[nodiscard]] static std::int64_t length_of(const Workload& what) {
    return static_cast<std::int64_t>(what.bytes / size_of(what.dtype)) / (what.dim == 0 ? 1 : 256);
  }
  [[nodiscard]] std::vector<std::vector<Tensor>> whole(const Workload& what) const {
    if (!group_.is_local(what.root.index())) return {};
    return {{tensor(sizes_of(what, length_of(what)), what.dtype,
                    group_.device(what.root.index() - group_.member(0)))}};
  }
  [[nodiscard]] std::vector<std::vector<Tensor>> parts(const Workload& what) const {
    const std::int64_t length = length_of(what);
    const std::int64_t most = (length + group_.members() - 1) / group_.members();
    std::vector<std::vector<Tensor>> rows;
    for (int i = 0; i < group_.locals(); ++i) {
      const std::int64_t start = std::min(length, group_.member(i) * most);
      rows.push_back({tensor(sizes_of(what, std::min(most, length - start)), what.dtype, group_.device(i))});
    }
    return rows;
  }

  Group& group_;
};

std::vector<Workload> workloads(int members) {
  std::vector<Workload> all;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{6'000}, std::size_t{100'000},
                                  std::size_t{1'000'000}, std::size_t{9} << 20U}) {
    for (const CollectiveForm form : all_forms()) {
      if (!form.takes_lists)
        all.push_back({.collective = form.collective, .bytes = bytes, .root = members - 1});
    }
  }
  for (const Collective collective : {Collective::scatter, Collective::gather}) {
    all.push_back({.collective = collective, .bytes = 100'000, .root = 0, .dim = 1});
    all.push_back({.collective = collective, .bytes = 3'000'000, .dtype = DType::int8, .dim = 1});
  }
  for (const auto& [collective, takes_lists] : all_forms()) {
    if (!takes_lists) continue;
    all.push_back({.collective = collective, .tensor_bytes = {8, 0, 404}, .dtype = DType::float64});
    all.push_back({.collective = collective, .tensor_bytes = {4'000, 700'000, 4}});
    all.push_back({.collective = collective, .tensor_bytes = std::vector<std::size_t>(100, 1'000)});
    all.push_back({.collective = collective,
                   .tensor_bytes = {700'000, 800'000, 4},
                   .tensor_dtypes = {DType::float32, DType::float64, DType::int16}});
  }
  return all;
}

std::string first_lines_for(const PlanSummary& plan) {
  return fmt::format("transport: {}\nalgorithm: {}\nmultiprocessors: ", plan.transport, plan.algorithm);
}

}  // namespace

void what_explain_tells_is_what_calls_do(Group& group) {
  const Calls calls(group);
  for (const Workload& what : workloads(group.members())) {
    const std::string text = group.communicator.explain(what);
    calls.make(what);
    const PlanSummary plan = group.communicator.last_plan();
    EXPECT_TRUE(text.starts_with(first_lines_for(plan)))
        << name_of(what.collective) << " went by " << plan.transport << ", " << plan.algorithm << ":\n"
        << text;
    EXPECT_TRUE(mentions(text, {"because: "}));
    if (what.collective == Collective::broadcast) {
      EXPECT_EQ(text.find(" adds "), std::string::npos) << text;
    }
    if (plan.transport != "none" && what.collective == Collective::all_reduce) {
      const bool is_by_nccl = plan.transport == "nccl";
      EXPECT_TRUE(mentions(
          text, {"step: ", is_by_nccl ? "NCCL all-reduce" : fmt::format("member {} ", group.member(0))}));
    }
  }
}

void explain_refuses_what_cannot_be_called(Group& group) {
  const auto explaining = [&](const Workload& what) {
    return [&group, what] { static_cast<void>(group.communicator.explain(what)); };
  };
  const auto invalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(refuses(explaining({.root = group.members()}), invalid,
                      {"Communicator::explain", fmt::format("root is {}", group.members())}));
  EXPECT_TRUE(refuses(explaining({.root = -1}), invalid, {"root is -1"}));
  EXPECT_TRUE(refuses(explaining({.collective = Collective::scatter, .dim = 2}), invalid, {"dim is 2"}));
  EXPECT_TRUE(refuses(explaining({.collective = Collective::scatter, .tensor_bytes = {4, 4}}), invalid,
                      {"tensor_bytes has 2", "scatter takes no list"}));
  EXPECT_TRUE(refuses(explaining({.tensor_bytes = {4}, .tensor_dtypes = {{}, {}}}), invalid,
                      {"tensor_dtypes has 2 entries", "1 as tensor_bytes"}));
  constexpr std::size_t too_much = std::size_t{1} << 62U;
  EXPECT_TRUE(refuses(explaining({.bytes = too_much}), invalid, {"bytes is 4611686018427387904"}));
  EXPECT_TRUE(refuses(explaining({.tensor_bytes = {too_much, 3 * too_much}}), invalid,
                      {"tensor_bytes add up to more"}));
  EXPECT_TRUE(
      refuses(explaining({.collective = static_cast<Collective>(99)}), invalid, {"collective is 99"}));
  EXPECT_TRUE(refuses(
      explaining({.collective = Collective::all_reduce, .bytes = 64, .reduce_kind = ReduceKind::band}),
      invalid, {"reduce_kind is band, expected one that float32 supports"}));
  EXPECT_TRUE(mentions(group.communicator.explain({.collective = Collective::all_gather, .root = 99}),
                       {"transport: "}));
}

}  // namespace tutti::test::ranks
