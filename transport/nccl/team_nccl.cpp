// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/team_nccl.hpp"

#include "os/thread.hpp"
#include "settings/log.hpp"
#include "stream/streams.hpp"
#include "transport/nccl/library.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

using nccl::Library;

/// Communicators in the making, which takes all ranks: by a thread of its own, because it does not return
/// while one of them is gone.
class Connecting {
 public:
  Connecting(Runtime& runtime, const Team& team, const nccl::Functions& functions, const ncclUniqueId& id)
      : runtime_(runtime),
        nccl_(functions),
        id_(id),
        devices_(team.membership().devices()),
        first_local_(team.membership().first_local()),
        most_multiprocessors_(team.settings().most_multiprocessors),
        members_(team.membership().member_count()),
        communicators_(devices_.size()) {}

  /// Starts the thread, which shares `connecting`. Whoever lets go of it first leaves the rest to the other.
  static void start(const std::shared_ptr<Connecting>& connecting) {
    backend::Thread(
        {.name = "tutti-connect", .purpose = "that connects NCCL"}, [connecting] { connecting->run(); },
        [connecting](const backend::Escaped& escaped) {
          log_warning(escaped.what);
          connecting->end(ncclInternalError);
        })
        .detach();
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  ~Connecting() {
    for (const ncclComm_t communicator : communicators_) {
      if (communicator != nullptr) static_cast<void>(nccl_.comm_abort(communicator));
    }
  }

  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_acquire); }
  /// The result of connecting, once it is over.
  [[nodiscard]] ncclResult_t outcome() const noexcept { return outcome_; }
  /// The communicators, once connecting has succeeded.
  [[nodiscard]] std::vector<ncclComm_t> take() noexcept { return std::move(communicators_); }

 private:
  void run() {
    ncclResult_t result = nccl_.group_start();
    for (std::size_t local = 0; local < communicators_.size() && result == ncclSuccess; ++local)
      result = begin(local);
    const ncclResult_t end = nccl_.group_end();
    this->end(result != ncclSuccess ? result : end);
  }
  void end(ncclResult_t outcome) noexcept {
    outcome_ = outcome;
    is_over_.store(true, std::memory_order_release);
  }

  [[nodiscard]] ncclResult_t begin(std::size_t local) noexcept {
    try {
      runtime_.backend().set_current_device(devices_[local]);
    } catch (const Error& error) {
      log_warning(error.what());
      return ncclUnhandledCudaError;
    }
    const auto members = static_cast<int>(members_);
    const auto rank = static_cast<int>(first_local_ + local);
    if (most_multiprocessors_ == backend::all_multiprocessors)
      return nccl_.comm_init_rank(&communicators_[local], members, id_, rank);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    // NCCL rounds the number up to a power of two for messages, not down.
    config.maxCTAs = static_cast<int>(std::bit_floor(most_multiprocessors_));
    return nccl_.comm_init_rank_config(&communicators_[local], members, id_, rank, &config);
  }

  Runtime& runtime_;
  const nccl::Functions& nccl_;
  ncclUniqueId id_;
  std::vector<int> devices_;
  std::size_t first_local_;
  std::uint32_t most_multiprocessors_;
  std::size_t members_;
  std::vector<ncclComm_t> communicators_;
  ncclResult_t outcome_ = ncclSuccess;
  std::atomic<bool> is_over_ = false;
};

/// Communicators that do not block would let a rank that waits for another be told to stop; but they hand
/// every group to a thread of their own, which costs about 80 µs a call.
class TeamCommunicators final : public TeamNccl {
 public:
  TeamCommunicators(Runtime& runtime, Team& team, const Library& library)
      : runtime_(runtime), team_(team), library_(library), nccl_(library.functions()) {}
  TeamCommunicators(const TeamCommunicators&) = delete;
  TeamCommunicators& operator=(const TeamCommunicators&) = delete;
  ~TeamCommunicators() override;

  [[nodiscard]] bool is_connected() const noexcept override { return is_connected_; }
  void enqueue(const nccl::CallList& list, const Binding& binding) override;

 private:
  void connect(std::uint64_t sequence);
  /// Throws if the team has been ended, or if NCCL has failed.
  void require_healthy();
  /// Ends what is queued, and calls of other threads that do not return. Once.
  void abort() noexcept;

  Runtime& runtime_;
  Team& team_;
  const Library& library_;
  const nccl::Functions& nccl_;
  std::vector<ncclComm_t> communicators_;  ///< by local member; made once
  bool is_connected_ = false;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> in_use_ = false;  ///< by a call of the team's
};

TeamCommunicators::~TeamCommunicators() {
  team_.watch().set_abort_handler(nullptr);
  if (team_.abort().is_set()) abort();
  if (aborted_) return;
  for (const ncclComm_t communicator : communicators_) {
    if (const ncclResult_t result = nccl_.comm_destroy(communicator); result != ncclSuccess)
      log_warning(
          fmt::format("an NCCL communicator could not be destroyed: {}", nccl_.get_error_string(result)));
  }
}

