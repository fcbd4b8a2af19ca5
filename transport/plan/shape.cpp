// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/shape.hpp"

namespace tutti::transport {

std::uint64_t CallShape::largest_message() const noexcept {
  if (counted) return counted->largest_message;
  if (!moves_parts(collective)) return payload;
  // A member with a whole of its own puts the others' parts of it; otherwise its part of a whole.
  const bool has_wholes = traits_of(collective).output == CollectiveOutput::part;
  return payload / members * (has_wholes ? members - 1 : 1);
}

std::uint64_t CallShape::busiest_member() const noexcept {
  if (counted) return counted->busiest_member;
  if (!moves_parts(collective)) return payload * (members - 1);
  return traits_of(collective).has_root ? payload - kept_by_root : payload / members * (members - 1);
}

}  // namespace tutti::transport
