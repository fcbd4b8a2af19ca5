// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/signature.hpp"

#include "transport/team/shared/rank_status.hpp"
#include "tutti/reduce_op.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Messages of calls that differ show in what they do.
namespace tutti::transport::team {
namespace {

Signature reduction_by(const ReduceOp& operation) {
  Signature signature{.collective = Collective::all_reduce, .elements = 4};
  signature.set_operation(operation);
  return signature;
}

std::string text_of(const Signature& signature) {
  const std::string text = to_string(signature);
  return text.substr(0, text.find(" (shapes"));
}

TEST(Signature, ShowsFactors) {
  EXPECT_EQ(text_of(reduction_by(ReduceOp::premul_sum(2.5))),
            "all_reduce of 4 float32 by premul_sum with factor 2.5");
  EXPECT_EQ(text_of(reduction_by(ReduceOp::premul_sum({1, 0.5}))),
            "all_reduce of 4 float32 by premul_sum with factors 1, 0.5");
  std::vector<double> many(9, 3);
  const Signature nine = reduction_by(ReduceOp::premul_sum(many));
  EXPECT_EQ(text_of(nine).find("with factors 3, 3, 3, 3, 3, 3, 3, 3, ... ("), 38U) << text_of(nine);
  many.back() = 2;
  const Signature other = reduction_by(ReduceOp::premul_sum(many));
  EXPECT_FALSE(nine.matches(other));
  EXPECT_NE(text_of(nine), text_of(other));
}

TEST(Signature, ShowsWhatIsCompiled) {
  const Signature sum =
      reduction_by(ReduceOp::compiled("template <class T> T add(T a, T b) { return a + b; }"));
  const Signature difference =
      reduction_by(ReduceOp::compiled("template <class T> T add(T a, T b) { return a - b; }"));
  EXPECT_EQ(text_of(sum).find("all_reduce of 4 float32 by compiled add (text "), 0U) << text_of(sum);
  EXPECT_FALSE(sum.matches(difference));
  EXPECT_NE(sum.digest(), difference.digest());
  EXPECT_NE(text_of(sum), text_of(difference));
}

TEST(Signature, ShowsAsManySizesAsItHolds) {
  Signature signature{.collective = Collective::broadcast,
                      .operands = CallOperands::lists,
                      .root = 1,
                      .tensors = 17,
                      .elements = 17};
  for (int tensor = 0; tensor < 16; ++tensor) signature.show_tensor(1, DType::float32);
  EXPECT_EQ(text_of(signature),
            "broadcast_coalesced of 17 float32 in 17 tensors of 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
            "1, root 1");
  for (int tensor = 16; tensor < 1000; ++tensor) signature.show_tensor(1, DType::int8);
  EXPECT_EQ(text_of(signature),
            "broadcast_coalesced of 17 float32 in 17 tensors of 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
            "1, ..., root 1");
}

TEST(Signature, ShowsAPurpose) {
  Signature signature{.collective = Collective::all_gather};
  signature.set_purpose("ShardedOptimizer");
  EXPECT_EQ(text_of(signature), "all_gather for ShardedOptimizer");
  Signature other{.collective = Collective::all_gather};
  EXPECT_FALSE(signature.matches(other));
}

TEST(Signature, IsReadAsItWasWritten) {
  const auto status = std::make_unique<RankStatus>();
  const Signature plain{.collective = Collective::broadcast, .elements = 3};
  const Signature by_factor = reduction_by(ReduceOp::premul_sum(2));
  RankStatus::Entry& entry = status->entries[0];
  entry.write(RankStatus::history, by_factor, false, 0);
  EXPECT_EQ(to_string(entry.signature()), to_string(by_factor));
  EXPECT_TRUE(entry.common().matches(by_factor));
  entry.write(2 * RankStatus::history, plain, false, 0);
  EXPECT_EQ(to_string(entry.signature()), to_string(plain));
}

TEST(LastMessage, IsReadAsItWasWritten) {
  const LastMessage given{.after_call = 7, .from = 3, .to = 65'535, .is_sent = true};
  const LastMessage found = LastMessage::of(given.word());
  EXPECT_NE(LastMessage{}.word(), 0U);
  EXPECT_EQ(found.after_call, 7U);
  EXPECT_EQ(found.from, 3);
  EXPECT_EQ(found.to, 65'535);
  EXPECT_TRUE(found.is_sent);
}

}  // namespace
}  // namespace tutti::transport::team
