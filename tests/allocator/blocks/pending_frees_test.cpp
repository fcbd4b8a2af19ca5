// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/pending_frees.hpp"

#include "support/machines/absent_backend.hpp"
#include "tutti/error.hpp"

#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using backend::EventHandle;
using backend::StreamHandle;
using backend::StreamRef;

/// Streams and events whose work completes when the test says so.
class ScriptedBackend final : public test::AbsentBackend {
 public:
  std::set<StreamHandle> capturing;
  std::set<StreamHandle> failing;
  std::vector<EventHandle> recorded;  ///< in order, each recording once
  std::set<EventHandle> completed;
  int reporting_queries = 0;
  int touched_while_capturing = 0;
  int queries = 0;
  std::uint64_t stream_generation = 0;  ///< another one where handles name new streams

  void complete(std::size_t recording) { completed.insert(recorded.at(recording)); }

  EventHandle create_event(int, backend::EventTiming, backend::EventWait) override {
    return reinterpret_cast<EventHandle>(++last_event_);
  }
  void destroy_event(EventHandle) noexcept override {}
  void record_event(EventHandle event, StreamRef stream) override {
    if (capturing.contains(stream.handle)) ++touched_while_capturing;
    if (failing.contains(stream.handle)) throw Error(ErrorCode::device_failure, "the stream has failed");
    completed.erase(event);
    recorded.push_back(event);
  }
  bool query_event(EventHandle event) override {
    ++reporting_queries;
    return completed.contains(event);
  }
  bool has_passed(EventHandle event) noexcept override {
    ++queries;
    return completed.contains(event);
  }
  std::uint64_t stream_id(StreamRef) override { return stream_generation; }
  bool is_capturing(StreamRef stream) override { return capturing.contains(stream.handle); }

 private:
  std::uintptr_t last_event_ = 0;
};

StreamRef stream(std::uintptr_t number, int device = 0) {
  return {reinterpret_cast<StreamHandle>(number), device};
}

class PendingFreesTest : public testing::Test {
 protected:
  /// The blocks that a reap reports, in order.
  std::vector<StreamUses*> reap() {
    std::vector<StreamUses*> done;
    pending_.reap([&](StreamUses& block) { done.push_back(&block); });
    return done;
  }

  /// How many blocks a reap reports when `completed` of a stream's `marks` are complete. Finishes the others.
  std::size_t reap_after(std::size_t completed, std::size_t marks) {
    std::vector<StreamUses> blocks(marks);
    const std::size_t first = backend_.recorded.size();
    for (StreamUses& block : blocks) {
      block.add(stream(1));
      pending_.add(block);
    }
    for (std::size_t i = 0; i < completed; ++i) backend_.complete(first + i);
    backend_.queries = 0;
    const std::size_t reported = reap().size();
    queries_of_reap_ = backend_.queries;
    for (std::size_t i = completed; i < marks; ++i) backend_.complete(first + i);
    EXPECT_EQ(reported + reap().size(), marks);
    return reported;
  }

  ScriptedBackend backend_;
  int queries_of_reap_ = 0;
  EventPool events_{backend_, backend_.device_count()};
  PendingFrees pending_{backend_, events_};
  StreamUses block_;
  StreamUses other_block_;
};

using Blocks = std::vector<StreamUses*>;

TEST_F(PendingFreesTest, NameEachStreamOnce) {
  block_.add(stream(1));
  block_.add(stream(2));
  block_.add(stream(1));
  block_.add(stream(1, 1));
  EXPECT_EQ(block_.streams, (std::vector<StreamRef>{stream(1), stream(2), stream(1, 1)}));
}

TEST_F(PendingFreesTest, WaitForEveryStream) {
  block_.add(stream(1));
  block_.add(stream(2, 1));
  EXPECT_TRUE(pending_.empty());
  pending_.add(block_);
  EXPECT_FALSE(pending_.empty());
  EXPECT_EQ(pending_.open_events().size(), 2U);
  EXPECT_EQ(reap(), Blocks{});
  backend_.complete(1);
  EXPECT_EQ(reap(), Blocks{});
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{&block_});
  EXPECT_TRUE(pending_.empty());
  EXPECT_TRUE(block_.streams.empty());
}

