// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::tcp {
namespace {

using Environment = std::map<std::string, std::string>;

Rendezvous found_in(const Environment& environment) {
  return rendezvous([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

const Environment torchrun = {{"RANK", "3"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"MASTER_ADDR", "10.0.0.7"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "none"}};
const Environment slurm = {{"SLURM_PROCID", "3"},         {"SLURM_STEP_NUM_TASKS", "4"},
                           {"SLURM_NTASKS", "16"},        {"SLURM_LOCALID", "1"},
                           {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"},
                           {"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "2"}};

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(TcpRendezvous, IsWhatTorchrunTells) {
  const Rendezvous found = found_in(torchrun);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "10.0.0.7");
  EXPECT_EQ(found.port, 29500);
  EXPECT_EQ(found.port_name, "MASTER_PORT");
  EXPECT_EQ(found.secret, "");
  EXPECT_EQ(found.timeout, std::chrono::minutes(1));
}

TEST(TcpRendezvous, TakesThePortAfterTheOneOnWhichTorchrunListens) {
  EXPECT_EQ(found_in(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).port, 29501);
  EXPECT_EQ(found_in(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port, 29500);
  const Rendezvous named = found_in(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                    {"TUTTI_PORT", "4242"},
                                                    {"TUTTI_SECRET", "sixteen letters!"},
                                                    {"TUTTI_JOIN_TIMEOUT", "5"}}));
  EXPECT_EQ(named.port, 4242);
  EXPECT_EQ(named.port_name, "TUTTI_PORT");
  EXPECT_EQ(named.secret, "sixteen letters!");
  EXPECT_EQ(named.timeout, std::chrono::seconds(5));
}

TEST(TcpRendezvous, IsWhatAStepOfSlurmTells) {
  const Rendezvous found = found_in(slurm);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 4);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "127.0.0.1");
  EXPECT_EQ(found.port, found_in(with(slurm, {{"SLURM_PROCID", "0"}})).port);
  EXPECT_NE(found.port, found_in(with(slurm, {{"SLURM_STEP_ID", "3"}})).port);
  EXPECT_NE(found.port, found_in(with(slurm, {{"SLURM_JOB_ID", "4712"}})).port);
  EXPECT_NE(found.job, found_in(with(slurm, {{"SLURM_JOB_ID", "4712"}})).job);
}

TEST(TcpRendezvous, OfSeveralNodesIsAtTheAddressThatIsNamed) {
  const Environment nodes = with(slurm, {{"SLURM_STEP_NUM_NODES", "2"}});
  EXPECT_EQ(found_in(nodes).address, "10.0.0.9");
  EXPECT_EQ(found_in(nodes).address_name, "SLURM_LAUNCH_NODE_IPADDR");
  const Rendezvous named = found_in(with(nodes, {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ(named.address, "node7");
  EXPECT_EQ(named.port, 1234);
}

TEST(TcpRendezvous, OfTorchrunInAStepOfSlurmIsTorchruns) {
  EXPECT_EQ(found_in(with(slurm, torchrun)).size, 8);
}

TEST(TcpRendezvous, NamesTheVariableThatIsNoGood) {
  const struct {
    Environment environment;
    std::vector<std::string> about;
  } mistakes[] = {
      {{}, {"neither RANK nor SLURM_PROCID"}},
      {with(torchrun, {{"RANK", "8"}}), {"RANK is '8'", "0 to 7"}},
      {with(torchrun, {{"RANK", "one"}}), {"RANK is 'one'"}},
      {with(torchrun, {{"RANK", ""}}), {"RANK is not set"}},
      {with(torchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE is '0'", "1 to "}},
      {with(torchrun, {{"LOCAL_RANK", "-1"}}), {"LOCAL_RANK is '-1'"}},
      {with(torchrun, {{"MASTER_ADDR", ""}}), {"MASTER_ADDR is not set"}},
      {with(torchrun, {{"MASTER_PORT", ""}}), {"neither MASTER_PORT nor TUTTI_PORT"}},
      {with(torchrun, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT is '70000'"}},
      {with(torchrun, {{"TUTTI_PORT", "0"}}), {"TUTTI_PORT is '0'", "1 to 65535"}},
      {with(torchrun, {{"TUTTI_JOIN_TIMEOUT", "0"}}), {"TUTTI_JOIN_TIMEOUT is '0'"}},
      {with(slurm, {{"SLURM_PROCID", "4"}}), {"SLURM_PROCID is '4'", "0 to 3"}},
      {with(slurm, {{"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LAUNCH_NODE_IPADDR", ""}}),
       {"neither MASTER_ADDR nor SLURM_LAUNCH_NODE_IPADDR"}},
  };
  for (const auto& mistake : mistakes)
    EXPECT_TRUE(test::refuses([&] { static_cast<void>(found_in(mistake.environment)); },
                              ErrorCode::invalid_argument, mistake.about));
}

}  // namespace
}  // namespace tutti::tcp
