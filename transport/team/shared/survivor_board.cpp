// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/survivor_board.hpp"

namespace tutti::transport::team {

std::span<std::atomic<std::uint64_t>> SurvivorBoard::words(std::size_t participant, Set set) const noexcept {
  const std::size_t count = words_of_set(slots.size());
  return sets.subspan((participant * set_count + static_cast<std::size_t>(set)) * count, count);
}

void SurvivorBoard::write(std::size_t participant, Set set,
                          const std::vector<std::size_t>& participants) const {
  std::vector<std::uint64_t> bits(words_of_set(slots.size()));
  for (const std::size_t it : participants) bits[it / word_bits] |= std::uint64_t{1} << it % word_bits;
  const auto target = words(participant, set);
  for (std::size_t i = 0; i < bits.size(); ++i) target[i].store(bits[i]);
}

std::vector<std::size_t> SurvivorBoard::read(std::size_t participant, Set set) const {
  std::vector<std::size_t> participants;
  const auto source = words(participant, set);
  for (std::size_t it = 0; it < slots.size(); ++it) {
    if ((source[it / word_bits].load() >> it % word_bits & 1U) != 0) participants.push_back(it);
  }
  return participants;
}

}  // namespace tutti::transport::team
