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
#include <utility>
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

  void add_input(std::size_t list, const Tensor& tensor, const Content& content);
  void add_output(std::size_t list, const Tensor& tensor, const Content& content);
  /// An output that is an input: not poisoned.
  void add_aliasing_output(std::size_t list, const Tensor& tensor, const Content& content);
  /// An output whose pieces have values of their own, which are given as buffers. Those that are inputs are
  /// not poisoned. It cannot be one that the call returns.
  void add_output_in_pieces(std::size_t list, const Tensor& tensor, const std::vector<Buffer>& pieces,
                            bool is_input);
  /// An output that the call will return.
  void expect_output(std::size_t list, const Content& content) { add_output(list, Tensor(), content); }
  /// One that it will return, flat, with values of their own in pieces of these lengths: first a piece's
  /// values, then their number.
  void expect_output_in_pieces(std::size_t list, const std::vector<std::pair<Content, std::int64_t>>& pieces);
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
    std::int64_t start = 0;
    std::optional<std::int64_t> length{};  ///< of a piece that starts there; nothing: all of it
  };
  std::vector<Slot> slots_;
};

/// One operation: makes the buffers of a case, and makes the call. Stateless.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The library's collective that it calls; nothing for copies and messages.
  [[nodiscard]] virtual std::optional<CollectiveForm> form() const = 0;
  [[nodiscard]] std::optional<Collective> collective() const {
    return form() ? std::optional(form()->collective) : std::nullopt;
  }
  [[nodiscard]] bool is_coalesced() const { return form() && form()->takes_lists; }
  /// Whether it is a communicator's, `Members::communicator`.
  [[nodiscard]] virtual bool needs_communicator() const { return false; }
  /// What algorithm bandwidth is multiplied with to compare with a link's: the share of the payload that must
  /// cross the link of the member with most to send or to receive.
  [[nodiscard]] double bus_factor(int members) const;

  /// Allocates the buffers of one call; their contents are unspecified.
  [[nodiscard]] virtual Call prepare(const Case& what, Placement placement) const = 0;
  /// Enqueues the call, into its outputs, on the current streams.
  virtual void run(const Call& call, const Case& what) const = 0;
  /// Enqueues the form of the call that returns new tensors. Throws Error(unsupported) where there is none.
  [[nodiscard]] virtual Lists run_returning(const Call& call, const Case& what) const = 0;
  /// Binds the call for repeated launches. Throws Error(unsupported) where there is no such form.
  [[nodiscard]] virtual PersistentCollective bind(const Call& call, const Case& what) const = 0;
  /// Whether the operation has that form.
  [[nodiscard]] virtual bool has([[maybe_unused]] Placement placement) const { return true; }

  /// Whether it copies from one device of this process to another: no collective.
  [[nodiscard]] virtual bool is_copy() const { return false; }
  /// Whether each member sends to the next one and receives from the one before: no collective.
  [[nodiscard]] virtual bool goes_around() const { return false; }
  /// Of a collective.
  [[nodiscard]] const CollectiveTraits& traits() const { return traits_of(collective().value()); }
  [[nodiscard]] bool is(Collective other) const { return collective() == other; }
  [[nodiscard]] bool sums() const { return collective() && traits().reduces; }
  [[nodiscard]] bool has_root() const { return is_copy() || (collective() && traits().has_root); }
  [[nodiscard]] bool cuts_dimension() const { return collective() && traits().has_own_sizes; }
  /// Whether there are tensors, and so sizes.
  [[nodiscard]] bool moves_tensors() const { return !collective() || tutti::moves_tensors(*collective()); }
  /// Whether members' parts differ in length.
  [[nodiscard]] virtual bool has_unequal_parts() const { return false; }
  /// Whether each tensor of the payload has the same number of elements for every member.
  [[nodiscard]] bool divides_evenly() const;
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

/// The groups of operations, one per source file.
namespace operations {
[[nodiscard]] const Operation& broadcast();
[[nodiscard]] const Operation& broadcast_coalesced();
[[nodiscard]] const Operation& reduce_add();
[[nodiscard]] const Operation& reduce_add_coalesced();
[[nodiscard]] const Operation& scatter();
[[nodiscard]] const Operation& gather();
[[nodiscard]] const Operation& sendrecv();
/// All collectives of a communicator that move tensors.
[[nodiscard]] std::span<const Operation* const> of_communicators();
/// Called sendrecv, too: a communicator's messages, which go from each member to the next one.
[[nodiscard]] const Operation& messages_around();
[[nodiscard]] const Operation& barrier();
}  // namespace operations

}  // namespace tutti::perf
