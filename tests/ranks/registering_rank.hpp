// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime.hpp"
#include "transport/team/registrations.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include <gtest/gtest.h>

/// The registration cache by itself, without calls: two ranks of a member each.
namespace tutti::transport::ranks {

inline constexpr std::uint64_t always = UINT64_MAX;  ///< the last call, where all are complete
inline constexpr std::size_t capacity = 4;
inline constexpr std::int64_t count = 1 << 18;  ///< of int32: half a segment of the small pool

[[nodiscard]] inline std::byte* address_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data());
}

/// What two ranks of a member each share. Zero-filled memory is what it looks like at first.
struct Shared {
  std::array<RankBoard, 2> boards;
  std::array<RegistrationBoard, 2> registrations;
  std::array<RegistrationView, RegistrationTables::view_count(2, 2)> views;
  std::atomic<bool> is_over;
  std::atomic<bool> closes_nothing;
};

/// Registrations of one of the two, whose device has its number.
class Rank {
 public:
  using WaitFor = std::function<void(std::uint64_t sequence, const std::function<bool()>& holds)>;

  Rank(Shared& shared, std::size_t rank, WaitFor wait_for)
      : shared_(shared),
        rank_(rank),
        registrations_(Runtime::get(),
                       {.tables = {.rank = rank,
                                   .rank_of_member = {0, 1},
                                   .boards = shared.boards,
                                   .registrations = shared.registrations,
                                   .views = shared.views},
                        .first_own = rank,
                        .own_devices = {static_cast<int>(rank)},
                        .wait_for = std::move(wait_for),
                        .is_complete = [this](std::uint64_t sequence) { return sequence <= completed; },
                        .while_idle =
                            [](const std::function<void()>& work) {
                              work();
                              return Attempt::done;
                            },
                        .closes_nothing = [&shared](std::size_t) { return shared.closes_nothing.load(); },
                        .is_over = [&shared] { return shared.is_over.load(); },
                        .capacity = capacity}) {}

  /// As a call does it.
  bool give(std::uint64_t sequence, const Tensor& tensor, bool is_captured = false) {
    const bool is_added = registrations_.add(sequence, 0, address_of(tensor), is_captured);
    registrations_.wait(sequence);
    return is_added;
  }
  /// Where the other has what was given.
  [[nodiscard]] std::byte* seen_by_other(const Tensor& tensor) {
    return registrations_.find(address_of(tensor)).seen_by(1 - rank_);
  }
  [[nodiscard]] std::uint64_t version(std::size_t entry) const {
    return shared_.registrations[rank_].entries[entry].version.load();
  }
  [[nodiscard]] std::uint32_t used() const { return shared_.registrations[rank_].used.load(); }
  [[nodiscard]] Registrations& operator*() { return registrations_; }

  std::atomic<std::uint64_t> completed = 0;  ///< the last call

 private:
  Shared& shared_;
  const std::size_t rank_;
  Registrations registrations_;
};

/// Two tensors that fill a segment.
struct FullSegment {
  explicit FullSegment(int device, std::int32_t value) {
    const TensorOptions options{.dtype = DType::int32, .device = device};
    first = full({count}, value, options);
    second = full({count}, value + 1, options);
    const auto extent = Runtime::get().allocator(device).segment_of(first.data());
    EXPECT_EQ(extent.address, address_of(first));
    EXPECT_EQ(address_of(second) - address_of(first), count * std::int64_t{sizeof(std::int32_t)});
    EXPECT_EQ(extent.bytes, first.nbytes() + second.nbytes());
    tutti::synchronize(device);
  }

  Tensor first;
  Tensor second;
};

}  // namespace tutti::transport::ranks
