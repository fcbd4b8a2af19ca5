// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/disjoint.hpp"
#include "collectives/communicator/team_turn.hpp"
#include "storage/storage.hpp"
#include "transport/plan/plan.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

/// Parts of a whole, by member: how long they are, which all ranks give.
struct PartSizes {
  std::span<const std::int64_t> sizes;
  /// They lie along this dimension, and sizes are theirs there; or else all is flat, and they have so many
  /// elements.
  std::optional<int> dim = std::nullopt;
};

/// Parts of a whole that is cut along a dimension which is not its slowest one: all rows of the whole have a
/// share of each part.
struct PartsInRows {
  std::uint64_t rows = 1;
  std::span<const std::int64_t> elements;  ///< of each member's part, over all rows
};

/// For each local member, a number of elements for each of all members.
using SizeLists = ListOf<std::vector<std::int64_t>>;

/// The properties that local members' tensors share beside element types: their sizes, or, where they are
/// taken as flat, the number of elements alone.
enum class Likeness : std::uint8_t { sizes, elements };

/// One call of a communicator: checks, signature, work, launch.
///
/// Checks come first, and queue nothing. With `begin` the call begins: what is queued from there on follows
/// earlier calls.
class TeamCall final : public TeamTurn {
 public:
  TeamCall(TeamContext& context, CollectiveForm form, StreamList streams);

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

  /// Sets the operation that combines the inputs, which all ranks give alike.
  void set_operation(const ReduceOp& operation);

  /// Sets what all ranks must give alike in a call without work, or beside the lengths of parts.
  void set_alike(DType dtype, std::span<const std::int64_t> sizes, int dim);

  /// Sets what a call without work or operation is made for, as all ranks say it.
  void set_purpose(std::string_view purpose) noexcept { signature_.set_purpose(purpose); }
  /// True if a local member's current stream is being captured.
  [[nodiscard]] bool is_in_capture() const {
    return std::ranges::any_of(
        streams_, [this](backend::StreamRef stream) { return runtime().backend().is_capturing(stream); });
  }

  // Checks.
  void one_per_member(std::size_t count, std::string_view argument) const;
  void on_member(const Tensor& tensor, const Name& name, std::size_t local) const;
  /// Local members' lists: on their devices, all of the same element types and sizes as the first.
  void check_alike(const MemberOperands& operands, std::string_view argument,
                   Likeness likeness = Likeness::sizes) const;
  /// Parts of local members, on their devices, that are alike but along `dim`, which is returned, counted
  /// from the front.
  [[nodiscard]] int check_parts(const MemberOperands& parts, std::string_view argument, int dim) const;
  /// A local member's tensor is like a part, but along a dimension.
  void check_like_part(const Tensor& tensor, const Name& name, std::size_t local, const Tensor& part,
                       const Name& part_name, int along) const;
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
  /// Begins, with one column of parts that no other rank knows the lengths of.
  void begin_all_to_all(DType dtype);
  void set_input(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);
  void set_output(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);
  // Wholes of the one column, of which the call works on a copy with one part behind the other. What `parts`
  // refers to outlives the call.
  void set_input_whole(std::size_t local, const Tensor& whole, const Name& name, const PartsInRows& parts);
  void set_output_whole(std::size_t local, const Tensor& whole, const Name& name, const PartsInRows& parts);
  /// Says of an exchange, in ascending order, that the output is the input. That is copied before, unless the
  /// plan sees to it that nothing is written before it has been sent.
  void set_in_place(std::size_t local, std::size_t column) { in_place_.push_back({local, column}); }

  /// Plans, announces the call to the others, and enqueues its work, and behind it what `then` does on the
  /// local members' streams. Throws Error(unsupported) before if the transport that was asked for cannot
  /// carry it.
  void run(const std::function<void()>& then = nullptr);
  /// The same where ranks know of their own members alone how much is moved. Once all have posted the call,
  /// `agree` is given the lengths of all members' parts (`set_length`) and completes the request; what it
  /// throws ends the team, as does all that fails afterwards. `has_rows_apart`: as the shape will say.
  void run_agreed(bool has_rows_apart, const std::function<void(std::span<const std::uint64_t>)>& agree);

