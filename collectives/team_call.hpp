// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/thread.hpp"
#include "collectives/arguments.hpp"
#include "collectives/disjoint.hpp"
#include "collectives/packing.hpp"
#include "collectives/team_context.hpp"
#include "storage.hpp"
#include "transport/plan.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/team/signature.hpp"
#include "transport/team/team.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "watching.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// Operands of the local members: one tensor each, or a list each.
class MemberOperands {
 public:
  [[nodiscard]] static MemberOperands one_each(TensorList tensors) { return {tensors, {}, false}; }
  [[nodiscard]] static MemberOperands lists(TensorLists tensors) { return {{}, tensors, true}; }

  [[nodiscard]] std::size_t size() const noexcept { return are_lists_ ? lists_.size() : tensors_.size(); }
  [[nodiscard]] std::span<const Tensor> operator[](std::size_t local) const {
    return are_lists_ ? std::span<const Tensor>(lists_[local])
                      : std::span<const Tensor>(tensors_).subspan(local, 1);
  }
  [[nodiscard]] Name name(std::string_view argument, std::size_t local, std::size_t index) const {
    return are_lists_ ? Name(argument, local, index) : Name(argument, local);
  }
  [[nodiscard]] Named named(std::string_view argument, std::size_t local) const {
    return {argument, (*this)[local], static_cast<int>(local), !are_lists_};
  }

 private:
  MemberOperands(TensorList tensors, TensorLists lists, bool are_lists)
      : tensors_(tensors), lists_(lists), are_lists_(are_lists) {}

  TensorList tensors_;
  TensorLists lists_;
  bool are_lists_;
};

/// For each local member, a number of elements for each of all members.
using SizeLists = ListOf<std::vector<std::int64_t>>;

