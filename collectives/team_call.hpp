#pragma once

#include "collectives/arguments.hpp"
#include "collectives/disjoint.hpp"
#include "collectives/packing.hpp"
#include "collectives/team_problem.hpp"
#include "runtime.hpp"
#include "transport/plan_cache.hpp"
#include "transport/ranks/round_choice.hpp"
#include "transport/ranks/round_launcher.hpp"
#include "transport/ranks/round_plan.hpp"
#include "transport/ranks/signature.hpp"
#include "transport/ranks/team.hpp"
#include "transport/ranks/team_nccl.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
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

/// What one call fills and the next one fills again, without asking for memory anew.
struct TeamScratch {
  std::vector<backend::StreamRef> streams;  ///< of own members
  std::vector<TeamColumn> columns;
  std::vector<Tensor> inputs;         ///< by own member, then column; undefined where there is none
  std::vector<Tensor> outputs;        ///< likewise
  std::vector<std::byte*> addresses;  ///< by buffer of the plan's work
  transport::PlanKey key;             ///< of the plan
};

/// What the calls of one communicator share.
struct TeamContext {
  using Plans = std::unordered_map<transport::PlanKey, std::shared_ptr<const transport::ranks::RoundPlan>,
                                   transport::PlanKey::Hash>;

  /// Collective over the exchange.
  TeamContext(Exchange& exchange, const transport::ranks::Team::Settings& settings);

  /// Throws Error(unsupported) in a forked child. Returns itself.
  TeamContext& require_own_process();

  Runtime& runtime = Runtime::get();
  std::vector<Device> devices;
  transport::ranks::Team team;
  transport::ranks::RoundLauncher launcher;
  std::unique_ptr<transport::ranks::TeamNccl> nccl;  ///< nullptr: not used
  std::string nccl_refusal;                          ///< why not
  Plans plans;
  std::size_t plan_bytes = 0;  ///< that they take, about
  std::variant<std::shared_ptr<const transport::ranks::RoundPlan>, transport::ranks::Operation>
      last_plan;  ///< an operation: NCCL's
  TeamScratch scratch;
};

/// One call of a communicator: checks, signature, work, launch. One at a time; other threads' wait.
///
/// Checks come first, and queue nothing. With `begin` the call begins: what is queued from there on follows
/// earlier calls.
class TeamCall {
 public:
  using Describe = std::function<void(TeamProblem&)>;

  TeamCall(TeamContext& context, transport::ranks::Operation operation, StreamList streams);
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
  [[nodiscard]] std::size_t root() const noexcept { return root_; }

  // Checks.
  void one_per_member(std::size_t count, std::string_view argument) const;
  void on_member(const Tensor& tensor, const Name& name, std::size_t own_member) const;
  /// Own members' lists: on their devices, all of the same element types and sizes as the first.
  void check_alike(const MemberOperands& operands, std::string_view argument) const;
  void check_output(const Tensor& out, const Name& name, std::size_t own_member, const Tensor& like,
                    const Name& like_name) const;

  /// Begins, with the columns that all members have alike: one like each of the `tensors`, or one.
  void begin(std::span<const Tensor> tensors);
  void begin(const TeamColumn& column);
  [[nodiscard]] std::span<const TeamColumn> columns() const noexcept { return columns_; }
  void set_input(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name);
  void set_output(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name);
  [[nodiscard]] std::byte* input_address(std::size_t own_member, std::size_t column = 0) const {
    return address_of(inputs_[own_member * columns_.size() + column]);
  }
  [[nodiscard]] std::byte* output_address(std::size_t own_member, std::size_t column = 0) const {
    return address_of(outputs_[own_member * columns_.size() + column]);
  }

  /// Chooses the transport, and announces the call to the others. Throws Error(unsupported) if the transport
  /// that was asked for cannot carry it.
  void post();
  /// Of a call that queues nothing. Returns its sequence number.
  [[nodiscard]] std::uint64_t post_without_work();
  /// Plans, or finds the plan of an earlier call with the same columns, root and `more` numbers, and
  /// enqueues.
  void launch(const Describe& describe, std::span<const std::uint64_t> more = {});
  void launch_barrier();
  [[nodiscard]] transport::RanksTuning tuning() const noexcept;
  /// Members hand on what they have got or added, with low latency. Known once it is posted.
  [[nodiscard]] bool is_relayed() const noexcept { return rounds_.is_relayed; }

  /// A whole call: `parts` of own members, and the root's `whole`, along `dim`. Every rank knows the lengths
  /// of its own parts alone: the plan is made when all have told theirs.
  void cut_apart(const Tensor& whole, TensorList parts, int dim) {
    cut(whole, "tensor", parts, "out", dim, true);
  }
  void join(TensorList parts, const Tensor& whole, int dim) {
    cut(whole, "out", parts, "tensors", dim, false);
  }

 private:
  using PlanPtr = std::shared_ptr<const transport::ranks::RoundPlan>;

  void begin();
  void cut(const Tensor& whole, std::string_view whole_name, TensorList parts, std::string_view parts_name,
           int dim, bool apart);
  static std::byte* address_of(const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::byte*>(tensor.data()) : nullptr;
  }
  [[nodiscard]] Stream stream(std::size_t own_member) const {
    return StreamAccess::make(streams_[own_member]);
  }
  [[nodiscard]] std::span<std::byte* const> addresses() const;
  [[nodiscard]] PlanPtr plan(const Describe& describe, std::span<const std::uint64_t> more);
  /// Calls `make` for a plan that is not known.
  template <class Make>
  [[nodiscard]] PlanPtr cached(const transport::PlanKey& key, Make make);
  void enqueue(const PlanPtr& plan);
  /// Whether bytes go from member to member.
  [[nodiscard]] bool moves() const noexcept {
    using transport::ranks::Operation;
    return signature_.operation != Operation::barrier && signature_.operation != Operation::split;
  }
  /// Why NCCL does not carry a call; the same on all ranks.
  enum class NcclObjection : std::uint8_t {
    none,  ///< it does
    is_absent,
    nothing_moves,
    one_member,
    rows_apart,
    own_order,
    dtype,
    not_faster,
    small_tensors,
    not_connected,
  };
  /// Why it cannot.
  [[nodiscard]] NcclObjection nccl_refusal() const;
  /// Why it cannot or should not.
  [[nodiscard]] NcclObjection nccl_objection() const;
  [[nodiscard]] std::string to_words(NcclObjection objection) const;
  void enqueue_nccl();
  [[nodiscard]] std::vector<transport::ranks::NcclCall> nccl_calls() const;
  void add_transfers(std::vector<transport::ranks::NcclCall>& calls) const;
  void choose_transport();
  [[nodiscard]] transport::RanksPattern pattern() const;
  [[nodiscard]] transport::ranks::CallShape shape() const;
  [[nodiscard]] transport::ranks::TeamMeans means() const;
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
  std::array<std::optional<StreamGuard>, transport::ranks::most_own_members>
      guards_;  ///< nest: the last goes first
  std::vector<backend::StreamRef>& streams_;
  transport::ranks::Signature signature_;
  std::size_t root_ = 0;
  std::uint64_t sequence_ = 0;
  std::vector<TeamColumn>& columns_;
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
  bool by_nccl_ = false;
  transport::ranks::RoundChoice rounds_;
  // Of scatter and gather.
  Cut geometry_;
  std::vector<std::uint64_t> lengths_;  ///< of all members' parts, along the dimension
};

}  // namespace tutti::collectives
