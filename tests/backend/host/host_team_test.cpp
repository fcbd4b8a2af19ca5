// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "backend/team_round.hpp"
#include "os/shared_flag.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <numeric>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/// Rounds of teams, flags, and memory that processes share.
namespace tutti::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

/// Pages that a forked child shares.
template <class T>
class SharedPages {
 public:
  explicit SharedPages(std::size_t bytes = sizeof(T))
      : bytes_((bytes + 4095) / 4096 * 4096),
        pages_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  ~SharedPages() { munmap(pages_, bytes_); }
  [[nodiscard]] T* get() const { return static_cast<T*>(pages_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* pages_;
};

/// With room for what so many processes say.
template <std::size_t processes>
struct AbortWordOf {
  AbortWord word;
  std::array<AbortReason, processes> reasons;
};

TEST(SharedFlags, OrderProcesses) {
  struct Shared {
    AbortWordOf<1> abort;
    SharedFlag there;
    SharedFlag back;
  };
  constexpr std::uint32_t rounds = 2000;
  const SharedPages<Shared> pages;
  Shared& shared = *pages.get();
  const pid_t other = fork();
  if (other == 0) {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      if (!wait_for_flag(shared.there, round, shared.abort.word, 20'000)) _exit(1);
      set_flag(shared.back, round);
    }
    _exit(0);
  }
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    set_flag(shared.there, round);
    EXPECT_TRUE(wait_for_flag(shared.back, round, shared.abort.word, 20'000));
  }
  int status = -1;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  // What is set after somebody gave up stands for nothing.
  shared.abort.word.set(0, 0, "no more");
  EXPECT_FALSE(wait_for_flag(shared.back, rounds, shared.abort.word, 1000));
}

TEST(AbortWord, IsNotHeldByAProcessThatIsKilledWhileItSaysWhy) {
  const SharedPages<AbortWordOf<2>> pages;
  AbortWordOf<2>& abort = *pages.get();
  const pid_t other = fork();
  if (other == 0) {
    // As far as it gets.
    abort.reasons[0].code = 7;
    abort.reasons[0].length = 1000;
    std::raise(SIGKILL);
  }
  int status = -1;
  waitpid(other, &status, 0);
  EXPECT_FALSE(abort.word.is_set());
  abort.word.set(1, 3, "the other one is gone");
  ASSERT_TRUE(abort.word.is_set());
  EXPECT_EQ(abort.word.reason().code, 3U);
  EXPECT_EQ(abort.word.reason().text(), "the other one is gone");
}

TEST(AbortWord, KeepsTheFirstReason) {
  AbortWordOf<2> abort;
  abort.word.set(1, 3, std::string(5000, 'a'));
  abort.word.set(0, 4, "later");
  abort.word.set(1, 5, "later still");
  EXPECT_EQ(abort.word.reason().code, 3U);
  EXPECT_EQ(abort.word.reason().text(), std::string(abort.reasons[1].bytes.size(), 'a'));
}

TEST(SharedFlags, GoOnPastTheLargestNumber) {
  EXPECT_TRUE(has_reached(5, 0xfffffff0U));
  EXPECT_FALSE(has_reached(0xfffffff0U, 5));
  EXPECT_TRUE(has_reached(0, 0xfffffff9U)) << "a flag that nobody has set has come past what lies before 1";
}

/// The devices of one machine as the members of a team.
class HostTeam : public HostMachine {
 protected:
  static constexpr std::uint32_t members = 3;
  static constexpr TeamWindowLayout layout{.members = members, .slot_bytes = 4096};

  HostTeam() : windows_(members * layout.bytes()) { register_windows(); }
  ~HostTeam() override { machine().unregister_pinned(windows_.get()); }

  void register_windows() {
    machine().register_pinned(windows_.get(), windows_.bytes());
    for (std::uint32_t member = 0; member < members; ++member) {
      addresses_.push_back(windows_.get() + member * layout.bytes());
      streams_.push_back(machine().create_stream(static_cast<int>(member), 0));
    }
  }

  [[nodiscard]] TeamRound round_of(std::uint32_t member) {
    TeamRound task;
    task.layout = layout;
    task.windows = addresses_;
    task.member = member;
    task.abort = &abort_.word;
    task.rounds_before = rounds_[member]++;
    return task;
  }
  [[nodiscard]] std::byte* slot(std::uint32_t member) const {
    return addresses_[member] + layout.slots_offset();
  }

  /// One round in which every member gives 16 numbers to the next one.
  void pass_on(std::uint32_t member, const std::uint8_t* source, std::uint8_t* target) {
    const std::uint32_t previous = (member + members - 1) % members;
    const std::uint32_t next = (member + 1) % members;
    const FanOutSegment segment{.row_bytes = 16, .source = 0, .first_target = 1, .target_count = 1};
    std::byte* put[] = {bytes_of(const_cast<std::uint8_t*>(source)), slot(member)};
    std::byte* get[] = {slot(previous), bytes_of(target)};
    TeamRound task = round_of(member);
    task.puts = {std::span(&segment, 1), put};
    task.readers = std::span(&next, 1);
    task.sources = std::span(&previous, 1);
    task.copies = {std::span(&segment, 1), get};
    machine().team_round(streams_[member], task);
  }
  void synchronize() {
    for (const StreamRef stream : streams_) machine().synchronize_stream(stream);
  }

  /// The first member's numbers come back to it, moved by nobody else's.
  void pass_on_for(std::uint32_t rounds) {
    std::vector<std::uint8_t*> numbers;
    std::vector<std::uint8_t> first(16);
    std::iota(first.begin(), first.end(), std::uint8_t{1});
    for (std::uint32_t member = 0; member < members; ++member) {
      for (int copy = 0; copy < 2; ++copy)
        numbers.push_back(upload<std::uint8_t>(static_cast<int>(member),
                                               member == 0 ? first : std::vector<std::uint8_t>(16)));
    }
    for (std::uint32_t round = 0; round < rounds; ++round) {
      for (std::uint32_t member = 0; member < members; ++member)
        pass_on(member, numbers[2 * member + round % 2], numbers[2 * member + (round + 1) % 2]);
    }
    synchronize();
    EXPECT_EQ(download(0, numbers[0], 16), first) << "after a multiple of three rounds";
    EXPECT_EQ(download(1, numbers[2], 16), std::vector<std::uint8_t>(16));
  }

  SharedPages<std::byte> windows_;
  std::vector<std::byte*> addresses_;
  std::vector<StreamRef> streams_;
  AbortWordOf<1> abort_;
  std::uint32_t rounds_[members] = {};
};

TEST_F(HostTeam, ManyRoundsPassNumbersAround) {
  pass_on_for(300);  // far more than there are slots
}

TEST_F(HostTeam, NobodyFillsASlotThatIsStillRead) {
  std::uint8_t* const source = upload<std::uint8_t>(0, std::vector<std::uint8_t>(16, 1));
  const FanOutSegment segment{.row_bytes = 16, .source = 0, .first_target = 1, .target_count = 1};
  std::byte* put[] = {bytes_of(source), slot(0)};
  const std::uint32_t reader = 1;
  for (std::uint32_t round = 0; round < TeamWindowLayout::slot_count; ++round) {
    TeamRound task = round_of(0);
    task.puts = {std::span(&segment, 1), put};
    task.readers = std::span(&reader, 1);
    machine().team_round(streams_[0], task);
  }
  synchronize();
  TeamRound task = round_of(0);
  task.puts = {std::span(&segment, 1), put};
  machine().team_round(streams_[0], task);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(machine().query_stream(streams_[0])) << "the others have not finished the first round";
  for (const std::uint32_t other : {1U, 2U}) {
    TeamRound empty = round_of(other);
    empty.finished = 1;
    machine().team_round(streams_[other], empty);
  }
  synchronize();
}

TEST_F(HostTeam, WaitsEndWhenSomebodyGivesUp) {
  std::uint8_t* const numbers = upload<std::uint8_t>(2, std::vector<std::uint8_t>(32));
  pass_on(2, numbers, numbers + 16);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(machine().query_stream(streams_[2]));
  abort_.word.set(0, static_cast<std::uint32_t>(ErrorCode::timeout), "no more");
  EXPECT_THAT(error_message(ErrorCode::timeout, [&] { machine().synchronize_stream(streams_[2]); }),
              AllOf(HasSubstr("team_round"), HasSubstr("device 2"), HasSubstr("no more")));
}

TEST_F(HostTeam, TakesTurnsUnderAnInterleaver) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
    control().set_interleaving_seed(seed);
    pass_on_for(30);
    control().set_interleaving_seed(std::nullopt);
  }
}

TEST_F(HostTeam, RegisteredPagesAreUsedLikePinnedMemory) {
  const SharedPages<std::byte> pages(4096);
  EXPECT_EQ(machine().pointer_info(pages.get()).kind, MemoryKind::pageable);
  machine().register_pinned(pages.get(), pages.bytes());
  const PointerInfo info = machine().pointer_info(pages.get() + 100);
  EXPECT_EQ(info.kind, MemoryKind::pinned);
  EXPECT_EQ(info.base, pages.get());
  EXPECT_EQ(info.bytes, pages.bytes());

  const auto* const source = upload<std::uint8_t>(1, {1, 2, 3, 4});
  const StreamRef stream = machine().default_stream(1);
  copy(stream, pages.get() + 8, source, 4);
  machine().synchronize_stream(stream);
  EXPECT_EQ(pages.get()[10], std::byte{3});

  EXPECT_THROW(machine().register_pinned(pages.get(), 4096), Error);
  machine().unregister_pinned(pages.get());
  EXPECT_EQ(machine().pointer_info(pages.get()).kind, MemoryKind::pageable);
  pages.get()[0] = std::byte{7};  // still there
}

/// The same with windows on the members' devices.
class HostDeviceTeam : public HostTeam {
 protected:
  HostDeviceTeam() {
    for (int device = 0; device < static_cast<int>(members); ++device) {
      auto* const window = allocate<std::byte>(device, layout.bytes());
      machine().fill(machine().default_stream(device), {.target = window, .count = layout.bytes()});
      machine().synchronize_device(device);
      addresses_[static_cast<std::size_t>(device)] = window;
      for (int peer = 0; peer < static_cast<int>(members); ++peer) {
        if (peer != device) machine().enable_peer_access(device, peer);
      }
    }
  }
};

TEST_F(HostDeviceTeam, ManyRoundsPassNumbersAround) {
  pass_on_for(300);
}

TEST_F(HostDeviceTeam, TakesTurnsUnderAnInterleaver) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    control().set_interleaving_seed(seed);
    pass_on_for(30);
    control().set_interleaving_seed(std::nullopt);
  }
}