/// What local members' tensors have in common beside element types: their sizes, or, where they are taken as
/// flat, the number of elements alone.
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
  [[nodiscard]] std::size_t locals() const noexcept { return context_.devices().size(); }
  [[nodiscard]] std::size_t first_local() const noexcept { return team_.membership().first_local(); }
  [[nodiscard]] std::size_t members() const noexcept { return team_.membership().member_count(); }
  /// This process's position of a member, if it is local.
  [[nodiscard]] std::optional<std::size_t> local_of(std::size_t member) const {
    return team_.membership().is_local(member) ? std::optional(member - first_local()) : std::nullopt;
  }
  [[nodiscard]] Collective collective() const noexcept { return signature_.collective; }
  void set_root(int root);
  [[nodiscard]] std::size_t root() const noexcept { return root_; }

  /// What the inputs are combined by, as all ranks give it.
  void set_operation(const ReduceOp& operation);

  /// Of a call without work: what all ranks must give alike.
  void set_alike(DType dtype, std::span<const std::int64_t> sizes, int dim);

  // Checks.
  void one_per_member(std::size_t count, std::string_view argument) const;
  void on_member(const Tensor& tensor, const Name& name, std::size_t local) const;
  /// Local members' lists: on their devices, all of the same element types and sizes as the first.
  void check_alike(const MemberOperands& operands, std::string_view argument,
                   Likeness likeness = Likeness::sizes) const;
  /// One number of elements for each of all members, 0 or more; returns how many they are in all.
  std::int64_t check_part_sizes(std::span<const std::int64_t> sizes, const Name& name) const;
  void check_output(const Tensor& out, const Name& name, std::size_t local, const Tensor& like,
                    const Name& like_name) const;

  /// Begins, with columns that all members have alike: one like each of the `tensors`.
  void begin(std::span<const Tensor> tensors);
  /// Begins, with one column of parts, which are alike but for their lengths: `elements` for each unit of it.
  void begin(std::uint64_t elements, DType dtype);
  /// Begins, with one column of parts that are as long as `sizes` says, in elements by member.
  void begin_parts(std::span<const std::int64_t> sizes, DType dtype);
  /// Begins, with one column whose parts are of lengths that `run_agreed` is told.
  void begin_exchange(DType dtype);
  void set_input(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);
  /// A copy of it, as its memory is an output's.
  void set_input_copy(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);
  void set_output(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);

  /// Plans, announces the call to the others, and enqueues its work, and behind it what `then` does on the
  /// local members' streams. Throws Error(unsupported) before if the transport that was asked for cannot
  /// carry it.
  void run(const std::function<void()>& then = nullptr);
  /// The same of an exchange. Every rank knows the sizes of its own members alone, in elements for each of
  /// all members: the plan is made when all have told theirs. Those that differ between two members end the
  /// team.
  void run_agreed(const SizeLists& input_sizes, const SizeLists& out_sizes);

  /// Carries out a call in several steps, all of which the ranks take alike: each is announced to the others
  /// and has a plan of its own. What fails when one has been announced ends the team.
  void run_steps(const std::function<void()>& steps);
  /// Begins one of them, which travels as the request says. All ranks give the same one, and the same
  /// `elements`. Their inputs and outputs are set then, as those of other calls.
  void begin_step(const Request& request, std::uint64_t elements, DType dtype);
  /// Of a step that has begun: `memory` is used by its work besides what is set.
  void keep(Tensor memory) { kept_.push_back(std::move(memory)); }
  [[nodiscard]] Runtime& runtime() const noexcept { return context_.runtime(); }
  [[nodiscard]] backend::StreamRef stream_of(std::size_t local) const { return streams_[local]; }
  [[nodiscard]] Device device_of(std::size_t local) const { return context_.devices()[local]; }
  /// The tensor, or a dense copy of it, which is queued on its member's stream.
  [[nodiscard]] Tensor dense(const Tensor& tensor, const Name& name);

  /// Of a call that queues nothing. Returns its sequence number.
  [[nodiscard]] std::uint64_t post_without_work();
  void run_barrier();

  /// A whole call: `parts` of local members, and the root's `whole`, along `dim`. Every rank knows the
  /// lengths of its own parts alone: the plan is made when all have told theirs.
  void cut_apart(const Tensor& whole, TensorList parts, int dim) { cut(whole, "tensor", parts, "out", dim); }
  void join(TensorList parts, const Tensor& whole, int dim) { cut(whole, "out", parts, "tensors", dim); }

 private:
  void begin();
  void cut(const Tensor& whole, std::string_view whole_name, TensorList parts, std::string_view parts_name,
           int dim);
  static std::byte* address_of(const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::byte*>(tensor.data()) : nullptr;
  }
  [[nodiscard]] std::size_t columns() const noexcept { return request_.columns; }
  [[nodiscard]] Stream stream(std::size_t local) const { return StreamAccess::make(streams_[local]); }
  [[nodiscard]] bool is_captured() const noexcept { return context_.launcher().captured().has_value(); }
  /// Says which of the local members' own results need no copy of their own input, because they were not
  /// given or are that input: those of a broadcast's root, and everyone's own part of an all_gather.
  void leave_own_copies_alone();
  /// Where the part of a member begins in a whole, in bytes.
  [[nodiscard]] std::uint64_t start_of_part(std::size_t member, const Tensor& part) const;
  /// Finds the plan, and allocates what it needs.
  void plan();
  void post() { sequence_ = team_.calls().post(signature_, is_captured()); }
  void enqueue();
  /// All that follows once the call is posted, where ranks must `agree` before it can be planned: a failure
  /// ends the team.
  void complete(const std::function<void()>& agree);
  void bind();
  /// Has what the rounds give opened by the others; what cannot be opened is replaced by a stand-in.
  void give(const transport::team::RoundPlan& rounds);
  const std::byte* add_stand_in(std::size_t local, transport::BufferId buffer);
  /// Queues the copies from stand-ins to outputs.
  void copy_stand_ins_back();
  /// Does what the others rely on: a failure ends the team.
  template <class Work>
  void carry_out(Work work);
  /// Ends the team: the others rely on what has failed.
  void give_up(const backend::Escaped& escaped);
  /// What is queued keeps its memory, even if the rest fails.
  void keep_memory();
  /// What tools are told of the call. `plan`: none where it queues nothing.
  [[nodiscard]] watching::WatchedCall watched(const transport::Plan* plan) const;

  TeamContext& context_;
  transport::team::Team& team_;
  const std::lock_guard<std::mutex> lock_;
  Arguments arguments_;
  Packing packing_;
  /// Nest: the last goes first.
  std::array<std::optional<StreamGuard>, transport::team::most_local_members> guards_;
  std::vector<backend::StreamRef>& streams_;
  transport::team::Signature signature_;
  std::uint64_t operation_hash_ = 0;  ///< what the operation adds to the shape of a signature
  std::uint64_t steps_ = 0;           ///< that have begun
  std::vector<Tensor> kept_;
  std::uint64_t sequence_ = 0;
  std::size_t root_ = 0;
  Request& request_;
  std::shared_ptr<const transport::Plan> plan_;
  std::vector<detail::IntrusivePtr<Storage>> temporaries_;
  std::vector<Tensor>& inputs_;
  std::vector<Tensor>& outputs_;
  transport::Operands& operands_;
  /// For an operand in memory that others cannot open.
  struct StandIn {
    std::size_t local = 0;
    Tensor operand;
    Tensor stand_in;
    bool is_output = false;
  };
  std::vector<StandIn> stand_ins_;
};

}  // namespace tutti::collectives
