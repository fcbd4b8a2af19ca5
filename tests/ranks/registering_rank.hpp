// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/shared_flag.hpp"
#include "runtime.hpp"
#include "transport/team/abort.hpp"
#include "transport/team/call_log.hpp"
#include "transport/team/flight_record.hpp"
#include "transport/team/judgement.hpp"
#include "transport/team/live_teams.hpp"
#include "transport/team/local_news.hpp"
#include "transport/team/membership.hpp"
#include "transport/team/peer_process.hpp"
#include "transport/team/progress.hpp"
#include "transport/team/registrations.hpp"
#include "transport/team/shared_state.hpp"
#include "transport/team/waiting.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// The registration cache by itself, without calls: two ranks of a member each.
namespace tutti::transport::ranks {

inline constexpr std::uint64_t always = 1'000'000;  ///< more calls than any test makes
inline constexpr std::size_t capacity = 4;
inline constexpr std::int64_t count = 1 << 18;  ///< of int32: half a segment of the small pool

[[nodiscard]] inline std::byte* address_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data());
}

/// What two ranks of a member each share.
inline constexpr SharedState::Shape shape_of_two{.ranks = 2, .members = 2, .has_registrations = true};

/// Registrations of one of the two, whose device has its number.
class Rank {
 public:
  static constexpr std::chrono::milliseconds timeout{30'000};

  /// `memory` is zero-filled at first.
  Rank(std::byte* memory, std::size_t rank)
      : membership_(rank,
                    std::array<Membership::Rank, 2>{
                        {{.host = "here", .member_count = 1}, {.host = "here", .member_count = 1}}},
                    {static_cast<int>(rank)}),
        state_(memory, shape_of_two),
        abort_(membership_, state_.abort_word(), news_),
        progress_(runtime_, membership_, state_, abort_),
        judgement_(membership_, state_, progress_, processes_, {.timeout = timeout, .network = {}}),
        record_(membership_, state_, progress_, judgement_, abort_),
        waiting_(runtime_, membership_, state_, progress_, judgement_, record_, abort_),
        calls_(membership_, state_, progress_, waiting_, abort_, news_),
        registrations_(runtime_, membership_, state_, progress_, waiting_, calls_, abort_,
                       runtime_.extension<LiveTeams>(), capacity) {}

  /// This rank has completed all calls up to this one.
  void complete(std::uint64_t sequence) {
    state_.board(membership_.rank()).last_sequence.store(sequence);
    calls_.has_queued(sequence);
    backend::set_flag(state_.done_flag(membership_.rank()), static_cast<std::uint32_t>(sequence));
  }
  /// The other rank has made a call that this one has not made, or not any more.
  void let_other_wait(bool waits) {
    constexpr std::uint64_t far_ahead = 1000;
    const std::size_t other = 1 - membership_.rank();
    state_.board(other).last_sequence.store(waits ? far_ahead : 0);
  }
  void end_team() { abort_.set(ErrorCode::aborted, "the team is over"); }
  /// As a call does it.
  bool give(std::uint64_t sequence, const Tensor& tensor, bool is_captured = false) {
    const bool is_added = registrations_.add(sequence, 0, address_of(tensor), is_captured);
    registrations_.wait(sequence);
    return is_added;
  }
  /// Where the other has what was given.
  [[nodiscard]] std::byte* seen_by_other(const Tensor& tensor) {
    return registrations_.find(address_of(tensor)).seen_by(1 - membership_.rank());
  }
  [[nodiscard]] std::uint64_t version(std::size_t entry) const {
    return table().entries[entry].version.load();
  }
  [[nodiscard]] std::uint32_t used() const { return table().used.load(); }
  /// What the other rank has made of the entry.
  [[nodiscard]] RegistrationView& view_of_other(std::size_t entry) const {
    return tables().views_of(membership_.rank(), entry)[1 - membership_.rank()];
  }
  [[nodiscard]] const SharedState& state() const { return state_; }
  [[nodiscard]] Registrations& operator*() { return registrations_; }

 private:
  [[nodiscard]] RegistrationTables tables() const { return state_.registration_tables(membership_); }
  [[nodiscard]] RegistrationBoard& table() const { return tables().own(); }

  Runtime& runtime_ = Runtime::get();
  const Membership membership_;
  const SharedState state_;
  const std::vector<PeerProcess> processes_{2};  // none that could be gone
  LocalNews news_;
  Abort abort_;
  Progress progress_;
  const Judgement judgement_;
  const FlightRecord record_;
  Waiting waiting_;
  CallLog calls_;
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
