// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/survivor_board.hpp"

namespace tutti::transport::team {

std::span<std::atomic<std::uint64_t>> SurvivorBoard::words(std::size_t rank, Set set) const noexcept {
  const std::size_t count = words_of_set(slots.size());
  return sets.subspan((rank * set_count + static_cast<std::size_t>(set)) * count, count);
}

void SurvivorBoard::write(std::size_t rank, Set set, const std::vector<std::size_t>& ranks) const {
  std::vector<std::uint64_t> bits(words_of_set(slots.size()));
  for (const std::size_t it : ranks) bits[it / word_bits] |= std::uint64_t{1} << it % word_bits;
  const auto target = words(rank, set);
  for (std::size_t i = 0; i < bits.size(); ++i) target[i].store(bits[i]);
}

std::vector<std::size_t> SurvivorBoard::read(std::size_t rank, Set set) const {
  std::vector<std::size_t> ranks;
  const auto source = words(rank, set);
  for (std::size_t it = 0; it < slots.size(); ++it) {
    if ((source[it / word_bits].load() >> it % word_bits & 1U) != 0) ranks.push_back(it);
  }
  return ranks;
}

}  // namespace tutti::transport::team
