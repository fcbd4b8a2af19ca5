// SPDX-License-Identifier: Apache-2.0
#include "perf/options/cases.hpp"
#include "perf/peers/nccl_calls.hpp"
#include "perf/peers/nccl_memory.hpp"
#include "perf/peers/peer.hpp"
#include "perf/processes/failure.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// What is kept of memory between calls, in each mode, is that many times less than what is free at first.
constexpr double free_over_kept = 16.0;

/// One of the modes.
class NcclWay {
 public:
  NcclWay(int number, const char* about, std::optional<NcclMemory::Kind> kind, const NcclLibrary& nccl,
          const Session& session)
      : name_(fmt::format("R{}", number)),
        about_(about),
        communicators_(nccl, session),
        calls_(nccl, session.members(), session.streams(), communicators_) {
    if (kind) {
      memory_ = std::make_unique<NcclMemory>(*kind, nccl, session, communicators_);
    } else {
      communicators_.make();
    }
  }

  [[nodiscard]] PeerMode mode() const {
    return memory_ ? PeerMode{name_, about_, memory_->refusal(), "ncclMemAlloc"}
                   : PeerMode{name_, about_, ""};
  }
  /// nullptr: tutti's.
  [[nodiscard]] NcclMemory* memory() const noexcept { return memory_.get(); }
  [[nodiscard]] NcclCalls& calls() noexcept { return calls_; }

 private:
  std::string name_;
  std::string about_;
  NcclCommunicators communicators_;
  NcclCalls calls_;
  std::unique_ptr<NcclMemory> memory_;
};

class NcclPeer final : public Peer {
 public:
  NcclPeer(const Session& session, std::optional<int> only) : most_kept_(most_kept(session)) {
    const auto add = [&](int number, const char* about, std::optional<NcclMemory::Kind> kind) {
      if (!only || *only == number)
        ways_.push_back(std::make_unique<NcclWay>(number, about, kind, nccl_, session));
    };
    add(0, "the same buffers", std::nullopt);
    add(1, "registered buffers", NcclMemory::Kind::buffers);
    add(2, "symmetric windows", NcclMemory::Kind::windows);
    if (only && !modes().front().refusal.empty())
      throw UsageError(fmt::format("--peer nccl: -R {}: {}", *only, modes().front().refusal));
  }

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string name_and_version() const override {
    return fmt::format("NCCL {} ({})", nccl_.version_text(), nccl_.path());
  }
  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    return NcclCalls::refusal(operation, call);
  }
  [[nodiscard]] std::vector<PeerMode> modes() const override {
    std::vector<PeerMode> all;
    for (const auto& way : ways_) all.push_back(way->mode());
    return all;
  }
  void foresee(std::size_t sets, std::size_t bytes_of_set) override {
    for (const auto& way : ways_) {
      if (way->memory() != nullptr && sets * bytes_of_set <= most_kept_)
        way->memory()->foresee(sets * bytes_of_set);
    }
  }
  [[nodiscard]] OperandMemory* memory(std::size_t mode, const Operation& operation, const Case& what,
                                      std::size_t sets) override {
    NcclMemory* const memory = ways_[mode]->memory();
    if (memory == nullptr) return nullptr;
    const std::size_t bytes_of_set = operand_bytes(operation, what);
    if (memory->are_windows()) {
      const std::string defect = defect_of_windows(nccl_.version(), operation, what);
      if (!defect.empty()) throw Error(ErrorCode::unsupported, defect);
    }
    if (sets * bytes_of_set > most_kept_) {  // then there is no room for others'
      for (const auto& way : ways_) {
        if (way->memory() != nullptr) way->memory()->release();
      }
    }
    memory->reserve(sets, bytes_of_set, NcclCalls::kind_of(operation));
    return memory;
  }
  void trim() override {
    for (const auto& way : ways_) {
      if (way->memory() != nullptr) way->memory()->trim();
    }
  }
  void enqueue(std::size_t mode, const Operation& operation, const Call& call) override {
    ways_[mode]->calls().enqueue(operation, call);
  }

 private:
  /// In bytes, of all ranks' devices the one with least.
  static std::size_t most_kept(const Session& session) {
    double least = std::numeric_limits<double>::max();
    for (const Stream& stream : session.streams())
      least = std::min(least, static_cast<double>(mem_get_info(stream.device()).free));
    return static_cast<std::size_t>(session.processes().smallest(least) / free_over_kept);
  }

  NcclLibrary nccl_;
  std::size_t most_kept_;
  std::vector<std::unique_ptr<NcclWay>> ways_;
};

}  // namespace

std::unique_ptr<Peer> make_nccl_peer(const Session& session, std::optional<int> only) {
  if (session.topology().backend != BackendKind::cuda)
    throw UsageError("--peer nccl: NCCL needs GPUs; these devices are virtual");
  return std::make_unique<NcclPeer>(session, only);
}

}  // namespace tutti::perf
