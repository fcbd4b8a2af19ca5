// SPDX-License-Identifier: Apache-2.0
#include "transport/shape.hpp"

namespace tutti::transport {

std::uint64_t CallShape::largest_message() const noexcept {
  if (counted) return counted->largest_message;
  switch (collective) {
    case Collective::scatter:
    case Collective::reduce_scatter_add:
    case Collective::all_to_all:
      return payload / members * (members - 1);
    case Collective::gather:
    case Collective::all_gather:
      return payload / members;
    default:
      return payload;
  }
}

std::uint64_t CallShape::busiest_member() const noexcept {
  if (counted) return counted->busiest_member;
  switch (collective) {
    case Collective::scatter:
    case Collective::gather:
      return payload - kept_by_root;
    case Collective::all_gather:
    case Collective::reduce_scatter_add:
    case Collective::all_to_all:
      return payload / members * (members - 1);
    default:
      return payload * (members - 1);
  }
}

}  // namespace tutti::transport
