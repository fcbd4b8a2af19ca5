// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_plan.hpp"

namespace tutti::transport::team {

std::size_t RoundPlan::bytes() const noexcept {
  const auto bytes_in = [](const auto& list) { return list.capacity() * sizeof(list[0]); };
  std::size_t total = sizeof(RoundPlan) + bytes_in(reaches) + bytes_in(in_place);
  for (const std::vector<RoundPart>& own : parts) {
    total += bytes_in(own);
    for (const RoundPart& part : own) {
      total += bytes_in(part.puts.segments) + bytes_in(part.puts.pointers) + bytes_in(part.copies.segments) +
               bytes_in(part.copies.pointers) + bytes_in(part.reductions.segments) +
               bytes_in(part.reductions.pointers) + bytes_in(part.exposed);
    }
  }
  return total;
}

}  // namespace tutti::transport::team
