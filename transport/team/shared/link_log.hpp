// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::transport::team {

/// The properties of a message that both sides must agree on.
struct LinkSignature {
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
  bool is_captured = false;

  friend bool operator==(const LinkSignature&, const LinkSignature&) = default;
};

/// Logs the last messages of one side of a link in shared memory: that side's rank writes them, the other
/// side's reads them. They are numbered from 1.
class alignas(64) LinkLog {
 public:
  static constexpr std::size_t history = 16;
  /// The most messages that one side may be ahead of the other. The other side compares each message when it
  /// writes its own, so it has compared those that are overwritten.
  static constexpr std::uint64_t furthest_ahead = history / 2;

  [[nodiscard]] std::uint64_t posted() const noexcept { return posted_.load(); }
  [[nodiscard]] bool has_room_beside(const LinkLog& other) const noexcept {
    return posted() < other.posted() + furthest_ahead;
  }
  /// Returns how many messages that side's rank has made; those after the posted ones wait for room here.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_.load(); }
  void set_made(std::uint64_t number) noexcept { made_.store(number); }
  /// Returns the number up to which the receiving rank has completed messages that are not captured. Only in
  /// the receiver's log.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_.load(); }
  void set_received(std::uint64_t number) noexcept { received_.store(number); }
  /// Adds a message; called by one thread at a time.
  void post(const LinkSignature& signature) noexcept {
    const std::uint64_t number = posted() + 1;
    Entry& entry = entries_[number % history];
    entry.elements.store(signature.elements, std::memory_order_relaxed);
    entry.kind.store(static_cast<std::uint64_t>(signature.dtype) << 1U | (signature.is_captured ? 1U : 0U),
                     std::memory_order_relaxed);
    posted_.store(number);
  }
  /// Returns a message that has been posted and not overwritten.
  [[nodiscard]] LinkSignature message(std::uint64_t number) const noexcept {
    const Entry& entry = entries_[number % history];
    const std::uint64_t kind = entry.kind.load(std::memory_order_relaxed);
    return {.elements = entry.elements.load(std::memory_order_relaxed),
            .dtype = static_cast<DType>(kind >> 1U),
            .is_captured = (kind & 1U) != 0};
  }

 private:
  struct Entry {
    std::atomic<std::uint64_t> elements{0};
    std::atomic<std::uint64_t> kind{0};
  };

  std::atomic<std::uint64_t> posted_{0};
  std::atomic<std::uint64_t> made_{0};
  std::atomic<std::uint64_t> received_{0};
  std::array<Entry, history> entries_{};
};

}  // namespace tutti::transport::team
