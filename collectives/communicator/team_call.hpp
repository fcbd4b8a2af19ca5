// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/member_checks.hpp"
#include "collectives/communicator/member_operands.hpp"
#include "collectives/communicator/team_operands.hpp"
#include "collectives/communicator/team_turn.hpp"
#include "storage/storage.hpp"
#include "transport/plan/plan.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// One call of a communicator: checks, signature, work, launch.
///
/// Checks come first, and queue nothing. With `begin` the call begins: what is queued from there on follows
/// earlier calls.
class TeamCall final : public TeamTurn {
 public:
  TeamCall(TeamContext& context, CollectiveForm form, StreamList streams);

  [[nodiscard]] const MemberChecks& checks() const noexcept { return checks_; }
  [[nodiscard]] TeamOperands& operands() noexcept { return operands_; }
  /// Returns what the ranks compare.
  [[nodiscard]] transport::team::Signature& signature() noexcept { return signature_; }
  [[nodiscard]] Request& request() noexcept { return request_; }
  [[nodiscard]] Collective collective() const noexcept { return signature_.collective; }

  void set_root(int root);
  [[nodiscard]] std::size_t root() const noexcept { return root_; }
  /// Sets the operation that combines the inputs, which all ranks give alike.
  void set_operation(const ReduceOp& operation);

  /// Begins, with columns that all members have alike: one like each of the `tensors`.
  void begin(std::span<const Tensor> tensors);
  /// Begins, with one column of parts that differ in length only; each is a multiple of `elements`.
  void begin(std::uint64_t elements, DType dtype);
  /// Begins, with one column of parts that are as long as `sizes` says, in elements by member.
  void begin_parts(std::span<const std::int64_t> sizes, DType dtype);

  /// Plans, announces the call to the others, and enqueues its work, and behind it what `then` does on the
  /// local members' streams. Throws Error(unsupported) before if the transport that was asked for cannot
  /// carry it.
  void run(const std::function<void()>& then = nullptr);
  /// Runs a call in which a rank knows the lengths of its own members' parts only. Once all ranks have posted
  /// the call, `agree` is given the lengths of all members' parts (`Signature::lengths`) and completes the
  /// request. What it throws ends the team, and so does a failure after it. `has_rows_apart` is the value
  /// that the request's shape will have.
  void run_agreed(bool has_rows_apart, const std::function<void(std::span<const std::uint64_t>)>& agree);

  /// Carries out a call in several steps, all of which the ranks take alike: each is announced to the others
  /// and has a plan of its own. What fails when one has been announced ends the team.
  void run_steps(const std::function<void()>& steps);
  /// Begins one of them, which travels as the request says. All ranks give the same one, and the same
  /// `elements`. Their inputs and outputs are set then, as those of other calls.
  void begin_step(const Request& request, std::uint64_t elements, DType dtype);

  /// Posts a call that queues nothing, and returns its sequence number.
  [[nodiscard]] std::uint64_t post_without_work();

  /// Returns an exchange among the ranks of the call that has been posted.
  [[nodiscard]] transport::team::TeamExchange exchange() {
    return transport::team::TeamExchange(team_, sequence_);
  }
  /// Ends the team with Error(invalid_argument), because the ranks have given different sizes.
  [[noreturn]] void refuse_for_all(std::string_view what);

 private:
  void begin();
  /// Finds the plan, and allocates what it needs.
  void plan();
  void post() { sequence_ = team_.calls().post(signature_, is_captured()); }
  void enqueue();
  /// Queues the call that has been posted.
  template <class Work>
  void carry_out_posted(const Work& work);
  /// Describes the call to tools. `plan`: none where it queues nothing.
  [[nodiscard]] watching::WatchedCall watched(const transport::Plan* plan) const;
  [[nodiscard]] std::string call_in_words() const override { return to_string(signature_); }

  transport::team::Signature signature_;
  std::uint64_t shape_of_call_ = 0;  ///< of its signature, which all steps have in theirs
  std::uint64_t steps_ = 0;          ///< that have begun
  std::uint64_t sequence_ = 0;
  std::size_t root_ = 0;
  Request& request_;
  MemberChecks checks_;
  TeamOperands operands_;
  std::shared_ptr<const transport::Plan> plan_;
  std::vector<detail::IntrusivePtr<Storage>> temporaries_;
};

}  // namespace tutti::collectives
