// SPDX-License-Identifier: Apache-2.0
#include "nccl_calls.hpp"
#include "nccl_graphs.hpp"
#include "nccl_library.hpp"
#include "nccl_memory.hpp"
#include "peer.hpp"
#include "tutti/device.hpp"
#include "usage_error.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

class NcclPeer final : public Peer {
 public:
  NcclPeer(const Session& session, std::optional<int> only)
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
    const auto add = [&](int number, const char* about, std::optional<NcclMemory::Kind> kind) {
      if (only && *only != number) return;
      ways_.push_back({fmt::format("R{}", number), about, nullptr});
      if (kind) ways_.back().memory = std::make_unique<NcclMemory>(*kind, nccl_, session, communicators_);
    };
    add(0, "the same buffers", std::nullopt);
    add(1, "registered buffers", NcclMemory::Kind::buffers);
    add(2, "symmetric windows", NcclMemory::Kind::windows);
    if (only && !modes().front().refusal.empty())
      throw UsageError(fmt::format("--peer nccl: -R {}: {}", *only, modes().front().refusal));
  }
  ~NcclPeer() override {
    ways_.clear();
    calls_.end();
    for (ncclComm_t communicator : communicators_) nccl_.destroy(communicator);
  }

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("NCCL {} ({})", nccl_.version_text(), nccl_.path());
  }
  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    return NcclCalls::refusal(operation, call);
  }
  [[nodiscard]] std::vector<PeerMode> modes() const override {
    std::vector<PeerMode> all;
    for (const Way& way : ways_)
      all.push_back({way.name, way.about, way.memory ? way.memory->refusal() : ""});
    return all;
  }
  [[nodiscard]] OperandMemory* memory(std::size_t mode, std::size_t sets, std::size_t bytes_of_set) override {
    NcclMemory* const memory = ways_[mode].memory.get();
    if (memory != nullptr) memory->reserve(sets, bytes_of_set);
    return memory;
  }
  void trim() override {
    for (const Way& way : ways_) {
      if (way.memory) way.memory->trim();
    }
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
  struct Way {
    std::string name;
    std::string about;
    std::unique_ptr<NcclMemory> memory;  ///< nullptr: tutti's
  };

  NcclLibrary nccl_;
  Members members_;
  std::vector<Stream> streams_;
  std::vector<ncclComm_t> communicators_;
  NcclCalls calls_{nccl_, members_, streams_, communicators_};
  std::vector<Way> ways_;
};

}  // namespace

std::unique_ptr<Peer> make_nccl_peer(const Session& session, std::optional<int> only) {
  if (session.topology().backend != BackendKind::cuda)
    throw UsageError("--peer nccl: NCCL needs GPUs; these devices are virtual");
  return std::make_unique<NcclPeer>(session, only);
}

}  // namespace tutti::perf
