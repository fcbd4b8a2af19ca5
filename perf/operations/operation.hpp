// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/values.hpp"
#include "tutti/persistent.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// The operations tutti-perf knows, behind one small interface over which everything is measured.
namespace tutti::perf {

/// A contiguous tensor and the values that belong in it.
struct Buffer {
  Tensor tensor;
  Content content;
};

/// Tensors as the collectives take and return them: of a coalesced operation one list per local member,
/// otherwise one list.
using Lists = std::vector<std::vector<Tensor>>;

/// What an output must hold from one place on: elements `start` to `start + length - 1` of the flat tensor;
/// without a length, all of it.
struct OutputPart {
  Content content;
  std::int64_t start = 0;
  std::optional<std::int64_t> length{};
};

/// One call with this process's buffers, ready to be made many times.
struct Call {
  Lists inputs;
  Lists outputs;
  std::vector<Buffer> input_buffers;    ///< all inputs and what to fill them with
  std::vector<Buffer> output_buffers;   ///< all outputs and what they must hold afterwards
  std::vector<Buffer> poisonable;       ///< the outputs to poison, before the inputs are filled
  std::size_t bytes = 0;                ///< payload
  std::int64_t count = 0;               ///< elements of the payload
  std::size_t tensors = 1;              ///< of the payload
  std::vector<std::size_t> part_bytes;  ///< scatter and gather: the chunk of every member
  /// Of unequal parts, in elements by member: all members' parts, or of an exchange, by local member, what it
  /// sends to each and receives from each.
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> input_sizes;
  std::vector<std::vector<std::int64_t>> out_sizes;
  std::vector<Device> devices;  ///< of this process
  int root = 0;
  int partner = 0;
  int dim = 0;
  ReduceKind reduce_kind = ReduceKind::sum;
  bool repeatable = true;  ///< making the call again leaves the outputs as they are

  /// What a reduction is told.
  [[nodiscard]] ReduceOp operation() const { return operation_of(reduce_kind); }

  void add_input(std::size_t list, const Tensor& tensor, const Content& content);
  /// Adds an output of list `list`, or one that the call will return: without a tensor. What is an input, too
  /// (`is_input`), is not poisoned.
  void add_output(std::size_t list, const Tensor& tensor, const std::vector<OutputPart>& pieces,
                  bool is_input = false);
  /// Takes what the call returned, list by list like `outputs`, as the outputs to check and to poison.
  void set_outputs(Lists results);
  /// Lets go of what `set_outputs` took.
  void drop_outputs();

 private:
  /// Where an output buffer's tensor lies in `outputs`; `poisonable` ones, in their order, are among them.
  struct Slot {
    std::size_t list = 0;
    std::size_t index = 0;
    bool poisonable = false;
    OutputPart piece;
  };
  std::vector<Slot> slots_;
};

/// What tells one operation from another. Of the forms that return new tensors, lists are like
/// `Call::outputs`.
struct OperationRow {
  std::string_view name;
  std::optional<CollectiveForm>
      form;  ///< the library's collective that it calls; none for copies and messages
  bool has_in_place = false;
  void (*run)(const Call&, const Case&) = nullptr;
  Lists (*run_returning)(const Call&, const Case&) = nullptr;  ///< nullptr: there is no such form
  /// nullptr: there is no such form, or it is a communicator's, which has one for all calls.
  PersistentCollective (*bind)(const Call&, const Case&) = nullptr;
  bool has_unequal_parts = false;
};

/// One operation: makes the buffers of a case, and makes the call. Stateless.
class Operation {
 public:
  /// `needs_communicator`: it is a communicator's, `Members::communicator`.
  Operation(const OperationRow& row, bool needs_communicator)
      : row_(row), needs_communicator_(needs_communicator) {}

  [[nodiscard]] std::string_view name() const { return row_.name; }
  [[nodiscard]] std::optional<Collective> collective() const {
    return row_.form ? std::optional(row_.form->collective) : std::nullopt;
  }
  [[nodiscard]] bool is_coalesced() const { return row_.form && row_.form->takes_lists; }
  [[nodiscard]] bool needs_communicator() const { return needs_communicator_; }
  /// What algorithm bandwidth is multiplied with to compare with a link's: the share of the payload that must
  /// cross the link of the member with most to send or to receive.
  [[nodiscard]] double bus_factor(int members) const;

  /// Allocates the buffers of one call; their contents are unspecified.
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const;
  /// Enqueues the call, into its outputs, on the current streams.
  void run(const Call& call, const Case& what) const { row_.run(call, what); }
  /// Enqueues the form of the call that returns new tensors. Throws Error(unsupported) where there is none.
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const;
  /// Binds the call for repeated launches. Throws Error(unsupported) where there is no such form.
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const;
  /// Whether the operation has that form.
  [[nodiscard]] bool has(Placement placement) const;

  /// Whether it copies from one device of this process to another: no collective.
  [[nodiscard]] bool is_copy() const { return !row_.form && !needs_communicator_; }
  /// Whether each member sends to the next one and receives from the one before: no collective.
  [[nodiscard]] bool goes_around() const { return !row_.form && needs_communicator_; }
  /// Of a collective.
  [[nodiscard]] const CollectiveTraits& traits() const { return traits_of(collective().value()); }
  [[nodiscard]] bool is(Collective other) const { return collective() == other; }
  [[nodiscard]] bool sums() const { return collective() && traits().reduces; }
  [[nodiscard]] bool has_root() const { return is_copy() || (collective() && traits().has_root); }
  [[nodiscard]] bool cuts_dimension() const { return collective() && traits().has_own_sizes; }
  /// Whether there are tensors, and so sizes.
  [[nodiscard]] bool moves_tensors() const { return !collective() || tutti::moves_tensors(*collective()); }
  /// Whether members' parts differ in length.
  [[nodiscard]] bool has_unequal_parts() const { return row_.has_unequal_parts; }
  /// Whether each tensor of the payload has the same number of elements for every member.
  [[nodiscard]] bool divides_evenly() const;

 private:
  OperationRow row_;
  bool needs_communicator_;
};

/// Whether one process drives all devices, or several have some each.
enum class Mode : std::uint8_t { single_process, ranks };

/// What is measured over sizes, in the order `all` runs it. The collectives of one process are followed by
/// those that a communicator alone does, of all its devices.
[[nodiscard]] std::span<const Operation* const> collective_operations(Mode mode);
/// Copies from device to device of one process, measured for every pair.
[[nodiscard]] const Operation& copy_operation();
/// By its name, however it is written, or by what other libraries call it: AllReduce and all_reduce_perf are
/// all_reduce_add. nullptr for an unknown name.
[[nodiscard]] const Operation* find_operation(std::string_view name, Mode mode);

/// The shapes of a case's payload, all with an element type: one tensor, or a coalesced list.
[[nodiscard]] std::vector<TensorSpec> payload_tensors(const Case& what, bool coalesced);

/// The rows of a table as operations.
[[nodiscard]] std::vector<Operation> operations_of(std::span<const OperationRow> rows,
                                                   bool needs_communicator);
/// The tables of operations, one per source file: as methods of communicators, in the order they are
/// measured, of which the last two are messages from each member to the next one and barriers; and as free
/// functions, of which the last one is the copy.
[[nodiscard]] std::span<const Operation> operations_of_communicators();
[[nodiscard]] std::span<const Operation> operations_of_one_process();

}  // namespace tutti::perf
