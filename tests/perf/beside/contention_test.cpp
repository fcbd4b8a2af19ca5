// SPDX-License-Identifier: Apache-2.0
#include "perf/beside/contention.hpp"

#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// Fills of tensors on streams of its own.
class Fills {
 public:
  explicit Fills(std::int64_t elements) {
    for (int device = 0; device < 2; ++device) {
      streams_.emplace_back(Device(device));
      tensors_.push_back(tutti::empty({elements}, {.device = Device(device)}));
    }
  }

  [[nodiscard]] Contender contender() {
    return {streams_, [this] {
              ++units_;
              for (std::size_t i = 0; i < tensors_.size(); ++i) {
                const StreamGuard guard(streams_[i]);
                tensors_[i].fill_(1);
              }
            }};
  }
  [[nodiscard]] int units() const noexcept { return units_; }

 private:
  std::vector<Stream> streams_;
  std::vector<Tensor> tensors_;
  int units_ = 0;
};

TEST(Contention, EachSideIsMeasuredAloneAndBesideTheOther) {
  Fills measured(1 << 14);
  // A unit takes the devices far longer than it takes the host to queue it, so more units cover more.
  Fills other(1 << 22);
  const ContendedTimes times = measure_contention(measured.contender(), other.contender(), 3, 500);
  EXPECT_GT(times.alone, 0);
  EXPECT_GT(times.beside, 0);
  EXPECT_DOUBLE_EQ(times.slowdown(), times.beside / times.alone);
  // Warm-up, a first look, and three runs of at least one unit, alone and beside.
  EXPECT_GE(measured.units(), 3 + 3 + 2 * 3);
  EXPECT_GE(other.units(), 3 + 3 + 3);
}

TEST(Contention, WorkThatCannotCoverTheOtherIsAnError) {
  Fills measured(1 << 20);
  Fills nothing(0);
  EXPECT_TRUE(test::refuses(
      [&] { static_cast<void>(measure_contention(measured.contender(), nothing.contender(), 1, 1e5)); },
      ErrorCode::internal, {"contention", "other work has ended"}));
}

TEST(Contention, NoTimeIsNoSlowdown) {
  EXPECT_EQ(ContendedTimes{}.slowdown(), 0);
}

}  // namespace
}  // namespace tutti::perf
