// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/arguments.hpp"
#include "collectives/disjoint.hpp"
#include "collectives/packing.hpp"
#include "collectives/team_context.hpp"
#include "collectives/team_request.hpp"
#include "collectives/team_route.hpp"
#include "transport/plan_cache.hpp"
#include "transport/ranks/round_plan.hpp"
#include "transport/ranks/team_nccl.hpp"
#include "transport/team/signature.hpp"
#include "transport/team/team.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// Operands of the own members: one tensor each, or a list each.
class MemberOperands {
 public:
  [[nodiscard]] static MemberOperands one_each(TensorList tensors) { return {tensors, {}, false}; }
  [[nodiscard]] static MemberOperands lists(TensorLists tensors) { return {{}, tensors, true}; }

  [[nodiscard]] std::size_t size() const noexcept { return are_lists_ ? lists_.size() : tensors_.size(); }
  [[nodiscard]] std::span<const Tensor> operator[](std::size_t own_member) const {
    return are_lists_ ? std::span<const Tensor>(lists_[own_member])
                      : std::span<const Tensor>(tensors_).subspan(own_member, 1);
  }
  [[nodiscard]] Name name(std::string_view argument, std::size_t own_member, std::size_t index) const {
    return are_lists_ ? Name(argument, own_member, index) : Name(argument, own_member);
  }
  [[nodiscard]] Named named(std::string_view argument, std::size_t own_member) const {
    return {argument, (*this)[own_member], static_cast<int>(own_member), !are_lists_};
  }

 private:
  MemberOperands(TensorList tensors, TensorLists lists, bool are_lists)
      : tensors_(tensors), lists_(lists), are_lists_(are_lists) {}

  TensorList tensors_;
  TensorLists lists_;
  bool are_lists_;
};

/// In what own members' tensors are alike, beside element types. Where they are flat, shapes do not matter.
enum class Likeness : std::uint8_t { sizes, elements };

/// One call of a communicator: checks, signature, work, launch. One at a time; other threads' wait.
///
/// Checks come first, and queue nothing. With `begin` the call begins: what is queued from there on follows
/// earlier calls.
class TeamCall {
 public:
  TeamCall(TeamContext& context, Collective operation, StreamList streams);
  TeamCall(const TeamCall&) = delete;
  TeamCall& operator=(const TeamCall&) = delete;
  ~TeamCall();

  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }
  [[nodiscard]] std::size_t locals() const noexcept { return context_.devices.size(); }
  [[nodiscard]] std::size_t first() const noexcept { return team_.first_local(); }
  [[nodiscard]] std::size_t members() const noexcept { return team_.member_count(); }
  /// This process's position of a member, if it is one of its own.
  [[nodiscard]] std::optional<std::size_t> own(std::size_t member) const {
    return team_.is_local(member) ? std::optional(member - first()) : std::nullopt;
  }
  void set_root(int root);
  [[nodiscard]] std::size_t root() const noexcept { return request_.root; }

  // Checks.
  void one_per_member(std::size_t count, std::string_view argument) const;
  void on_member(const Tensor& tensor, const Name& name, std::size_t own_member) const;
  /// Own members' lists: on their devices, all of the same element types and sizes as the first.
  void check_alike(const MemberOperands& operands, std::string_view argument,
                   Likeness likeness = Likeness::sizes) const;
  void check_output(const Tensor& out, const Name& name, std::size_t own_member, const Tensor& like,
                    const Name& like_name) const;

  /// Begins, with the columns that all members have alike: one like each of the `tensors`, or one.
  void begin(std::span<const Tensor> tensors);
  void begin(const TeamColumn& column);
  [[nodiscard]] std::span<const TeamColumn> columns() const noexcept { return request_.columns; }
  void set_input(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name);
  void set_output(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name);
  [[nodiscard]] std::byte* input_address(std::size_t own_member, std::size_t column = 0) const {
    return address_of(inputs_[own_member * columns().size() + column]);
  }
  [[nodiscard]] std::byte* output_address(std::size_t own_member, std::size_t column = 0) const {
    return address_of(outputs_[own_member * columns().size() + column]);
  }

  /// Chooses the transport, and announces the call to the others. Throws Error(unsupported) if the transport
  /// that was asked for cannot carry it.
  void post();
  /// Of a call that queues nothing. Returns its sequence number.
  [[nodiscard]] std::uint64_t post_without_work();
  /// Plans, or finds the plan of an earlier call that asked for the same, and enqueues. `to_itself` as in
  /// `TeamRequest`.
  void launch(std::span<const std::uint64_t> to_itself = {});
  void launch_barrier();

  /// A whole call: `parts` of own members, and the root's `whole`, along `dim`. Every rank knows the lengths
  /// of its own parts alone: the plan is made when all have told theirs.
  void cut_apart(const Tensor& whole, TensorList parts, int dim) { cut(whole, "tensor", parts, "out", dim); }
  void join(TensorList parts, const Tensor& whole, int dim) { cut(whole, "out", parts, "tensors", dim); }

 private:
  using PlanPtr = std::shared_ptr<const transport::ranks::RoundPlan>;

  void begin();
  void cut(const Tensor& whole, std::string_view whole_name, TensorList parts, std::string_view parts_name,
           int dim);
  static std::byte* address_of(const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::byte*>(tensor.data()) : nullptr;
  }
  [[nodiscard]] Stream stream(std::size_t own_member) const {
    return StreamAccess::make(streams_[own_member]);
  }
  [[nodiscard]] std::span<std::byte* const> addresses() const;
  [[nodiscard]] PlanPtr plan();
  /// Calls `make` for a plan that is not known.
  template <class Make>
  [[nodiscard]] PlanPtr cached(const transport::PlanKey& key, Make make);
  void enqueue(const PlanPtr& plan);
  void enqueue_nccl();
  [[nodiscard]] std::vector<transport::ranks::NcclCall> nccl_calls() const;
  void add_transfers(std::vector<transport::ranks::NcclCall>& calls) const;
  void choose_transport();
  /// Gives own members memory for their shares of a sum that they hand on to the root.
  void add_shares();
  /// Has what the plan gives opened by the others; what cannot be opened is replaced by a stand-in.
  void give(const transport::ranks::RoundPlan& plan);
  const std::byte* add_stand_in(std::size_t own_member, transport::BufferId buffer);
  /// Queues the copies from stand-ins to outputs.
  void copy_stand_ins_back();
  /// Does what the others rely on: a failure ends the team.
  template <class Work>
  void carry_out(Work work);
  /// What is queued keeps its memory, even if the rest fails.
  void keep_memory();

  TeamContext& context_;
  transport::ranks::Team& team_;
  const std::lock_guard<std::mutex> lock_;
  Arguments arguments_;
  Packing packing_;
  /// Nest: the last goes first.
  std::array<std::optional<StreamGuard>, transport::ranks::most_own_members> guards_;
  std::vector<backend::StreamRef>& streams_;
  transport::ranks::Signature signature_;
  std::uint64_t sequence_ = 0;
  TeamRequest& request_;
  TeamRoute route_;
  std::vector<Tensor>& inputs_;
  std::vector<Tensor>& outputs_;
  /// For an operand in memory that others cannot open.
  struct StandIn {
    std::size_t own_member = 0;
    Tensor operand;
    Tensor stand_in;
    bool is_output = false;
  };
  std::vector<StandIn> stand_ins_;
};

}  // namespace tutti::collectives
