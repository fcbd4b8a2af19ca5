// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"
#include "perf/operations/values.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// What calls are made of: tensors for members, and what they hold.
namespace tutti::perf {

/// A tensor of `member`, a local one, where the case wants it.
[[nodiscard]] Tensor make_tensor(const TensorSpec& spec, const Case& what, int member);
[[nodiscard]] std::vector<Tensor> make_list(const std::vector<TensorSpec>& specs, const Case& what,
                                            int member);
/// A list for every local member. Lists of many tensors are laid out as a program gets them that replicates
/// its parameters: in one process by `broadcast_coalesced`, between processes by every process for itself.
[[nodiscard]] Lists make_lists(const std::vector<TensorSpec>& specs, const Case& what);

/// What source `source` holds of tensor `index`, whole; `all_sources` sources may be summed.
[[nodiscard]] Content whole_content(const TensorSpec& spec, const Case& what, std::size_t index,
                                    Pattern pattern, int source = 0, int all_sources = 1);
/// What `member` contributes to a sum.
[[nodiscard]] Content summand(const TensorSpec& spec, const Case& what, std::size_t index, int member);
[[nodiscard]] Content sum_of_all(const TensorSpec& spec, const Case& what, std::size_t index);
/// Elements `start` to `start + length - 1` of every row of `row_length`.
[[nodiscard]] Content columns_of(Content content, std::int64_t start, std::int64_t length,
                                 std::int64_t row_length);

/// A call of the case, whose payload are `specs`, still without tensors.
[[nodiscard]] Call call_of(const Case& what, const std::vector<TensorSpec>& specs);
/// An output of list `list`: `tensor`, or what the call returns.
void add_result(Call& call, std::size_t list, Placement placement, const Tensor& tensor,
                const Content& content);

}  // namespace tutti::perf
