// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/packing.hpp"
#include "collectives/communicator/member_operands.hpp"
#include "collectives/communicator/team_context.hpp"
#include "stream/stream_access.hpp"
#include "transport/launch/operands.hpp"
#include "transport/plan/plan.hpp"
#include "transport/rounds/round_plan.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// The operands of one call of a team, and the memory that the call works on where that is not the caller's
/// own: dense copies, copies of wholes with one part behind the other, and stand-ins for memory that other
/// processes cannot open.
class TeamOperands {
 public:
  /// Fills the context's scratch. `streams` are those of the local members. All arguments outlive this.
  TeamOperands(TeamContext& context, Packing& packing, const std::vector<backend::StreamRef>& streams);

  /// Makes room for the columns of the context's request.
  void begin();
  /// Drops what an earlier step has set.
  void clear();

  void set_input(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);
  void set_output(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name);
  // Wholes of the one column, of which the call works on a copy with one part behind the other. What `parts`
  // refers to outlives the call.
  void set_input_whole(std::size_t local, const Tensor& whole, const Name& name, const PartsInRows& parts);
  void set_output_whole(std::size_t local, const Tensor& whole, const Name& name, const PartsInRows& parts);
  /// Marks an output of an exchange that is also the input; called in ascending order. The input is copied
  /// before, unless the plan writes nothing before it has been sent.
  void set_in_place(std::size_t local, std::size_t column) { in_place_.push_back({local, column}); }
  /// Keeps `memory`, which a local member's work uses besides what is set.
  void keep(Tensor memory, std::size_t local) { kept_.push_back({std::move(memory), local}); }
  /// Returns the tensor, or a dense copy of it, which is queued on its member's stream.
  [[nodiscard]] Tensor dense(const Tensor& tensor, const Name& name);
  /// Throws Error(unsupported) if the call is being captured, and the output is not contiguous.
  void check_dense_in_capture(const Tensor& output, const Name& name, std::size_t local);

  // The functions that follow are steps of a call's way to the streams, in their order.

  /// Excludes members' own results from the request's copies if they were not given or are their own input.
  void leave_own_copies_alone(std::size_t root);
  /// Excludes the parts from the request's copies that an exchange of equal parts in place leaves where they
  /// are.
  void leave_kept_parts_alone();
  /// Queues the copies of inputs that the plan would overwrite.
  void copy_inputs_in_place(const transport::Plan& plan);
  /// Returns what a launch takes, with the addresses of all that is set.
  [[nodiscard]] transport::Operands& bind();
  /// Asks the other ranks to open the operands that the rounds of call `sequence` expose. An operand that
  /// cannot be opened is replaced by a stand-in.
  void expose(const transport::team::RoundPlan& rounds, std::uint64_t sequence, bool is_captured);
  /// Replaces operands that other local members' devices have no access to, if the plan lets them use these.
  void replace_closed(const transport::Plan& plan);
  /// Returns true if an operand has been replaced.
  [[nodiscard]] bool has_stand_ins() const noexcept { return !stand_ins_.empty(); }
  /// Calls `visit(tensor, local)` for all memory that the work uses.
  template <class Visit>
  void visit_memory(const Visit& visit) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      visit(inputs_[i], i / columns());
      visit(outputs_[i], i / columns());
    }
    for (const StandIn& replaced : stand_ins_) visit(replaced.operand, replaced.local);
    for (const Whole& each : wholes_) visit(each.whole, each.local);
    for (const auto& [memory, local] : kept_) visit(memory, local);
  }
  /// Queues the copies to the caller's own outputs.
  void copy_back();

 private:
  [[nodiscard]] const transport::team::Membership& membership() const { return context_.team().membership(); }
  [[nodiscard]] std::size_t columns() const noexcept { return request_.columns; }
  [[nodiscard]] Stream stream(std::size_t local) const { return StreamAccess::make(streams_[local]); }
  enum class RowsTo : std::uint8_t { parts, whole };
  /// Queues the copy from a whole to its parts, one behind the other, or back.
  void copy_rows(RowsTo to, std::size_t local, const Tensor& whole, const Tensor& parts,
                 const PartsInRows& shape);
  const std::byte* add_stand_in(std::size_t local, transport::BufferId buffer);

  TeamContext& context_;
  Packing& packing_;
  const std::vector<backend::StreamRef>& streams_;
  Request& request_;
  std::vector<Tensor>& inputs_;
  std::vector<Tensor>& outputs_;
  transport::Operands& bound_;
  struct Kept {
    Tensor memory;
    std::size_t local = 0;
  };
  std::vector<Kept> kept_;
  /// A copy in shareable memory that replaces an operand whose memory others cannot open.
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
