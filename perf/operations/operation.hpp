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

/// The operations that tutti-perf knows. Everything is measured through the small interface of `Operation`.
namespace tutti::perf {

/// A contiguous tensor and its expected values.
struct Buffer {
  Tensor tensor;
  Content content;
};

/// Tensors in the form that the collectives take and return: for a coalesced operation one list per local
/// member, otherwise one list.
using Lists = std::vector<std::vector<Tensor>>;

/// The expected values of a part of an output: elements `start` to `start + length - 1` of the flat tensor;
/// without a length, all of it.
struct OutputPart {
  Content content;
  std::int64_t start = 0;
  std::optional<std::int64_t> length{};
};

/// One call with this process's buffers, which can be made many times.
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
  /// The lengths of unequal parts, in elements by member: all members' parts in `sizes`; for an exchange, by
  /// local member, the parts that it sends to each member and receives from each.
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> input_sizes;
  std::vector<std::vector<std::int64_t>> out_sizes;
  std::vector<Device> devices;  ///< of this process
  int root = 0;
  int partner = 0;
  int dim = 0;
  ReduceKind reduce_kind = ReduceKind::sum;
  bool repeatable = true;  ///< making the call again leaves the outputs as they are

  /// Returns the operation for a reduction.
  [[nodiscard]] ReduceOp operation() const { return operation_of(reduce_kind); }

  void add_input(std::size_t list, const Tensor& tensor, const Content& content);
  /// Adds an output of list `list`. Without a tensor, it is one that the call will return. An output that is
  /// also an input (`is_input`) is not poisoned.
  void add_output(std::size_t list, const Tensor& tensor, const std::vector<OutputPart>& pieces,
                  bool is_input = false);
  /// Takes the tensors that the call returned, list by list like `outputs`, as the outputs to check and to
  /// poison.
  void set_outputs(Lists results);
  /// Releases the tensors that `set_outputs` took.
  void drop_outputs();

 private:
  /// The place of an output buffer's tensor in `outputs`. Buffers in `poisonable` are among them, in their
  /// order.
  struct Slot {
    std::size_t list = 0;
    std::size_t index = 0;
    bool poisonable = false;
    OutputPart piece;
  };
  std::vector<Slot> slots_;
};

/// The properties of an operation. Functions that return new tensors return lists like `Call::outputs`.
struct OperationRow {
  std::string_view name;
  std::optional<CollectiveForm>
      form;  ///< the library's collective that it calls; none for copies and messages
  bool has_in_place = false;
  void (*run)(const Call&, const Case&) = nullptr;
  Lists (*run_returning)(const Call&, const Case&) = nullptr;  ///< nullptr: there is no such form
  /// Binds the call. nullptr if there is no such form, and for operations of communicators, which are all
  /// bound in the same way.
  PersistentCollective (*bind)(const Call&, const Case&) = nullptr;
  bool has_unequal_parts = false;
};

/// One operation: makes the buffers of a case, and makes the call. Has no state.
class Operation {
 public:
  /// Makes an operation from its row. `needs_communicator`: it is an operation of a communicator,
  /// `Members::communicator`.
  Operation(const OperationRow& row, bool needs_communicator)
      : row_(row), needs_communicator_(needs_communicator) {}

  [[nodiscard]] std::string_view name() const { return row_.name; }
  [[nodiscard]] std::optional<Collective> collective() const {
    return row_.form ? std::optional(row_.form->collective) : std::nullopt;
  }
  [[nodiscard]] bool is_coalesced() const { return row_.form && row_.form->takes_lists; }
  [[nodiscard]] bool needs_communicator() const { return needs_communicator_; }
  /// Returns the factor from algorithm bandwidth to bus bandwidth: the share of the payload that crosses the
  /// link of the member that sends or receives most.
  [[nodiscard]] double bus_factor(int members) const;

  /// Allocates the buffers of one call; their contents are unspecified.
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const;
  /// Enqueues the call, into its outputs, on the current streams.
  void run(const Call& call, const Case& what) const { row_.run(call, what); }
  /// Enqueues the form of the call that returns new tensors. Throws Error(unsupported) if there is none.
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const;
  /// Binds the call for repeated launches. Throws Error(unsupported) if there is no such form.
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const;
  /// Returns true if the operation has this placement.
  [[nodiscard]] bool has(Placement placement) const;

  /// Returns true for the copy from one device of this process to another, which is not a collective.
  [[nodiscard]] bool is_copy() const { return !row_.form && !needs_communicator_; }
  /// Returns true for messages from each member to the next one, which are not a collective.
  [[nodiscard]] bool goes_around() const { return !row_.form && needs_communicator_; }
  /// Returns the traits of the collective; the operation must be one.
  [[nodiscard]] const CollectiveTraits& traits() const { return traits_of(collective().value()); }
  [[nodiscard]] bool is(Collective other) const { return collective() == other; }
  [[nodiscard]] bool sums() const { return collective() && traits().reduces; }
  [[nodiscard]] bool has_root() const { return is_copy() || (collective() && traits().has_root); }
  [[nodiscard]] bool cuts_dimension() const { return collective() && traits().has_own_sizes; }
  /// Returns true if the operation moves tensors, and so has sizes.
  [[nodiscard]] bool moves_tensors() const { return !collective() || tutti::moves_tensors(*collective()); }
  /// Returns true if members' parts differ in length.
  [[nodiscard]] bool has_unequal_parts() const { return row_.has_unequal_parts; }
  /// Returns true if each tensor of the payload has the same number of elements for every member.
  [[nodiscard]] bool divides_evenly() const;

 private:
  OperationRow row_;
  bool needs_communicator_;
};

/// The way in which devices are driven: all by one process, or some by each rank.
enum class Mode : std::uint8_t { single_process, ranks };

/// Returns the operations that are measured over sizes, in the order in which `all` runs them. Those of one
/// process come first, then those that only a communicator has, with all devices of the process as members.
[[nodiscard]] std::span<const Operation* const> collective_operations(Mode mode);
/// Returns the copy from device to device of one process, which is measured for every pair.
[[nodiscard]] const Operation& copy_operation();
/// Returns the operation of this name in any spelling, or with this name in other libraries: AllReduce and
/// all_reduce_perf are all_reduce_add. nullptr for an unknown name.
[[nodiscard]] const Operation* find_operation(std::string_view name, Mode mode);

/// Returns the shapes of a case's payload, all with an element type: one tensor, or a coalesced list.
[[nodiscard]] std::vector<TensorSpec> payload_tensors(const Case& what, bool coalesced);

/// Returns the rows of a table as operations.
[[nodiscard]] std::vector<Operation> operations_of(std::span<const OperationRow> rows,
                                                   bool needs_communicator);
/// Returns a table of operations, each in a source file of its own, in the order in which they are measured.
/// The first table has methods of communicators; its last two are messages from each member to the next one,
/// and barriers. The second has free functions; its last one is the copy.
[[nodiscard]] std::span<const Operation> operations_of_communicators();
[[nodiscard]] std::span<const Operation> operations_of_one_process();

}  // namespace tutti::perf
