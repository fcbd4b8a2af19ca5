// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/member_checks.hpp"

namespace tutti::collectives {

void MemberChecks::one_per_member(std::size_t count, std::string_view argument) const {
  if (count != devices_.size()) {
    arguments_.fail("{} has {} entries, expected one per local member, {}", argument, count, devices_.size());
  }
}

void MemberChecks::on_member(const Tensor& tensor, const Name& name, std::size_t local) const {
  arguments_.usable(tensor, name);
  if (tensor.device() != devices_[local]) {
    arguments_.fail("{} is on {}, expected {}, the device of member {}", name, to_string(tensor.device()),
                    to_string(devices_[local]), membership_.first_local() + local);
  }
}

void MemberChecks::alike(const MemberOperands& operands, std::string_view argument, Likeness likeness) const {
  one_per_member(operands.size(), argument);
  const std::span<const Tensor> first = operands[0];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::span<const Tensor> tensors = operands[i];
    if (tensors.size() != first.size()) {
      arguments_.fail("{}[{}] has {} tensors, expected {} as {}[0]", argument, i, tensors.size(),
                      first.size(), argument);
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (is_plain_as(first[t], tensors[t], devices_[i])) continue;
      const Name name = operands.name(argument, i, t);
      on_member(tensors[t], name, i);
      if (i == 0) continue;
      const Name like = operands.name(argument, 0, t);
      arguments_.same_dtype(tensors[t], name, first[t].dtype(), like);
      if (likeness == Likeness::sizes) {
        arguments_.same_sizes(tensors[t], name, first[t].sizes(), like);
      } else if (tensors[t].numel() != first[t].numel()) {
        arguments_.fail("{} has {} elements, expected {} as {}", name, tensors[t].numel(), first[t].numel(),
                        like);
      }
    }
  }
}

void MemberChecks::output(const Tensor& out, const Name& name, std::size_t local, const Tensor& like,
                          const Name& like_name) const {
  if (is_plain_as(like, out, devices_[local]) && !out.is_read_only()) return;
  on_member(out, name, local);
  arguments_.same_dtype(out, name, like.dtype(), like_name);
  arguments_.same_sizes(out, name, like.sizes(), like_name);
  arguments_.writable(out, name);
}

int MemberChecks::parts(const MemberOperands& parts, std::string_view argument, int dim) const {
  one_per_member(parts.size(), argument);
  const Tensor& first = parts[0][0];
  const Name first_name = parts.name(argument, 0, 0);
  arguments_.usable(first, first_name);
  const int along = arguments_.dimension(dim, first.dim());
  for (std::size_t i = 0; i < parts.size(); ++i)
    like_part(parts[i][0], parts.name(argument, i, 0), i, first, first_name, along);
  return along;
}

void MemberChecks::like_part(const Tensor& tensor, const Name& name, std::size_t local, const Tensor& part,
                             const Name& part_name, int along) const {
  on_member(tensor, name, local);
  arguments_.same_dtype(tensor, name, part.dtype(), part_name);
  arguments_.same_sizes_but_one(tensor, name, part, part_name, along);
}

std::int64_t MemberChecks::part_sizes(std::span<const std::int64_t> sizes, const Name& name) const {
  if (sizes.size() != membership_.member_count())
    arguments_.fail("{} has {} entries, expected one per member, {}", name, sizes.size(),
                    membership_.member_count());
  std::int64_t total = 0;
  for (std::size_t member = 0; member < sizes.size(); ++member) {
    if (sizes[member] < 0) arguments_.fail("{}[{}] is {}, expected 0 or more", name, member, sizes[member]);
    if (__builtin_add_overflow(total, sizes[member], &total))
      arguments_.fail("{} are more than 2^63 - 1 in all, expected fewer", name);
  }
  return total;
}

}  // namespace tutti::collectives
