// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"
#include "tutti/exchange.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

/// Helps processes to agree while they set up a team.
namespace tutti::transport::team {

/// Gathers values of a plain type from all ranks, each of which contributes as many: those of rank 0, then
/// those of rank 1, and so on.
template <class T>
[[nodiscard]] std::vector<T> gather_lists(Exchange& exchange, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  return all;
}
/// Gathers one value from each rank.
template <class T>
[[nodiscard]] std::vector<T> gather(Exchange& exchange, const T& mine) {
  return gather_lists(exchange, std::span<const T>(&mine, 1));
}

/// Waits until all ranks have called it.
inline void synchronize(Exchange& exchange) {
  static_cast<void>(gather(exchange, std::byte{}));
}

/// A text of bounded length, for `gather`.
struct Note {
  std::array<char, 512> text{};

  Note() = default;
  explicit Note(std::string_view from) {
    std::copy_n(from.begin(), std::min(from.size(), text.size() - 1), text.begin());
  }
  [[nodiscard]] std::string string() const { return text.data(); }
};

/// Returns the first complaint of any rank, with the rank's number, the same on all; empty if nobody has one.
[[nodiscard]] inline std::string first_complaint(Exchange& exchange, const std::string& mine) {
  const std::vector<Note> all = gather(exchange, Note(mine));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (const std::string text = all[rank].string(); !text.empty()) {
      return fmt::format("rank {}: {}", rank, text);
    }
  }
  return {};
}

/// Throws Error(peer_unavailable); called on all ranks that form a communicator together.
[[noreturn]] inline void refuse_to_join(const std::string& complaint) {
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("Communicator: not all ranks can join: {}", complaint));
}

/// Throws on all ranks alike if one of them has a complaint.
inline void require_no_complaint(Exchange& exchange, const std::string& mine) {
  if (const std::string complaint = first_complaint(exchange, mine); !complaint.empty())
    refuse_to_join(complaint);
}

}  // namespace tutti::transport::team
