// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"
#include "device/runtime.hpp"
#include "os/shared_memory.hpp"
#include "stream/stream_access.hpp"
#include "support/machines/rank_components.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/registration_tables.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "tutti/error.hpp"
#include "tutti/exchange.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

/// Tests the registration cache by itself, without calls: two ranks of one member each.
namespace tutti::transport::team {

inline constexpr std::uint64_t always = 1'000'000;  ///< more calls than any test makes
inline constexpr std::size_t capacity = 4;
inline constexpr std::int64_t count = 1 << 18;  ///< of int32: half a segment of the small pool

[[nodiscard]] inline std::byte* address_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data());
}

/// Returns how much memory two ranks of one member each share.
[[nodiscard]] inline std::size_t bytes_of_two() {
  return SharedState::bytes(test::RankComponents::shape_of(test::RankComponents::alike(2)));
}

/// Returns memory that both processes share. Collective.
[[nodiscard]] inline SharedMemory memory_of_both(Exchange& exchange) {
  SharedMemory memory;
  if (exchange.rank() == 0) memory = SharedMemory(bytes_of_two());
  const SharedMemory::Handle handle = gather(exchange, memory.share(Audience::anyone))[0];
  if (exchange.rank() == 1) memory = SharedMemory(handle);
  synchronize(exchange);
  memory.seal();
  return memory;
}

/// Copies int32 elements from memory that the device can access.
[[nodiscard]] inline Tensor copy_on(int device, const std::byte* address, std::int64_t elements = count) {
  Tensor copy = zeros({elements}, {.dtype = DType::int32, .device = device});
  Runtime::get().backend().copy(StreamAccess::ref(current_stream(device)),
                                {.target = address_of(copy), .source = address, .row_bytes = copy.nbytes()});
  return copy;
}

/// Registrations of one of the two ranks, whose device has its number.
class Rank {
 public:
  /// Takes memory that is initially zero-filled.
  Rank(std::byte* memory, std::size_t rank)
      : components_(memory, test::RankComponents::alike(2), rank, std::chrono::seconds(30),
                    static_cast<int>(rank)),
        registrations_(components_.runtime, components_.membership, components_.state, components_.progress,
                       components_.waiting, components_.calls, components_.abort,
                       components_.runtime.part<LiveTeams>(), capacity) {}

  /// Marks all calls up to this one as completed by this rank.
  void complete(std::uint64_t sequence) {
    components_.status().last_sequence.store(sequence);
    components_.calls.has_queued(sequence);
    components_.complete(sequence);
  }
  /// Makes the other rank appear to have made a call that this rank has not made, or ends that.
  void let_other_wait(bool waits) {
    constexpr std::uint64_t far_ahead = 1000;
    components_.state.status(other()).last_sequence.store(waits ? far_ahead : 0);
  }
  void end_team() { components_.abort.set(ErrorCode::aborted, "the team is over"); }
  /// Exposes a tensor as a call does.
  bool expose(std::uint64_t sequence, const Tensor& tensor, bool is_captured = false) {
    const bool is_added = registrations_.add(sequence, 0, {address_of(tensor), tensor.nbytes()}, is_captured);
    registrations_.wait(sequence);
    return is_added;
  }
  /// Returns the other rank's address of an exposed tensor.
  [[nodiscard]] std::byte* seen_by_other(const Tensor& tensor) {
    return registrations_.find(address_of(tensor)).seen_by(other());
  }
  [[nodiscard]] std::uint64_t version(std::size_t entry) const {
    return table().entries[entry].version.load();
  }
  [[nodiscard]] std::uint32_t used() const { return table().used.load(); }
  /// Returns the other rank's view of the entry.
  [[nodiscard]] RegistrationView& view_of_other(std::size_t entry) const {
    return tables().views_of(components_.membership.rank(), entry)[other()];
  }
  [[nodiscard]] const SharedState& state() const { return components_.state; }
  [[nodiscard]] Registrations& operator*() { return registrations_; }

 private:
  [[nodiscard]] std::size_t other() const { return 1 - components_.membership.rank(); }
  [[nodiscard]] RegistrationTables tables() const {
    return components_.state.registration_tables(components_.membership);
  }
  [[nodiscard]] RegistrationTable& table() const { return tables().own(); }

  test::RankComponents components_;
  Registrations registrations_;
};

/// Holds two tensors that fill a segment.
struct FullSegment {
  explicit FullSegment(int device, std::int32_t value) {
    const TensorOptions options{.dtype = DType::int32, .device = device};
    first = full({count}, value, options);
    second = full({count}, value + 1, options);
    const auto extent = Runtime::get().part<Allocators>().of(device).segment_of(first.data());
    EXPECT_EQ(extent.address, address_of(first));
    EXPECT_EQ(address_of(second) - address_of(first), count * std::int64_t{sizeof(std::int32_t)});
    EXPECT_EQ(extent.bytes, first.nbytes() + second.nbytes());
    tutti::synchronize(device);
  }

  Tensor first;
  Tensor second;
};

}  // namespace tutti::transport::team
