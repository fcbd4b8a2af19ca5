#pragma once

#include "support/host_array.hpp"
#include "tutti/communicator.hpp"

#include <cstdint>
#include <vector>

/// Calls of a communicator with known data, and what must come of them.
namespace tutti::test::ranks {

/// From nothing to several chunks, with odd ends.
inline const Sizes element_counts{0, 1, 7, 1000, 33'333, 300'001};

/// What every rank knows of a case: all members' data, from which it takes its own part and predicts the
/// results.
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

/// Numbers of all members.
[[nodiscard]] std::vector<HostArray> numbers_for(int members, DType dtype, const Sizes& sizes,
                                                 std::uint64_t seed);

// Each makes one call, on new tensors, and expects the right bytes in all outputs and no others touched.
void check_broadcast(const Group& group, DType dtype, const Sizes& sizes, int root, std::uint64_t seed);
void check_reduce(const Group& group, DType dtype, const Sizes& sizes, int root, bool in_place,
                  std::uint64_t seed);
void check_all_reduce(const Group& group, DType dtype, const Sizes& sizes, bool in_place, std::uint64_t seed);
void check_all_gather(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed);
void check_reduce_scatter(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed);
/// Parts of unequal lengths along `dim`, whose size among `sizes` is not looked at.
void check_scatter_and_gather(const Group& group, DType dtype, Sizes sizes, int dim, int root,
                              std::uint64_t seed);

}  // namespace tutti::test::ranks
