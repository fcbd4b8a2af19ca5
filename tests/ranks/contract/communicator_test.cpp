// SPDX-License-Identifier: Apache-2.0
#include "tutti/communicator.hpp"

#include "ranks/contract/contract.hpp"
#include "ranks/contract/contract_exchanges.hpp"
#include "ranks/contract/program_memory.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

/// The contract of the collectives between processes that know one another through memory they share.
namespace tutti {
namespace {

using test::asks_for_gpus;
using test::expect_all_right;

struct Shape {
  int ranks;
  int members_per_rank;
};

/// Automatic: the best the devices can do, on virtual devices p2p.
using Case = std::tuple<Shape, TransportKind, test::ranks::Rule>;

void expect_kept(Exchange& exchange, const Shape& shape, TransportKind transport,
                 const test::ranks::Rule& rule) {
  test::ranks::use_program_memory();
  const int devices = device_count();
  if (shape.members_per_rank > devices) return;  // on a machine with few GPUs
  CommunicatorOptions options;
  options.transport = transport;
  options.determinism = rule.determinism;
  for (int i = 0; i < shape.members_per_rank; ++i)
    options.devices.emplace_back((exchange.rank() * shape.members_per_rank + i) % devices);
  Communicator communicator(exchange, options);
  const bool is_direct = communicator.explain().find("rounds: p2p") != std::string::npos;
  if (transport == TransportKind::staged || backend_kind() == BackendKind::host) {
    EXPECT_EQ(is_direct, transport != TransportKind::staged) << communicator.explain();
  }
  rule.check(communicator);
}

class CommunicatorContract : public testing::TestWithParam<Case> {};

TEST_P(CommunicatorContract, Holds) {
  if (asks_for_gpus()) GTEST_SKIP() << "on GPUs, one rule is tested after another";
  const auto& [shape, transport, rule] = GetParam();
  expect_all_right(shape.ranks, [&](Exchange& exchange) { expect_kept(exchange, shape, transport, rule); });
}

/// Numbers of hosts, and whether neighbours are on one.
struct Hosts {
  int ranks;
  int hosts;
  bool are_blocks;
};

/// Before anything else of the process.
void move_to_own_host(const Exchange& exchange, const Hosts& hosts) {
  const int host =
      hosts.are_blocks ? exchange.rank() * hosts.hosts / hosts.ranks : exchange.rank() % hosts.hosts;
  setenv("TUTTI_HOST_ID", std::to_string(host).c_str(), 1);
}

void expect_kept(Exchange& exchange, const Hosts& hosts, const test::ranks::Rule& rule) {
  CommunicatorOptions options{.devices = {exchange.rank() % device_count()}};
  options.determinism = rule.determinism;
  const bool on_gpus = backend_kind() == BackendKind::cuda;
  if (on_gpus && hosts.ranks > device_count()) return;  // no host has another's GPU
  if (!on_gpus && exchange.rank() == 1) options.devices.emplace_back(7 % device_count());
  if (options.devices.size() == 2 && options.devices[0] == options.devices[1]) options.devices.pop_back();
  Communicator communicator(exchange, options);
  rule.check(communicator);
  EXPECT_NE(communicator.explain().find(std::to_string(hosts.hosts) + " hosts"), std::string::npos)
      << communicator.explain();
}

class SeveralHosts : public testing::TestWithParam<std::tuple<Hosts, test::ranks::Rule>> {};

TEST_P(SeveralHosts, KeepTheContract) {
  if (asks_for_gpus()) GTEST_SKIP() << "on GPUs, one rule is tested after another";
  const auto& [hosts, rule] = GetParam();
  expect_all_right(hosts.ranks, [&](Exchange& exchange) {
    move_to_own_host(exchange, hosts);
    expect_kept(exchange, hosts, rule);
  });
}

/// Some of the shapes, each with all rules in the same processes.
class ContractInTurn : public testing::TestWithParam<std::tuple<Shape, TransportKind>> {};
class SeveralHostsInTurn : public testing::TestWithParam<Hosts> {};

constexpr std::chrono::seconds all_rules_at_most{400};

TEST_P(ContractInTurn, HoldsOnGpus) {
  if (!asks_for_gpus()) GTEST_SKIP() << "on virtual devices, every rule is tested in processes of its own";
  const auto& [shape, transport] = GetParam();
  const auto check = [&](Exchange& exchange) {
    for (const test::ranks::Rule& rule : test::ranks::contract()) {
      SCOPED_TRACE(rule.name);
      expect_kept(exchange, shape, transport, rule);
    }
  };
  expect_all_right(shape.ranks, check, all_rules_at_most);
}

TEST_P(SeveralHostsInTurn, KeepTheContractOnGpus) {
  if (!asks_for_gpus()) GTEST_SKIP() << "on virtual devices, every rule is tested in processes of its own";
  const Hosts& hosts = GetParam();
  const auto check = [&](Exchange& exchange) {
    move_to_own_host(exchange, hosts);
    for (const test::ranks::Rule& rule : test::ranks::contract()) {
      SCOPED_TRACE(rule.name);
      expect_kept(exchange, hosts, rule);
    }
  };
  expect_all_right(hosts.ranks, check, all_rules_at_most);
}

std::string name_of_spread(const testing::TestParamInfo<std::tuple<Hosts, test::ranks::Rule>>& info) {
  const auto& [hosts, rule] = info.param;
  return rule.name + std::string("_") + std::to_string(hosts.ranks) + "on" + std::to_string(hosts.hosts) +
         (hosts.are_blocks ? "blocks" : "");
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const auto& [shape, transport, rule] = info.param;
  return rule.name + std::string("_") + std::to_string(shape.ranks) + "x" +
         std::to_string(shape.members_per_rank) + "_" + std::string(name_of(transport));
}

// Sanitizers take up to ten times as long, and have seen everything in few shapes: each has its rules, as
// have further shapes and one process.
#if defined(__SANITIZE_THREAD__)
const auto shapes = testing::Values(Shape{3, 2});
const auto staged_shapes = testing::Values(Shape{2, 1});
const auto spreads = testing::Values(Hosts{4, 2, true});
const auto rules = test::ranks::short_contract();
const auto& rules_for_hosts = rules;
const auto& rules_for_more_shapes = rules;
#elif defined(__SANITIZE_ADDRESS__)
const auto shapes = testing::Values(Shape{3, 2});
const auto small_shapes = testing::Values(Shape{1, 1}, Shape{2, 1});
const auto staged_shapes = testing::Values(Shape{2, 2});
const auto spreads = testing::Values(Hosts{4, 3, false});
const auto& rules = test::ranks::contract();
const auto rules_for_hosts = test::ranks::contract_of_few_operations();
const auto rules_for_more_shapes = test::ranks::short_contract();
#else
const auto shapes =
    testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1}, Shape{2, 2}, Shape{3, 2});
