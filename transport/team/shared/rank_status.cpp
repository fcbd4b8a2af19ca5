// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/rank_status.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <type_traits>

#include <fmt/format.h>

namespace tutti::transport::team {

std::int64_t RankStatus::now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void RankStatus::Entry::write(std::uint64_t sequence, const Signature& signature, bool is_captured,
                              std::int64_t now) noexcept {
  static_assert(std::is_trivially_copyable_v<Signature> && sizeof(Signature) % sizeof(std::uint64_t) == 0);
  const std::size_t count = signature.has_more() ? word_count : common_words;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&signature);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
    words_[i].store(word, std::memory_order_relaxed);
  }
  posted_at_.store(now, std::memory_order_relaxed);
  is_captured_.store(is_captured, std::memory_order_relaxed);
  sequence_.store(sequence, std::memory_order_release);
}

Signature RankStatus::Entry::words(std::size_t count) const noexcept {
  std::array<std::uint64_t, word_count> words{};
  for (std::size_t i = 0; i < count; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
  return std::bit_cast<Signature>(words);
}

std::string RankStatus::call_in_words(std::uint64_t sequence) const {
  if (sequence == 0) return "nothing yet";
  const Entry& entry = entries[sequence % history];
  const std::string what = entry.is(sequence) ? to_string(entry.signature()) : "a call";
  return fmt::format("{} (#{})", what, sequence);
}

bool FirstCalls::agree(std::uint64_t sequence, const Signature& signature, bool is_captured) noexcept {
  constexpr std::uint64_t lap_bits = 8;
  constexpr std::uint64_t lap_mask = (std::uint64_t{1} << lap_bits) - 1;
  // No lap is 0, which is what the memory holds at first.
  const std::uint64_t lap = 1 + sequence / RankStatus::history % lap_mask;
  const std::uint64_t captured = is_captured ? std::uint64_t{1} << lap_bits : 0;
  const std::uint64_t mine = ((signature.digest() << lap_bits) ^ captured) | lap;

  std::atomic<std::uint64_t>& word = words_[sequence % RankStatus::history];
  std::uint64_t first = word.load(std::memory_order_acquire);
  while ((first & lap_mask) != lap) {
    if (word.compare_exchange_weak(first, mine, std::memory_order_acq_rel, std::memory_order_acquire))
      return true;
  }
  return first == mine;
}

}  // namespace tutti::transport::team