TEST_F(PendingFreesTest, CompleteInTheOrderOfTheirStream) {
  block_.add(stream(1));
  other_block_.add(stream(1));
  pending_.add(block_);
  pending_.add(other_block_);
  EXPECT_EQ(pending_.open_events().size(), 1U) << "the last mark of a stream covers the earlier ones";
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{&block_});
  backend_.complete(1);
  EXPECT_EQ(reap(), Blocks{&other_block_});
}

TEST_F(PendingFreesTest, FindHowFarAStreamHasCome) {
  for (std::size_t marks = 1; marks <= 20; ++marks) {
    for (std::size_t completed = 0; completed <= marks; ++completed) {
      EXPECT_EQ(reap_after(completed, marks), completed) << "of " << marks;
    }
  }
}

TEST_F(PendingFreesTest, AskFewEvents) {
  const std::map<std::size_t, int> queries_by_completed{{0, 2}, {1, 4}, {16, 11}, {999, 20}, {1000, 1}};
  for (const auto& [completed, queries] : queries_by_completed) {
    EXPECT_EQ(reap_after(completed, 1000), completed);
    EXPECT_LE(queries_of_reap_, queries) << completed << " were complete";
  }
}

TEST_F(PendingFreesTest, TellAStreamFromAnEarlierOneWithTheSameHandle) {
  block_.add(stream(1));
  pending_.add(block_);
  ++backend_.stream_generation;
  other_block_.add(stream(1));
  pending_.add(other_block_);
  EXPECT_EQ(pending_.open_events().size(), 2U);
  backend_.complete(1);
  EXPECT_EQ(reap(), Blocks{&other_block_}) << "the work of the earlier one is not done";
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{&block_});
}

TEST_F(PendingFreesTest, ReuseTheirEvents) {
  for (std::size_t round = 0; round < 10; ++round) {
    block_.add(stream(1));
    pending_.add(block_);
    backend_.complete(round);
    EXPECT_EQ(reap(), Blocks{&block_});
  }
  EXPECT_EQ(std::set<EventHandle>(backend_.recorded.begin(), backend_.recorded.end()).size(), 1U);
}

TEST_F(PendingFreesTest, LeaveStreamsAloneWhileTheyAreCaptured) {
  backend_.capturing = {stream(1).handle};
  block_.add(stream(1));
  pending_.add(block_);
  EXPECT_FALSE(pending_.empty());
  EXPECT_EQ(reap(), Blocks{});
  EXPECT_TRUE(backend_.recorded.empty());

  backend_.capturing.clear();
  EXPECT_EQ(reap(), Blocks{});
  ASSERT_EQ(backend_.recorded.size(), 1U) << "marked once the capture is over";
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{&block_});
  EXPECT_EQ(backend_.touched_while_capturing, 0);
}

TEST_F(PendingFreesTest, RememberWhichStreamsAreMarkedAlready) {
  backend_.capturing = {stream(1).handle};
  block_.add(stream(1));
  block_.add(stream(2));
  pending_.add(block_);
  ASSERT_EQ(backend_.recorded.size(), 1U);
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{}) << "stream 1 is still to be marked";
  backend_.capturing.clear();
  EXPECT_EQ(reap(), Blocks{});
  ASSERT_EQ(backend_.recorded.size(), 2U);
  backend_.complete(1);
  EXPECT_EQ(reap(), Blocks{&block_});
  EXPECT_TRUE(pending_.empty());
}

TEST_F(PendingFreesTest, SurviveStreamsThatCannotBeMarked) {
  backend_.failing = {stream(1).handle};
  block_.add(stream(1));
  other_block_.add(stream(2));
  pending_.add(block_);
  pending_.add(other_block_);
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{&other_block_});
  EXPECT_FALSE(pending_.empty());
  backend_.failing.clear();
  EXPECT_EQ(reap(), Blocks{});
  backend_.complete(1);
  EXPECT_EQ(reap(), Blocks{&block_});
}

TEST_F(PendingFreesTest, LeaveFailuresToWhoAsksForThem) {
  block_.add(stream(1));
  pending_.add(block_);
  backend_.complete(0);
  EXPECT_EQ(reap(), Blocks{&block_});
  EXPECT_EQ(backend_.reporting_queries, 0) << "such a query would forget what it reports";
}

}  // namespace
}  // namespace tutti