const auto staged_shapes = testing::Values(Shape{1, 1}, Shape{3, 1}, Shape{2, 2});
const auto spreads =
    testing::Values(Hosts{2, 2, true}, Hosts{4, 2, true}, Hosts{4, 2, false}, Hosts{4, 3, false});
const auto& rules = test::ranks::contract();
const auto& rules_for_hosts = rules;
const auto& rules_for_more_shapes = rules;
#endif

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorContract,
                         testing::Combine(shapes, testing::Values(TransportKind::automatic),
                                          testing::ValuesIn(rules)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(RanksStaged, CommunicatorContract,
                         testing::Combine(staged_shapes, testing::Values(TransportKind::staged),
                                          testing::ValuesIn(rules_for_more_shapes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks, SeveralHosts, testing::Combine(spreads, testing::ValuesIn(rules_for_hosts)),
                         name_of_spread);
#if defined(__SANITIZE_ADDRESS__)
INSTANTIATE_TEST_SUITE_P(SmallRanks, CommunicatorContract,
                         testing::Combine(small_shapes, testing::Values(TransportKind::automatic),
                                          testing::ValuesIn(rules_for_more_shapes)),
                         name_of);
#endif

const auto shapes_in_turn = testing::Values(
    std::tuple(Shape{2, 1}, TransportKind::automatic), std::tuple(Shape{4, 1}, TransportKind::automatic),
    std::tuple(Shape{2, 2}, TransportKind::automatic), std::tuple(Shape{2, 2}, TransportKind::staged));
const auto spreads_in_turn = testing::Values(Hosts{2, 2, true}, Hosts{4, 2, false});

std::string name_in_turn(const testing::TestParamInfo<std::tuple<Shape, TransportKind>>& info) {
  const auto& [shape, transport] = info.param;
  return std::to_string(shape.ranks) + "x" + std::to_string(shape.members_per_rank) + "_" +
         std::string(name_of(transport));
}

std::string name_of_spread_in_turn(const testing::TestParamInfo<Hosts>& info) {
  return std::to_string(info.param.ranks) + "on" + std::to_string(info.param.hosts);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ContractInTurn, shapes_in_turn, name_in_turn);
INSTANTIATE_TEST_SUITE_P(Ranks, SeveralHostsInTurn, spreads_in_turn, name_of_spread_in_turn);

TEST(Communicator, MembersMayBeSilentInLongExchanges) {
  for (const TransportKind transport : {TransportKind::automatic, TransportKind::staged}) {
    for (const int hosts : {1, 2}) {
      SCOPED_TRACE(std::string(name_of(transport)) + " on " + std::to_string(hosts));
      expect_all_right(3, [&](Exchange& exchange) {
        const bool on_gpus = backend_kind() == BackendKind::cuda;
        if (on_gpus && hosts > 1 && device_count() < 3) return;  // no host has another's GPU
        setenv("TUTTI_HOST_ID", std::to_string(exchange.rank() % hosts).c_str(), 1);
        Communicator communicator(exchange, {.devices = {exchange.rank() % device_count()},
                                             .window_bytes = std::size_t{512} << 10U,
                                             .transport = transport});
        test::ranks::Group group(communicator);
        test::ranks::members_may_be_silent_in_long_exchanges(group);
      });
    }
  }
}

TEST(Communicator, OfOneProcessNeedsNoExchange) {
  expect_all_right(1, [](Exchange&) {
    CommunicatorOptions options{.determinism = Determinism::bitwise};
    for (int device = 0; device < std::min(3, device_count()); ++device) options.devices.emplace_back(device);
    Communicator communicator(options);
    EXPECT_EQ(communicator.rank_count(), 1);
    EXPECT_EQ(communicator.member_count(), static_cast<int>(options.devices.size()));
    for (const test::ranks::Rule& rule : rules_for_more_shapes) {
      SCOPED_TRACE(rule.name);
      rule.check(communicator);
    }
  });
}

TEST(Communicator, RefusesDevicesItCannotTake) {
  expect_all_right(1, test::ranks::refuses_devices_it_cannot_take);
}

}  // namespace
}  // namespace tutti
