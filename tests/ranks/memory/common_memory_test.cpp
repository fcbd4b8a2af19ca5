// SPDX-License-Identifier: Apache-2.0
#include "transport/team/joining/common_memory.hpp"

#include "os/descriptor_port.hpp"
#include "os/shared_memory.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/forwarding_exchange.hpp"
#include "support/isolation.hpp"
#include "support/memory/process_resources.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/memory.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/// Ranks that are cut off from one another more or less.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;
using transport::team::gather;
using transport::team::Places;
using transport::team::places_of;
using transport::team::told_apart;
using Names = std::vector<std::string>;

TEST(CommonMemory, RanksThatReachOneAnotherAreOfOneHost) {
  const auto always = [](std::size_t, std::size_t) { return true; };
  EXPECT_EQ(told_apart({"a", "b", "a"}, always), (Names{"a", "b", "a"}));
  EXPECT_EQ(told_apart({"a", "b"}, [](std::size_t, std::size_t) { return false; }), (Names{"a", "b"}));
}

TEST(CommonMemory, RanksThatDoNotAreOfDifferentOnes) {
  const auto of_one_kind = [](std::size_t a, std::size_t b) { return a % 2 == b % 2; };
  EXPECT_EQ(told_apart({"a", "a", "a", "a"}, of_one_kind), (Names{"a", "a (rank 1)", "a", "a (rank 1)"}));
  EXPECT_EQ(told_apart({"b", "a", "a", "a"}, of_one_kind), (Names{"b", "a", "a (rank 2)", "a"}));
  // Who reaches them but is not reached is not one of them.
  const auto downwards = [](std::size_t a, std::size_t b) { return a >= b; };
  EXPECT_EQ(told_apart({"a", "a", "a"}, downwards), (Names{"a", "a (rank 1)", "a (rank 2)"}));
}

