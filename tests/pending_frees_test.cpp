#include "pending_frees.hpp"

#include "runtime.hpp"
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

/// A machine of which only streams and events exist, and whose work completes when the test says so.
class ScriptedBackend final : public backend::Backend {
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

  BackendKind kind() const noexcept override { return BackendKind::host; }
  int device_count() const noexcept override { return 2; }
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

  // The rest is not asked for.
  const DeviceProperties& properties(int) const override { unexpected(); }
  MemoryInfo memory_info(int) override { unexpected(); }
  void set_current_device(int) override { unexpected(); }
  std::pair<int, int> stream_priority_range(int /*device*/) const override { return {0, 0}; }
  backend::Link link(int, int) override { unexpected(); }
  bool can_access_peer(int, int) override { unexpected(); }
  void enable_peer_access(int, int) override { unexpected(); }
  void synchronize_device(int) override { unexpected(); }
  void* allocate_device(int, std::size_t) override { unexpected(); }
  void free_device(int, void*) noexcept override {}
  void* allocate_pinned(std::size_t) override { unexpected(); }
  void free_pinned(void*) noexcept override {}
  backend::PointerInfo pointer_info(const void*) override { unexpected(); }
  void register_pinned(void*, std::size_t) override { unexpected(); }
  void unregister_pinned(void*) noexcept override {}
  backend::MemoryHandle share_device_memory(int, void*) override { unexpected(); }
  void* open_device_memory(int, const backend::MemoryHandle&) override { unexpected(); }
  void close_device_memory(int, void*) noexcept override {}
  StreamRef default_stream(int) override { unexpected(); }
  StreamRef create_stream(int, int) override { unexpected(); }
  void destroy_stream(StreamRef) noexcept override {}
  bool query_stream(StreamRef) override { unexpected(); }
  void synchronize_stream(StreamRef) override { unexpected(); }
  void wait_event(StreamRef, EventHandle) override { unexpected(); }
  void launch_host_function(StreamRef, void (*)(void*), void*) override { unexpected(); }
  void synchronize_event(EventHandle) override { unexpected(); }
  float elapsed_time(EventHandle, EventHandle) override { unexpected(); }
  backend::SignalSupport signal_support() const noexcept override { return backend::SignalSupport::none; }
  void signal(StreamRef, backend::SharedFlag&, std::uint32_t) override { unexpected(); }
  void wait_signals(StreamRef, std::span<backend::SharedFlag>, std::uint32_t) override { unexpected(); }
  void copy(StreamRef, const backend::Copy2D&) override { unexpected(); }
  void fan_out(StreamRef, const backend::FanOut&) override { unexpected(); }
  void ordered_sum(StreamRef, const backend::OrderedSum&) override { unexpected(); }
  void convert(StreamRef, const backend::Convert&) override { unexpected(); }
  void fill(StreamRef, const backend::Fill&) override { unexpected(); }
  void random_fill(StreamRef, const backend::RandomFill&) override { unexpected(); }
  void team_round(StreamRef, const backend::TeamRound&) override { unexpected(); }
  bool supports_graphs() const noexcept override { return true; }
  void begin_capture(StreamRef) override { unexpected(); }
  backend::GraphHandle end_capture(StreamRef) override { unexpected(); }
  void launch_graph(backend::GraphHandle, StreamRef) override { unexpected(); }
  void destroy_graph(backend::GraphHandle) noexcept override {}
  void retain_until_graph_destroyed(StreamRef, std::shared_ptr<void>) override { unexpected(); }

 private:
  [[noreturn]] static void unexpected() { throw std::logic_error("not a stream or event call"); }

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
  EventPool events_{backend_};
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
