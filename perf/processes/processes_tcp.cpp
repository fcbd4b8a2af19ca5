// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"
#include "perf/processes/joined_processes.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

using namespace std::chrono_literals;

class TcpProcesses final : public JoinedProcesses {
 public:
  explicit TcpProcesses(const tcp::Rendezvous& rendezvous)
      : exchange_(rendezvous, [this] {
          if (look_ != nullptr) (*look_)();
        }) {
    exchange_.set_timeout(forever);
    miss_those_that_go();
  }
  ~TcpProcesses() override {
    // A launcher ends the whole job when the first process leaves with a status other than 0.
    try {
      const std::byte mine{};
      std::vector<std::byte> all(static_cast<std::size_t>(size()));
      exchange_.limit_waits(patience_at_the_end);
      exchange_.all_gather({&mine, 1}, all);
    } catch (const Error&) {
      // Others have left, or do not come.
    }
  }

  [[nodiscard]] int rank() const override { return exchange_.rank(); }
  [[nodiscard]] int size() const override { return exchange_.size(); }

  /// Messages reach the ranks one after another: so all go on at a moment that they have agreed on. The ranks
  /// are on one host, and have one clock.
  void barrier() override {
    JoinedProcesses::barrier();
    const double go = largest(milliseconds_of_host()) + ahead;
    for (const double come = milliseconds_of_host(); milliseconds_of_host() < std::min(go, come + ahead);) {
    }
  }

 protected:
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Look& look) override {
    look_ = &look;
    exchange_.all_gather(mine, all);
    look_ = nullptr;
  }
  [[nodiscard]] std::unique_ptr<Communicator> join(const CommunicatorOptions& options) override {
    auto communicator = std::make_unique<Communicator>(exchange_, options);
    exchange_.set_timeout(forever);
    return communicator;
  }
  /// The others notice.
  void end_job(int status) override {
    std::fflush(nullptr);
    _exit(status);
  }

 private:
  static constexpr std::chrono::milliseconds forever = 24h * 365;  ///< `look_` ends what lasts too long
  static constexpr std::chrono::milliseconds patience_at_the_end = 5s;
  static constexpr double ahead = 0.2;  ///< in milliseconds: longer than a message takes

  static double milliseconds_of_host() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  const Look* look_ = nullptr;
  tcp::Exchange exchange_;
};

}  // namespace

std::unique_ptr<Processes> make_tcp_processes() {
  std::optional<tcp::Rendezvous> rendezvous;
  try {
    rendezvous = tcp::rendezvous();
    return std::make_unique<TcpProcesses>(*rendezvous);
  } catch (const Error& error) {
    // The ranks have not come together: each tells what it has seen.
    const std::string who = rendezvous ? fmt::format("rank {}: ", rendezvous->rank) : "";
    if (error.code() == ErrorCode::invalid_argument) throw UsageError(who + error.what());
    throw Error(error.code(), who + error.what(), error.native_code());
  }
}

}  // namespace tutti::perf
