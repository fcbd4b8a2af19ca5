// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// Parts of members that may differ in length.
namespace tutti::collectives {

int TeamCall::check_parts(const MemberOperands& parts, std::string_view argument, int dim) const {
  one_per_member(parts.size(), argument);
  const Tensor& first = parts[0][0];
  const Name first_name = parts.name(argument, 0, 0);
  arguments_.usable(first, first_name);
  const int along = arguments_.dimension(dim, first.dim());
  for (std::size_t i = 0; i < parts.size(); ++i)
    check_like_part(parts[i][0], parts.name(argument, i, 0), i, first, first_name, along);
  return along;
}

void TeamCall::check_like_part(const Tensor& tensor, const Name& name, std::size_t local, const Tensor& part,
                               const Name& part_name, int along) const {
  on_member(tensor, name, local);
  arguments_.same_dtype(tensor, name, part.dtype(), part_name);
  arguments_.same_sizes_but_one(tensor, name, part, part_name, along);
}

std::int64_t TeamCall::check_part_sizes(std::span<const std::int64_t> sizes, const Name& name) const {
  if (sizes.size() != members())
    arguments_.fail("{} has {} entries, expected one per member, {}", name, sizes.size(), members());
  std::int64_t total = 0;
  for (std::size_t member = 0; member < sizes.size(); ++member) {
    if (sizes[member] < 0) arguments_.fail("{}[{}] is {}, expected 0 or more", name, member, sizes[member]);
    if (__builtin_add_overflow(total, sizes[member], &total))
      arguments_.fail("{} are more than 2^63 - 1 in all, expected fewer", name);
  }
  return total;
}

void TeamCall::begin_parts(std::span<const std::int64_t> sizes, DType dtype) {
  const bool reduces = traits_of(request_.collective).reduces;
  const std::uint64_t unit = reduces ? 1 : size_of(dtype);
  const bool are_equal = std::ranges::all_of(sizes, [&](std::int64_t size) { return size == sizes.front(); });
  std::uint64_t total = 0;
  for (const std::int64_t size : sizes) {
    const auto elements = static_cast<std::uint64_t>(size);
    total += elements;
    if (!are_equal) request_.parts.push_back(elements * unit);
    signature_.add_to_shape(elements);
  }
  request_.add_column(reduces || !are_equal ? total : total / members(), dtype);
  show_parts(sizes);
  begin(total, dtype);
}

void TeamCall::show_parts(std::span<const std::int64_t> sizes) {
  signature_.has_sizes = true;
  signature_.hide_sizes();
  for (const std::int64_t size : sizes) signature_.show_size(static_cast<std::uint64_t>(size));
}

void TeamCall::begin_all_to_all(DType dtype) {
  signature_.has_sizes = true;
  begin(0, dtype);
}

}  // namespace tutti::collectives