void TeamCommunicators::connect(std::uint64_t sequence) {
  if (is_connected_) return;
  ncclUniqueId id{};
  std::string complaint;
  if (team_.membership().rank() == 0) {
    const ncclResult_t result = nccl_.get_unique_id(&id);
    if (result != ncclSuccess) complaint = fmt::format("ncclGetUniqueId: {}", nccl_.get_error_string(result));
  }
  TeamExchange exchange(team_, sequence);
  complaint = first_complaint(exchange, complaint);
  if (!complaint.empty()) throw Error(ErrorCode::transport_failure, complaint);
  id = gather(exchange, id).front();
  const auto connecting = std::make_shared<Connecting>(runtime_, team_, nccl_, id);
  Connecting::start(connecting);
  team_.waiting().wait_for_ranks(
      sequence, [&] { return connecting->is_over() ? std::vector<std::size_t>{} : exchange.not_arrived(); });
  library_.check(connecting->outcome(), "ncclCommInitRank");
  exchange.arrive();
  communicators_ = connecting->take();
  team_.watch().set_abort_handler([this] { abort(); });
  is_connected_ = true;
}

void TeamCommunicators::require_healthy() {
  team_.abort().require_running();
  for (std::size_t local = 0; local < communicators_.size(); ++local) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.comm_get_async_error(communicators_[local], &state);
    if (asked != ncclSuccess) state = asked;
    library_.check(state, fmt::format("NCCL work of member {}", team_.membership().first_local() + local),
                   communicators_[local]);
  }
}

void TeamCommunicators::enqueue(const nccl::CallList& list, const Binding& binding) {
  if (binding.team != nullptr) connect(binding.team->sequence);
  in_use_ = true;
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> in_use(
      &in_use_, [](std::atomic<bool>* used) { *used = false; });
  require_healthy();
  // The kernels of one local member wait for other ranks' alone; NCCL may do so here, the first time, and
  // must not hold up what those ranks wait for.
  std::unique_lock<std::mutex> group;
  Streams::LaunchLocks gate;
  if (communicators_.size() > 1) {
    group = std::unique_lock(library_.group_mutex());
    gate = runtime_.part<Streams>().launch_together(team_.membership().devices());
  }
  std::size_t begin = 0;
  for (const std::size_t end : list.group_ends) {
    ncclResult_t result = nccl_.group_start();
    for (std::size_t i = begin; i < end && result == ncclSuccess; ++i) {
      const nccl::Call& call = list.calls[i];
      const std::size_t local = static_cast<std::size_t>(call.rank) - team_.membership().first_local();
      result = nccl::enqueue(nccl_, call, binding, communicators_[local]);
    }
    const ncclResult_t ended = nccl_.group_end();
    for (const ncclResult_t outcome : {result, ended}) library_.check(outcome, "a group of NCCL calls");
    begin = end;
  }
}

void TeamCommunicators::abort() noexcept {
  if (aborted_.exchange(true)) return;
  // A call that is about to return is let go; one that waits for a rank that is gone is what this is for.
  for (int wait = 0; wait < 100 && in_use_; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const ncclComm_t communicator : communicators_) {
    if (nccl_.comm_abort(communicator) != ncclSuccess)
      log_warning("an NCCL communicator could not be aborted");  // there may be no memory to say more
  }
}

/// A rank's announcement.
struct Ability {
  Note version;
  Note refusal;
  std::array<std::array<char, 32>, most_local_members> devices{};
};

}  // namespace

std::unique_ptr<TeamNccl> TeamNccl::create(Runtime& runtime, Exchange& exchange, Team& team,
                                           std::string& reason) {
  Ability mine;
  if (runtime.backend().kind() != BackendKind::cuda) {
    mine.refusal = Note("the devices are virtual");
  } else if (!Library::get().usable()) {
    mine.refusal = Note(Library::get().detail());
  } else if (team.membership().local_count() > 1 &&
             runtime.part<LaunchProbe>().find(team.membership().devices()) != Launching::from_one_thread) {
    mine.refusal = Note(fmt::format("it has several members, and {}", launches_block));
  } else if (team.membership().local_count() > 1 && team.membership().shares_process_with_any()) {
    // NCCL waits for other ranks with the lock of groups held.
    mine.refusal = Note("it has several members, and other ranks are threads of its process");
  } else {
    mine.version = Note(Library::get().detail());
    for (std::size_t local = 0; local < team.membership().local_count(); ++local) {
      const std::string& id = runtime.backend().properties(team.membership().devices()[local]).pci_bus_id;
      std::copy_n(id.begin(), std::min(id.size(), mine.devices[local].size() - 1),
                  mine.devices[local].begin());
    }
  }
  const std::vector<Ability> all = gather(exchange, mine);
  std::vector<std::pair<std::size_t, std::string>> devices;  // and their hosts
  for (std::size_t rank = 0; rank < all.size() && reason.empty(); ++rank) {
    if (const std::string refusal = all[rank].refusal.string(); !refusal.empty()) {
      reason = fmt::format("rank {}: {}", rank, refusal);
    } else if (all[rank].version.text != all[0].version.text) {
      reason = fmt::format("rank {} has NCCL {}, rank 0 has {}", rank, all[rank].version.string(),
                           all[0].version.string());
    }
    for (const auto& device : all[rank].devices) {
      const std::string id = device.data();
      if (id.empty() || !reason.empty()) continue;
      const auto place = std::pair(team.membership().host_of(rank), id);
      if (std::ranges::find(devices, place) != devices.end()) reason = "two members share the GPU " + id;
      devices.push_back(place);
    }
  }
  if (!reason.empty()) return nullptr;
  return std::make_unique<TeamCommunicators>(runtime, team, Library::get());
}

}  // namespace tutti::transport::team