/// All that ranks of one host do with one another's memory.
void expect_that_all_works(Exchange& exchange, TransportKind expected) {
  Communicator communicator = make(exchange, patient(20s));
  const Tensor small = full({10}, exchange.rank() + 1, {.device = 0});
  const Tensor large = full({300'000}, exchange.rank() + 1, {.device = 0});
  communicator.all_reduce_add({small}, {small});
  communicator.all_reduce_add({large}, {large});
  EXPECT_EQ(communicator.last_plan().transport, name_of(expected));
  std::optional<Communicator> part = communicator.split(0);
  part->all_reduce_add({large}, {large});
  const float sum = static_cast<float>(exchange.size() * (exchange.size() + 1)) / 2;
  EXPECT_EQ(small.to_vector<float>(), std::vector<float>(10, sum));
  EXPECT_EQ(large.to_vector<float>(), std::vector<float>(300'000, sum * static_cast<float>(exchange.size())));
  communicator.check();
}

void expect_that_proc_is_closed(Exchange& exchange) {
  for (const pid_t process : gather(exchange, getpid())) {
    if (process != getpid()) {
      EXPECT_FALSE(is_proc_open(process)) << "else this shows nothing";
    }
  }
}

TEST(CommonMemory, IsPassedWhereProcIsClosed) {
  expect_all_right(3, [](Exchange& exchange) {
    close_proc();
    expect_that_proc_is_closed(exchange);
    expect_that_all_works(exchange, TransportKind::p2p);
  });
}

TEST(CommonMemory, IsPassedToOneThatMayLookNowhere) {
  expect_all_right(2, [](Exchange& exchange) {
    if (exchange.rank() == 1) close_proc();
    expect_that_all_works(exchange, TransportKind::p2p);
  });
}

TEST(CommonMemory, IsPassedToWhoeverHasBecomeAnotherUser) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, patient(20s));
    communicator.barrier();
    synchronize(0);
    close_proc();
    expect_that_proc_is_closed(exchange);
    const Tensor large = full({300'000}, 1, {.device = 0});
    communicator.all_reduce_add({large}, {large});
    EXPECT_EQ(large.to_vector<float>(), std::vector<float>(300'000, 2));
  });
}

/// As by `unshare -Ur`, which containers do.
TEST(CommonMemory, IsPassedBetweenUserNamespaces) {
  if (const std::string reason = why_no_namespaces(0); !reason.empty()) GTEST_SKIP() << reason;
  expect_all_right(2, [](Exchange& exchange) {
    enter_own_namespaces(0);
    expect_that_proc_is_closed(exchange);
    expect_that_all_works(exchange, TransportKind::p2p);
  });
}

std::size_t sockets_in_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/tmp"))
    count += entry.path().filename().string().starts_with("tutti-") && entry.is_socket();
  return count;
}

TEST(CommonMemory, IsPassedBetweenNetworkNamespaces) {
  if (const std::string reason = why_no_namespaces(CLONE_NEWNET); !reason.empty()) GTEST_SKIP() << reason;
  const std::size_t before = sockets_in_files();
  expect_all_right(2, [](Exchange& exchange) {
    enter_own_namespaces(CLONE_NEWNET);
    expect_that_proc_is_closed(exchange);
    expect_that_all_works(exchange, TransportKind::p2p);
    transport::team::synchronize(exchange);
    empty_cache();
    EXPECT_TRUE(becomes_true([] {
      empty_cache();
      return shared_mappings() == 0;
    }));
  });
  EXPECT_LE(sockets_in_files(), before) << "none is left behind";
}

TEST(CommonMemory, RanksWithoutAnyGoByTheNetwork) {
  expect_all_right(3, [](Exchange& exchange) {
    close_proc();
    if (exchange.rank() == 1) forbid_sockets();
    const Places places = places_of(exchange, {"here", "here", "here"});
    EXPECT_EQ(places.hosts, (Names{"here", "here (rank 1)", "here"}));
    EXPECT_TRUE(mentions(places.reason, {"rank 0: shared memory of process", "TUTTI_HOST_ID", "/tmp"}));
    expect_that_all_works(exchange, TransportKind::staged);
  });
}

TEST(CommonMemory, RanksWithoutAnyAndWithoutANetworkAreToldWhatTheyNeed) {
  expect_all_right(2, [](Exchange& exchange) {
    close_proc();
    forbid_sockets();
    ExchangeWithoutNetwork without(exchange);
    EXPECT_TRUE(refuses([&] { make(without); }, ErrorCode::unsupported,
                        {"no network", "cannot share memory", "one network namespace", "TUTTI_HOST_ID"}));
  });
}

TEST(CommonMemory, LeavesNothingBehind) {
  expect_all_right(2, [](Exchange& exchange) {
    close_proc();
    { const Tensor used = some_tensor(); }
    empty_cache();
    const std::size_t thread_count = threads();
    for (int time = 0; time < 3; ++time) {
      Communicator communicator = make(exchange, patient(20s));
      const Tensor tensor = some_tensor();
      communicator.all_reduce_add({tensor}, {tensor});
      synchronize(0);
    }
    transport::team::synchronize(exchange);
    empty_cache();
    EXPECT_TRUE(becomes_true([&] { return threads() <= thread_count + 1; })) << threads();
    EXPECT_EQ(shared_mappings(), 0U);
  });
}

TEST(CommonMemory, OfAProcessThatIsGoneCannotBeHad) {
  Ranks ranks(2, [](Exchange& exchange) {
    close_proc();
    SharedMemory memory;
    if (exchange.rank() == 0) memory = SharedMemory(4096);
    const SharedMemory::Handle handle = gather(exchange, memory.share(Audience::anyone))[0];
    if (exchange.rank() == 0) std::raise(SIGKILL);
    const Stopwatch watch;
    std::string refusal;
    EXPECT_TRUE(becomes_true([&] {
      try {
        const SharedMemory opened(handle);
      } catch (const Error& error) {
        refusal = error.what();
      }
      return !refusal.empty();
    }));
    EXPECT_TRUE(mentions(refusal, {"shared memory of process", "/proc/", "socket"}));
    EXPECT_LT(watch.elapsed(), slack);
  });
  expect_endings(ranks, {killed, all_right});
}

TEST(DescriptorPorts, GiveWhatIsOfferedToThoseWhoKnowTheToken) {
  const std::shared_ptr<DescriptorPort> port = DescriptorPort::get();
  EXPECT_EQ(DescriptorPort::get(), port);
  EXPECT_TRUE(DescriptorPort::is_own(port->address()));
  EXPECT_FALSE(DescriptorPort::is_own(port->address() + 1));
  SharedMemory memory(4096);
  memory.data()[7] = std::byte{5};
  const SharedMemory::Handle handle = memory.share(Audience::anyone);
  const auto fetch = [&](std::uint64_t token) {
    static_cast<void>(DescriptorPort::fetch(port->address(), token));
  };
  EXPECT_NO_THROW(fetch(handle.token));
  EXPECT_TRUE(refuses([&] { fetch(handle.token + 1); }, ErrorCode::peer_unavailable, {"not offered"}));
  EXPECT_TRUE(refuses([&] { fetch(0); }, ErrorCode::peer_unavailable, {"not offered"}));
  memory.seal();
  EXPECT_TRUE(refuses([&] { fetch(handle.token); }, ErrorCode::peer_unavailable, {"not offered"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(DescriptorPort::fetch(port->address() + 1, 1)); },
                      ErrorCode::peer_unavailable, {"socket @tutti-"}));
}

TEST(DescriptorPorts, GiveWhatIsForOneUserToNoOther) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  expect_all_right(2, [](Exchange& exchange) {
    SharedMemory memory;
    if (exchange.rank() == 0) memory = SharedMemory(4096);
    const SharedMemory::Handle for_anyone = gather(exchange, memory.share(Audience::anyone))[0];
    const SharedMemory::Handle for_same_user = gather(exchange, memory.share(Audience::same_user))[0];
    EXPECT_NE(for_anyone.token, for_same_user.token);
    const auto fetch = [](const SharedMemory::Handle& handle) {
      return DescriptorPort::fetch(handle.port, handle.token).is_open();
    };
    if (exchange.rank() == 1) {
      EXPECT_TRUE(fetch(for_same_user)) << "root's";
      close_proc();
      EXPECT_TRUE(fetch(for_anyone));
      EXPECT_TRUE(refuses([&] { fetch(for_same_user); }, ErrorCode::peer_unavailable,
                          {"processes of the same user", "runs as user"}));
    }
    transport::team::synchronize(exchange);
    if (exchange.rank() == 0) close_proc();
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) {
      EXPECT_TRUE(fetch(for_same_user)) << "both are another user's now";
    }
    transport::team::synchronize(exchange);
  });
}

TEST(DescriptorPorts, AreThereForNewcomersThoughOthersComeAndSayNothing) {
  const std::shared_ptr<DescriptorPort> port = DescriptorPort::get();
  SharedMemory memory(4096);
  const SharedMemory::Handle handle = memory.share(Audience::anyone);
  std::vector<Descriptor> silent;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("tutti-{:016x}", port->address());
  text.copy(name.sun_path + 1, text.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(silent.back().number(), reinterpret_cast<const sockaddr*>(&name), length), 0);
  }
  const Stopwatch watch;
  EXPECT_TRUE(DescriptorPort::fetch(handle.port, handle.token).is_open());
  EXPECT_LT(watch.elapsed(), slack);
}

}  // namespace
}  // namespace tutti::test::ranks
