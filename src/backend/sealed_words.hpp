// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace tutti {

/// Returns the FNV-1a hash, 64 bits. Two texts that differ in a single byte never have the same hash. It is
/// no signature: whoever changes bytes on purpose can compute it.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::span<const std::byte> bytes,
                                            std::uint64_t hash = 0xcbf29ce484222325U) noexcept {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

// Words that processes pass to one another as bytes. Their type has a `mark`, which distinguishes it from
// others, and a first member `checksum`, over the mark and all that follows.

template <class Words>
[[nodiscard]] std::uint64_t checksum_of(const Words& words) noexcept {
  static_assert(std::has_unique_object_representations_v<Words>);
  static_assert(offsetof(Words, checksum) == 0 && sizeof(words.checksum) == sizeof(std::uint64_t));
  const std::uint64_t mark = Words::mark;
  return fnv1a(std::as_bytes(std::span(&words, 1)).subspan(sizeof words.checksum),
               fnv1a(std::as_bytes(std::span(&mark, 1))));
}

/// Writes the words with their checksum to the start of `bytes`, which has room for them.
template <class Words>
void seal(Words words, std::span<std::byte> bytes) noexcept {
  words.checksum = checksum_of(words);
  std::memcpy(bytes.data(), &words, sizeof words);
}

/// Reads the words at the start of `bytes`. Returns nothing if `seal` has not written them as such words:
/// they are another type, or were changed.
template <class Words>
[[nodiscard]] std::optional<Words> unsealed(std::span<const std::byte> bytes) noexcept {
  Words words;
  if (bytes.size() < sizeof words) return std::nullopt;
  std::memcpy(&words, bytes.data(), sizeof words);
  if (words.checksum != checksum_of(words)) return std::nullopt;
  return words;
}

}  // namespace tutti