  /// Carries out a call in several steps, all of which the ranks take alike: each is announced to the others
  /// and has a plan of its own. What fails when one has been announced ends the team.
  void run_steps(const std::function<void()>& steps);
  /// Begins one of them, which travels as the request says. All ranks give the same one, and the same
  /// `elements`. Their inputs and outputs are set then, as those of other calls.
  void begin_step(const Request& request, std::uint64_t elements, DType dtype);
  // Messages show these of a step that has begun, to tell it from another one.
  void show_list(std::span<const Tensor> tensors);
  /// Elements of each member's part.
  void show_parts(std::span<const std::int64_t> sizes);
  /// Keeps `memory`, which a local member's work in a step that has begun uses besides what is set.
  void keep(Tensor memory, std::size_t local) { kept_.push_back({std::move(memory), local}); }
  [[nodiscard]] backend::StreamRef stream_of(std::size_t local) const { return streams_[local]; }
  [[nodiscard]] Device device_of(std::size_t local) const { return context_.devices()[local]; }
  /// The tensor, or a dense copy of it, which is queued on its member's stream.
  [[nodiscard]] Tensor dense(const Tensor& tensor, const Name& name);
  /// Throws Error(unsupported) if the call is being captured, and the output is not contiguous.
  void check_dense_in_capture(const Tensor& output, const Name& name, std::size_t local);

  /// Posts a call that queues nothing, and returns its sequence number.
  [[nodiscard]] std::uint64_t post_without_work();

  // The functions that follow serve calls by `run_agreed`.
  void set_length(std::size_t local, std::uint64_t length) { signature_.lengths[local] = length; }
  [[nodiscard]] const transport::team::Membership& membership() const { return team_.membership(); }
  [[nodiscard]] Request& request() noexcept { return request_; }
  /// Among the ranks of the call that has been posted.
  [[nodiscard]] transport::team::TeamExchange exchange() {
    return transport::team::TeamExchange(team_, sequence_);
  }
  /// Ends the team, as what ranks have told one another does not agree, with Error(invalid_argument).
  [[noreturn]] void refuse_for_all(std::string_view what);

 private:
  void begin();
  [[nodiscard]] std::size_t columns() const noexcept { return request_.columns; }
  /// Members' own results need no copy of their own input that were not given, or are that input.
  void leave_own_copies_alone();
  /// Leaves the parts alone that an exchange of equal parts in place keeps, as they are where they belong.
  void leave_kept_parts_alone();
  void copy_inputs_in_place();
  enum class RowsTo : std::uint8_t { parts, whole };
  /// Queues the copy from a whole to its parts, one behind the other, or back.
  void copy_rows(RowsTo to, std::size_t local, const Tensor& whole, const Tensor& parts,
                 const PartsInRows& shape);
  /// Queues the copies from parts to wholes that are outputs.
  void fill_wholes();
  /// Where the part of a member begins in a whole, in bytes.
  [[nodiscard]] std::uint64_t start_of_part(std::size_t member, const Tensor& part) const;
  /// Finds the plan, and allocates what it needs.
  void plan();
  void post() { sequence_ = team_.calls().post(signature_, is_captured()); }
  void enqueue();
  void bind();
  /// Has what the rounds give opened by the others; what cannot be opened is replaced by a stand-in.
  void expose(const transport::team::RoundPlan& rounds);
  const std::byte* add_stand_in(std::size_t local, transport::BufferId buffer);
  /// Queues the copies from stand-ins to outputs.
  void copy_stand_ins_back();
  /// Carries out what has been posted.
  template <class Work>
  void carry_out_posted(const Work& work);
  void keep_memory() const;
  /// Describes the call to tools. `plan`: none where it queues nothing.
  [[nodiscard]] watching::WatchedCall watched(const transport::Plan* plan) const;
  [[nodiscard]] std::string call_in_words() const override { return to_string(signature_); }

  transport::team::Signature signature_;
  std::uint64_t shape_of_call_ = 0;  ///< of its signature, which all steps have in theirs
  std::uint64_t steps_ = 0;          ///< that have begun
  struct Kept {
    Tensor memory;
    std::size_t local = 0;
  };
  std::vector<Kept> kept_;
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
  struct Whole {
    std::size_t local = 0;
    Tensor whole;
    Tensor parts;  ///< one behind the other: an operand
    PartsInRows shape;
    bool is_output = false;
  };
  std::vector<Whole> wholes_;
  struct Operand {
    std::size_t local = 0;
    std::size_t column = 0;
  };
  std::vector<Operand> in_place_;  ///< inputs of an exchange that are outputs
};

}  // namespace tutti::collectives
