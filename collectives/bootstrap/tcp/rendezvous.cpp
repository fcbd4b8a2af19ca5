// SPDX-License-Identifier: Apache-2.0
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

constexpr std::int64_t most_processes = 1 << 20U;
constexpr std::int64_t last_port = 65535;
constexpr std::int64_t longest_timeout_seconds = 86'400;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

/// The environment, in which what is empty is unset.
class Reader {
 public:
  explicit Reader(const Variables& variable) : variable_(variable) {}

  [[nodiscard]] std::string text(const char* name) const {
    const char* const value = variable_(name);
    return value == nullptr ? "" : value;
  }
  [[nodiscard]] bool has(const char* name) const { return !text(name).empty(); }
  [[nodiscard]] std::optional<std::int64_t> number(const char* name, std::int64_t lowest,
                                                   std::int64_t highest) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < lowest || number > highest)
      fail(fmt::format("{} is '{}', expected a whole number, {} to {}", name, value, lowest, highest));
    return number;
  }
  [[nodiscard]] std::int64_t needed(const char* name, std::int64_t lowest, std::int64_t highest) const {
    const std::optional<std::int64_t> value = number(name, lowest, highest);
    if (!value) fail(fmt::format("{} is not set, expected a whole number, {} to {}", name, lowest, highest));
    return *value;
  }

 private:
  const Variables& variable_;
};

void read_place(const Reader& read, const char* rank, const char* size, const char* local_rank,
                Rendezvous& found) {
  found.size = static_cast<int>(read.needed(size, 1, most_processes));
  found.rank = static_cast<int>(read.needed(rank, 0, found.size - 1));
  found.local_rank = static_cast<int>(read.number(local_rank, 0, found.size - 1).value_or(found.rank));
}

void read_address(const Reader& read, const char* name, Rendezvous& found) {
  found.address = read.text(name);
  found.address_name = name;
}

/// Reads the port from the first variable that is set. torchrun's own store may listen on the port that it
/// names.
void read_port(const Reader& read, Rendezvous& found) {
  if (const auto port = read.number("TUTTI_PORT", 1, last_port)) {
    found.port = static_cast<int>(*port);
    found.port_name = "TUTTI_PORT";
  } else if (const auto master = read.number("MASTER_PORT", 1, last_port - 1)) {
    const bool is_taken = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    found.port = static_cast<int>(*master) + (is_taken ? 1 : 0);
    found.port_name = is_taken ? "MASTER_PORT + 1" : "MASTER_PORT";
  }
}

Rendezvous of_torchrun(const Reader& read) {
  Rendezvous found;
  read_place(read, "RANK", "WORLD_SIZE", "LOCAL_RANK", found);
  if (!read.has("MASTER_ADDR")) fail("MASTER_ADDR is not set, expected the address of rank 0's host");
  read_address(read, "MASTER_ADDR", found);
  read_port(read, found);
  if (found.port == 0)
    fail("neither MASTER_PORT nor TUTTI_PORT is set, expected the port on which rank 0 listens");
  found.job = fmt::format("torchrun {} {}", read.text("TORCHELASTIC_RUN_ID"),
                          read.text("TORCHELASTIC_RESTART_COUNT"));
  return found;
}

/// One that steps of the same time seldom share, below those that the system gives out.
int port_of_step(std::int64_t job, std::int64_t step) {
  constexpr std::int64_t first = 15'000;
  constexpr std::int64_t count = 15'000;
  return static_cast<int>(first + (job % count + step % count * 97) % count);
}

Rendezvous of_slurm(const Reader& read) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  Rendezvous found;
  const char* const size = read.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  read_place(read, "SLURM_PROCID", size, "SLURM_LOCALID", found);
  const char* const nodes = read.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  if (read.has("MASTER_ADDR")) {
    read_address(read, "MASTER_ADDR", found);
  } else if (read.number(nodes, 1, most_processes) == 1) {
    found.address_name = fmt::format("the address of a step with {}=1", nodes);
  } else if (read.has("SLURM_LAUNCH_NODE_IPADDR")) {
    read_address(read, "SLURM_LAUNCH_NODE_IPADDR", found);
  } else {
    fail("neither MASTER_ADDR nor SLURM_LAUNCH_NODE_IPADDR is set, expected the address of rank 0's host");
  }
  const std::int64_t job = read.number("SLURM_JOB_ID", 0, any).value_or(0);
  const std::int64_t step = read.number("SLURM_STEP_ID", 0, any).value_or(0);
  read_port(read, found);
  if (found.port == 0) {
    found.port = port_of_step(job, step);
    found.port_name = "the port that follows from SLURM_JOB_ID and SLURM_STEP_ID";
  }
  found.job = fmt::format("Slurm {} {}", job, step);
  return found;
}

}  // namespace

Rendezvous rendezvous(const Variables& variable) {
  const Reader read(variable);
  Rendezvous found;
  if (read.has("RANK") || read.has("WORLD_SIZE")) {
    found = of_torchrun(read);
  } else if (read.has("SLURM_PROCID")) {
    found = of_slurm(read);
  } else {
    fail(
        "neither RANK nor SLURM_PROCID is set, expected the variables that torchrun or srun sets for the "
        "processes it starts");
  }
  found.secret = read.text("TUTTI_SECRET");
  found.encrypts = read.number("TUTTI_ENCRYPT", 0, 1).value_or(0) == 1;
  found.timeout =
      std::chrono::seconds(read.number("TUTTI_JOIN_TIMEOUT", 1, longest_timeout_seconds).value_or(60));
  return found;
}

Rendezvous rendezvous() {
  return rendezvous([](const char* name) { return std::getenv(name); });
}

}  // namespace tutti::tcp
