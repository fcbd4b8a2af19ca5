// SPDX-License-Identifier: Apache-2.0
#include "nccl_calls.hpp"
#include "nccl_graphs.hpp"
#include "nccl_library.hpp"
#include "peer.hpp"
#include "tutti/device.hpp"
#include "usage_error.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

class NcclPeer final : public Peer {
 public:
  explicit NcclPeer(const Session& session)
      : members_(session.members()), streams_(session.streams()), communicators_(streams_.size(), nullptr) {
    ncclUniqueId id{};
    if (session.processes().rank() == 0) nccl_.check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    session.processes().broadcast(std::as_writable_bytes(std::span(&id, 1)));
    nccl_.check(nccl_.group_start(), "ncclGroupStart");
    for (std::size_t own = 0; own < streams_.size(); ++own) {
      const DeviceGuard guard(streams_[own].device());
      nccl_.check(nccl_.init_rank(&communicators_[own], members_.count, id, members_.number_of(own)),
                  "ncclCommInitRank");
    }
    nccl_.check(nccl_.group_end(), "ncclGroupEnd");
  }
  ~NcclPeer() override {
    for (ncclComm_t communicator : communicators_) nccl_.destroy(communicator);
  }

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("NCCL {} ({})", nccl_.version_text(), nccl_.path());
  }
  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    return NcclCalls::refusal(operation, call);
  }
  void enqueue(const Operation& operation, const Call& call) override { calls_.enqueue(operation, call); }
  [[nodiscard]] std::function<void()> record(const Operation& operation,
                                             const std::vector<const Call*>& calls) override {
    const auto graphs = std::make_shared<RecordedGraphs>(streams_);
    graphs->record([&] {
      for (const Call* call : calls) enqueue(operation, *call);
    });
    return [graphs] { graphs->launch(); };
  }

 private:
  NcclLibrary nccl_;
  Members members_;
  std::vector<Stream> streams_;
  std::vector<ncclComm_t> communicators_;
  NcclCalls calls_{nccl_, members_, streams_, communicators_};
};

}  // namespace

std::unique_ptr<Peer> make_nccl_peer(const Session& session) {
  if (session.topology().backend != BackendKind::cuda)
    throw UsageError("--peer nccl: NCCL needs GPUs; these devices are virtual");
  return std::make_unique<NcclPeer>(session);
}

}  // namespace tutti::perf
