// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "support/values/random.hpp"
#include "tutti/communicator.hpp"

#include <cstdint>
#include <functional>
#include <vector>

/// Makes calls of a communicator with known data, and checks the results.
namespace tutti::test::ranks {

/// Element counts from nothing to several chunks, with odd ends.
inline const Sizes element_counts{0, 1, 7, 1000, 33'333, 300'001};

/// The shared knowledge of a case: all members' data, from which each rank takes its own part and predicts
/// the results.
struct Group {
  explicit Group(Communicator& all) : communicator(all) {}

  [[nodiscard]] int members() const { return communicator.member_count(); }
  [[nodiscard]] int locals() const { return static_cast<int>(communicator.devices().size()); }
  [[nodiscard]] Device device(int local) const {
    return communicator.devices()[static_cast<std::size_t>(local)];
  }
  [[nodiscard]] int member(int local) const { return communicator.first_member() + local; }
  [[nodiscard]] bool is_local(int any) const { return any >= member(0) && any < member(0) + locals(); }

  Communicator& communicator;
};

/// Returns numbers for all members.
[[nodiscard]] std::vector<HostArray> numbers_for(int members, DType dtype, const Sizes& sizes,
                                                 std::uint64_t seed);

/// Expects the right bytes in all outputs of a call, and no others touched. Waits for them.
using Check = std::function<void()>;

/// Checks a rule of the contract (`contract_captures.cpp`): replays do what the calls do.
void every_call_can_be_captured(Group& group);
void captured_calls_can_be_replayed(Group& group);

// Each makes one call, or two that undo one another, on new tensors, on current streams.
[[nodiscard]] Check start_broadcast(const Group& group, DType dtype, const Sizes& sizes, int root,
                                    std::uint64_t seed);
[[nodiscard]] Check start_reduce(const Group& group, DType dtype, const Sizes& sizes, int root, bool in_place,
                                 std::uint64_t seed);
[[nodiscard]] Check start_all_reduce(const Group& group, DType dtype, const Sizes& sizes, bool in_place,
                                     std::uint64_t seed);
// The same by any operation, of all members' inputs or of random numbers.
[[nodiscard]] Check start_reduce(const Group& group, const ReduceOp& op, const std::vector<HostArray>& inputs,
                                 int root, bool in_place);
[[nodiscard]] Check start_all_reduce(const Group& group, const ReduceOp& op,
                                     const std::vector<HostArray>& inputs, bool in_place);
[[nodiscard]] Check start_reduce_scatter(const Group& group, const ReduceOp& op,
                                         const std::vector<HostArray>& inputs);
[[nodiscard]] inline Check start_reduce(const Group& group, const ReduceOp& op, DType dtype,
                                        const Sizes& sizes, int root, bool in_place, std::uint64_t seed) {
  return start_reduce(group, op, numbers_for(group.members(), dtype, sizes, seed), root, in_place);
}
[[nodiscard]] inline Check start_all_reduce(const Group& group, const ReduceOp& op, DType dtype,
                                            const Sizes& sizes, bool in_place, std::uint64_t seed) {
  return start_all_reduce(group, op, numbers_for(group.members(), dtype, sizes, seed), in_place);
}
[[nodiscard]] inline Check start_reduce_scatter(const Group& group, const ReduceOp& op, DType dtype,
                                                std::int64_t count, std::uint64_t seed) {
  return start_reduce_scatter(group, op,
                              numbers_for(group.members(), dtype, {count * group.members()}, seed));
}
[[nodiscard]] Check start_all_gather(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed);
[[nodiscard]] Check start_reduce_scatter(const Group& group, DType dtype, std::int64_t count,
                                         std::uint64_t seed);
/// Starts calls with parts of unequal lengths along `dim`, whose size among `sizes` is ignored.
[[nodiscard]] Check start_scatter_and_gather(const Group& group, DType dtype, Sizes sizes, int dim, int root,
                                             std::uint64_t seed);
/// Starts a call drawn from `random`, which is in the same state on all ranks; `seed` is that of its data.
[[nodiscard]] Check start_random_call(const Group& group, Random& random, std::uint64_t seed);

inline void check_broadcast(const Group& group, DType dtype, const Sizes& sizes, int root,
                            std::uint64_t seed) {
  start_broadcast(group, dtype, sizes, root, seed)();
}
inline void check_reduce(const Group& group, DType dtype, const Sizes& sizes, int root, bool in_place,
                         std::uint64_t seed) {
  start_reduce(group, dtype, sizes, root, in_place, seed)();
}
inline void check_all_reduce(const Group& group, DType dtype, const Sizes& sizes, bool in_place,
                             std::uint64_t seed) {
  start_all_reduce(group, dtype, sizes, in_place, seed)();
}
inline void check_reduce(const Group& group, const ReduceOp& op, DType dtype, const Sizes& sizes, int root,
                         bool in_place, std::uint64_t seed) {
  start_reduce(group, op, dtype, sizes, root, in_place, seed)();
}
inline void check_all_reduce(const Group& group, const ReduceOp& op, DType dtype, const Sizes& sizes,
                             bool in_place, std::uint64_t seed) {
  start_all_reduce(group, op, dtype, sizes, in_place, seed)();
}
inline void check_reduce_scatter(const Group& group, const ReduceOp& op, DType dtype, std::int64_t count,
                                 std::uint64_t seed) {
  start_reduce_scatter(group, op, dtype, count, seed)();
}
inline void check_all_gather(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed) {
  start_all_gather(group, dtype, count, seed)();
}
inline void check_reduce_scatter(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed) {
  start_reduce_scatter(group, dtype, count, seed)();
}
inline void check_scatter_and_gather(const Group& group, DType dtype, const Sizes& sizes, int dim, int root,
                                     std::uint64_t seed) {
  start_scatter_and_gather(group, dtype, sizes, dim, root, seed)();
}

}  // namespace tutti::test::ranks
