// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "collectives/communicator/member_operands.hpp"
#include "transport/team/shared/membership.hpp"
#include "tutti/device.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::collectives {

/// Checks what is given for the local members of a team: throws Error(invalid_argument), in the name of the
/// call, if it is not as expected. Queues nothing.
class MemberChecks {
 public:
  /// `devices` are those of the local members. All arguments outlive this.
  MemberChecks(const Arguments& arguments, std::span<const Device> devices,
               const transport::team::Membership& membership)
      : arguments_(arguments), devices_(devices), membership_(membership) {}

  void one_per_member(std::size_t count, std::string_view argument) const;
  /// Checks that a tensor is usable, and on its local member's device.
  void on_member(const Tensor& tensor, const Name& name, std::size_t local) const;
  /// Checks that local members' lists are on their devices, all of the same element types and sizes as the
  /// first.
  void alike(const MemberOperands& operands, std::string_view argument,
             Likeness likeness = Likeness::sizes) const;
  /// Checks that local members' parts are on their devices and alike but along `dim`, which is returned,
  /// counted from the front.
  [[nodiscard]] int parts(const MemberOperands& parts, std::string_view argument, int dim) const;
  /// Checks that a local member's tensor is like a part, but along a dimension.
  void like_part(const Tensor& tensor, const Name& name, std::size_t local, const Tensor& part,
                 const Name& part_name, int along) const;
  /// Checks that there is one number of elements for each of all members, 0 or more. Returns their sum.
  std::int64_t part_sizes(std::span<const std::int64_t> sizes, const Name& name) const;
  /// Checks that a local member's output can be written, and is like a tensor.
  void output(const Tensor& out, const Name& name, std::size_t local, const Tensor& like,
              const Name& like_name) const;

 private:
  const Arguments& arguments_;
  std::span<const Device> devices_;
  const transport::team::Membership& membership_;
};

}  // namespace tutti::collectives