TEST_F(HostDeviceTeam, WindowsCanBeSharedWhileMembersWait) {
  std::uint8_t* const numbers = upload<std::uint8_t>(1, std::vector<std::uint8_t>(32, 7));
  pass_on(1, numbers, numbers + 16);
  std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(machine().query_stream(streams_[1])) << "member 0 has not put anything";
  for (int device = 0; device < static_cast<int>(members); ++device) {
    static_cast<void>(machine().share_device_memory(device, addresses_[static_cast<std::size_t>(device)],
                                                    Audience::anyone));
  }
  std::uint8_t* const others[] = {upload<std::uint8_t>(0, std::vector<std::uint8_t>(32, 9)),
                                  upload<std::uint8_t>(2, std::vector<std::uint8_t>(32, 8))};
  pass_on(0, others[0], others[0] + 16);
  pass_on(2, others[1], others[1] + 16);
  synchronize();
  EXPECT_EQ(download(1, numbers + 16, 16), std::vector<std::uint8_t>(16, 9));
  EXPECT_EQ(download(2, others[1] + 16, 16), std::vector<std::uint8_t>(16, 7));
  EXPECT_EQ(download(0, others[0] + 16, 16), std::vector<std::uint8_t>(16, 8));
}

TEST_F(HostDeviceTeam, NeedsPeerAccessAndKnownWindows) {
  boot("pcie");
  for (std::uint32_t member = 0; member < members; ++member) {
    const int device = static_cast<int>(member);
    addresses_[member] = upload<std::byte>(device, std::vector<std::byte>(layout.bytes()));
    streams_[member] = machine().create_stream(device, 0);
  }
  machine().team_round(streams_[0], round_of(0));
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_stream(streams_[0]); }),
              AllOf(HasSubstr("team_round"), HasSubstr("device 0 has no peer access")));
  machine().free_device(1, addresses_[1]);
  EXPECT_THAT(
      error_message(ErrorCode::device_failure, [&] { machine().team_round(streams_[1], round_of(1)); }),
      AllOf(HasSubstr("team_round"), HasSubstr("member 1")));
  machine().register_pinned(windows_.get(), windows_.bytes());
}

}  // namespace
}  // namespace tutti::backend
