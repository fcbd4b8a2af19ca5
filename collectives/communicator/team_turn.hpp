// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/graph_captures.hpp"
#include "collectives/call/arguments.hpp"
#include "collectives/call/packing.hpp"
#include "collectives/communicator/bound_calls_scope.hpp"
#include "collectives/communicator/team_context.hpp"
#include "diagnostics/watching.hpp"
#include "os/thread.hpp"
#include "storage/storage.hpp"
#include "stream/stream_access.hpp"
#include "transport/team/team.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// A turn among the calls of this rank, the common part of collectives of a communicator and batches of its
/// messages. Turns come one at a time; other threads wait. During a turn, the streams that were given for the
/// local members are current. A failure after the announcement ends the team, because the others rely on the
/// call.
class TeamTurn {
 public:
  TeamTurn(const TeamTurn&) = delete;
  TeamTurn& operator=(const TeamTurn&) = delete;

  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }
  [[nodiscard]] Runtime& runtime() const noexcept { return context_.runtime(); }
  [[nodiscard]] const transport::team::Membership& membership() const { return team_.membership(); }
  [[nodiscard]] std::size_t locals() const noexcept { return context_.devices().size(); }
  [[nodiscard]] std::size_t first_local() const noexcept { return team_.membership().first_local(); }
  [[nodiscard]] std::size_t members() const noexcept { return team_.membership().member_count(); }
  /// Returns this process's position of a member, if it is local.
  [[nodiscard]] std::optional<std::size_t> local_of(std::size_t member) const {
    return team_.membership().is_local(member) ? std::optional(member - first_local()) : std::nullopt;
  }
  [[nodiscard]] Device device_of(std::size_t local) const { return context_.devices()[local]; }
  [[nodiscard]] backend::StreamRef stream_of(std::size_t local) const { return streams_[local]; }
  /// Returns true if a local member's current stream is being captured.
  [[nodiscard]] bool is_in_capture() const {
    return std::ranges::any_of(
        streams_, [this](backend::StreamRef stream) { return runtime().backend().is_capturing(stream); });
  }
  /// Joins the capture, if one of the streams is in one, before results are allocated: their memory is the
  /// graph's.
  void join_capture() { context_.launcher().join_capture(streams_); }

 protected:
  /// Begins a turn. `name` is the function that is called, for messages of errors; it outlives the turn.
  TeamTurn(TeamContext& context, std::string_view name, StreamList streams);
  virtual ~TeamTurn();

  [[nodiscard]] bool is_captured() const noexcept { return context_.launcher().is_captured(); }
  [[nodiscard]] Stream stream(std::size_t local) const { return StreamAccess::make(streams_[local]); }
  [[nodiscard]] static std::byte* address_of(const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::byte*>(tensor.data()) : nullptr;
  }

  /// Keeps the memory of what is queued, even if the rest fails: `visit_all(visit)` calls `visit(tensor,
  /// local)` for each tensor that is used on a local member's stream.
  template <class VisitAll>
  void keep_memory(const VisitAll& visit_all) const {
    if (is_captured()) {
      const auto tensors = std::make_shared<std::vector<Tensor>>();
      visit_all([&](const Tensor& tensor, std::size_t) { tensors->push_back(tensor); });
      for (const backend::StreamRef stream : context_.launcher().captured())
        runtime().part<GraphCaptures>().retain(stream, tensors);
      return;
    }
    visit_all([&](const Tensor& tensor, std::size_t local) {
      const Storage* const storage = tensor.storage().get();
      if (storage != nullptr && !is_recorded_on(*storage, streams_[local]))
        tensor.record_stream(stream(local));
    });
  }

  /// Calls `work`, on which other ranks rely, ends the call, and calls `then`. A failure ends the team.
  template <class Work, class Then>
  void carry_out(const Work& work, const Then& then) {
    BoundCallsScope::note(context_);
    try {
      work();
      context_.launcher().end(streams_);
      then();
    } catch (...) {
      give_up(backend::Escaped::current());
      throw;
    }
  }
  template <class Work>
  void carry_out(const Work& work) {
    carry_out(work, [] {});
  }
  /// Ends the team because of a failure, as the others rely on the call.
  void give_up(const backend::Escaped& escaped);

  /// Describes the call for profilers and traces.
  [[nodiscard]] watching::WatchedCall watched(PlanSummary plan) const;

 private:
  /// Names the call, for messages of errors.
  [[nodiscard]] virtual std::string call_in_words() const = 0;

 protected:
  TeamContext& context_;
  transport::team::Team& team_;

 private:
  const std::lock_guard<std::mutex> lock_;

 protected:
  const std::string_view name_;
  const Arguments arguments_;
  Packing packing_;

 private:
  /// The guards that make the streams current. They nest: the last is destroyed first.
  std::array<std::optional<StreamGuard>, transport::team::most_local_members> guards_;

 protected:
  std::vector<backend::StreamRef>& streams_;  ///< of local members
};

}  // namespace tutti::collectives
