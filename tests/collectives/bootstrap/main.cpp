// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/world.hpp"

#include <iostream>

#include <gtest/gtest.h>

namespace {

/// Says whose failures these are: all ranks write to one place.
class NamesRank final : public testing::EmptyTestEventListener {
 public:
  explicit NamesRank(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) std::cout << "rank " << rank_ << ":\n" << std::flush;
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  tutti::test::enter_world(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  testing::TestEventListener* const printer = listeners.Release(listeners.default_result_printer());
  listeners.Append(new NamesRank(tutti::test::rank_in_world()));
  listeners.Append(printer);
  const int status = RUN_ALL_TESTS();
  tutti::test::leave_world();
  return status;
}
