#include "backend/host_machine.hpp"
#include "backend/shared_flag.hpp"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/// Flags and memory that processes share.
namespace tutti::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

struct Shared {
  AbortWord abort;
  SharedFlag there;
  SharedFlag back;
  alignas(4096) std::byte bytes[4096];
};

class HostFlags : public HostMachine {
 protected:
  HostFlags()
      : shared_(*new(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    Shared) {}
  ~HostFlags() override { munmap(&shared_, sizeof(Shared)); }

  void give_up(std::string_view reason) {
    reason.copy(shared_.abort.text.data(), reason.size());
    shared_.abort.length = static_cast<std::uint32_t>(reason.size());
    shared_.abort.state = AbortWord::aborted;
  }

  Shared& shared_;
};

TEST_F(HostFlags, OrderStreamsOfTwoProcesses) {
  constexpr std::uint32_t rounds = 2000;
  const pid_t other = fork();  // before this process has a stream with a thread
  if (other == 0) {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      if (!wait_for_flag(shared_.there, round, shared_.abort, 20'000)) _exit(1);
      set_flag(shared_.back, round);
    }
    _exit(0);
  }
  const StreamRef stream = machine().create_stream(0, 0);
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    machine().set_flag(stream, shared_.there, round);
    machine().wait_flag(stream, shared_.back, round, shared_.abort);
  }
  machine().synchronize_stream(stream);
  EXPECT_EQ(shared_.back.value, rounds);
  int status = -1;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(HostFlags, GoOnPastTheLargestNumber) {
  EXPECT_TRUE(has_reached(5, 0xfffffff0U));
  EXPECT_FALSE(has_reached(0xfffffff0U, 5));
  shared_.there.value = 0xfffffffeU;
  const StreamRef stream = machine().create_stream(0, 0);
  machine().wait_flag(stream, shared_.there, 2, shared_.abort);
  for (const std::uint32_t value : {0xffffffffU, 0U, 1U}) {
    set_flag(shared_.there, value);
    std::this_thread::sleep_for(2ms);
    EXPECT_FALSE(machine().query_stream(stream));
  }
  set_flag(shared_.there, 2);
  machine().synchronize_stream(stream);
}

TEST_F(HostFlags, WaitsEndWhenSomebodyGivesUp) {
  const StreamRef stream = machine().create_stream(2, 0);
  machine().wait_flag(stream, shared_.there, 1, shared_.abort);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(machine().query_stream(stream));
  give_up("no more");
  try {
    machine().synchronize_stream(stream);
    FAIL() << "the wait succeeded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("wait_flag"), HasSubstr("device 2"), HasSubstr("no more")));
  }
  // What is set afterwards stands for nothing.
  set_flag(shared_.there, 1);
  EXPECT_FALSE(wait_for_flag(shared_.there, 1, shared_.abort, 1000));
}

TEST_F(HostFlags, TakeTurnsUnderAnInterleaver) {
  control().set_interleaving_seed(5);
  const StreamRef first = machine().create_stream(0, 0);
  const StreamRef second = machine().create_stream(1, 0);
  std::vector<int> log;
  for (std::uint32_t round = 1; round <= 50; ++round) {
    // Queued before what it waits for: it must not be chosen to run first.
    machine().wait_flag(second, shared_.there, round, shared_.abort);
    launch(second, "second", {}, [&log](auto) { log.push_back(2); });
    machine().set_flag(second, shared_.back, round);
    launch(first, "first", {}, [&log](auto) { log.push_back(1); });
    machine().set_flag(first, shared_.there, round);
    machine().wait_flag(first, shared_.back, round, shared_.abort);
  }
  machine().synchronize_stream(first);
  machine().synchronize_stream(second);
  ASSERT_EQ(log.size(), 100U);
  for (std::size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i], i % 2 == 0 ? 1 : 2) << i;
}

TEST_F(HostFlags, RegisteredPagesAreUsedLikePinnedMemory) {
  EXPECT_EQ(machine().pointer_info(shared_.bytes).kind, MemoryKind::pageable);
  machine().register_pinned(shared_.bytes, sizeof(shared_.bytes));
  const PointerInfo info = machine().pointer_info(shared_.bytes + 100);
  EXPECT_EQ(info.kind, MemoryKind::pinned);
  EXPECT_EQ(info.base, shared_.bytes);
  EXPECT_EQ(info.bytes, sizeof(shared_.bytes));

  const auto* const source = upload<std::uint8_t>(1, {1, 2, 3, 4});
  const StreamRef stream = machine().default_stream(1);
  copy(stream, shared_.bytes + 8, source, 4);
  machine().synchronize_stream(stream);
  EXPECT_EQ(shared_.bytes[10], std::byte{3});

  EXPECT_THROW(machine().register_pinned(shared_.bytes, 4096), Error);
  machine().unregister_pinned(shared_.bytes);
  EXPECT_EQ(machine().pointer_info(shared_.bytes).kind, MemoryKind::pageable);
  shared_.bytes[0] = std::byte{7};  // still there
}

}  // namespace
}  // namespace tutti::backend
