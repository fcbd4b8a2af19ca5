// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/operation.hpp"

#include "perf/operations/found_in.hpp"
#include "perf/operations/sizes.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// How many tensors a coalesced operation moves in a sweep over sizes.
constexpr int tensors_of_a_sweep = 16;

void append(Lists& lists, std::size_t list, const Tensor& tensor) {
  if (lists.size() <= list) lists.resize(list + 1);
  lists[list].push_back(tensor);
}

Tensor part_of(const Tensor& whole, const OutputPart& piece) {
  return piece.length ? whole.narrow(0, piece.start, *piece.length) : whole;
}

/// What stays of a name however it is written: of all_reduce_perf, AllReduce and all-reduce, allreduce.
std::string core_of(std::string_view name) {
  constexpr std::string_view suffix = "_perf";
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  std::string core = in_small_letters(name);
  std::erase_if(core, [](char letter) { return letter == '_' || letter == '-'; });
  return core;
}

using Alias = std::pair<std::string_view, std::string_view>;
/// What other libraries call the operations; by what these reduce, `-o` says.
constexpr std::array aliases{Alias{"bcast", "broadcast"},
                             Alias{"reduce", "reduce_add"},
                             Alias{"reducecoalesced", "reduce_add_coalesced"},
                             Alias{"allreduce", "all_reduce_add"},
                             Alias{"allreducecoalesced", "all_reduce_add_coalesced"},
                             Alias{"reducescatter", "reduce_scatter_add"},
                             Alias{"reducescatteraddcoalesced", "reduce_scatter_coalesced"},
                             Alias{"allgatherv", "all_gather_unequal"},
                             Alias{"reducescatterv", "reduce_scatter_add_unequal"},
                             Alias{"alltoallv", "all_to_all_unequal"}};

/// About as many rows as columns: rows are a power of two.
std::vector<std::int64_t> matrix_sizes(std::int64_t elements) {
  std::int64_t rows = 1;
  while (rows * rows * 4 <= elements) rows *= 2;
  return {rows, elements / rows};
}

}  // namespace

void Call::add_input(std::size_t list, const Tensor& tensor, const Content& content) {
  append(inputs, list, tensor);
  input_buffers.push_back({tensor, content});
}

void Call::add_output(std::size_t list, const Tensor& tensor, const std::vector<OutputPart>& pieces,
                      bool is_input) {
  append(outputs, list, tensor);
  for (const OutputPart& piece : pieces) {
    slots_.push_back({list, outputs[list].size() - 1, !is_input, piece});
    output_buffers.push_back({tensor.defined() ? part_of(tensor, piece) : Tensor(), piece.content});
    if (!is_input) poisonable.push_back(output_buffers.back());
  }
}

void Call::set_outputs(Lists results) {
  outputs = std::move(results);
  std::size_t next_poisonable = 0;
  for (std::size_t buffer = 0; buffer < slots_.size(); ++buffer) {
    const Slot& slot = slots_[buffer];
    output_buffers[buffer].tensor = part_of(outputs[slot.list][slot.index], slot.piece);
    if (slot.poisonable) poisonable[next_poisonable++].tensor = output_buffers[buffer].tensor;
  }
}

void Call::drop_outputs() {
  for (std::vector<Tensor>& list : outputs) std::ranges::fill(list, Tensor());
  for (Buffer& buffer : output_buffers) buffer.tensor = {};
  for (Buffer& buffer : poisonable) buffer.tensor = {};
}

std::vector<TensorSpec> payload_tensors(const Case& what, bool coalesced) {
  std::vector<TensorSpec> specs;
  if (!coalesced) {
    const auto elements = static_cast<std::int64_t>(what.bytes / size_of(what.dtype));
    specs.push_back(
        {what.dim == 0 ? std::vector<std::int64_t>{elements} : matrix_sizes(elements), what.dtype});
    return specs;
  }
  specs = what.tensors.empty() ? split_evenly(what.bytes, what.dtype, tensors_of_a_sweep) : what.tensors;
  for (TensorSpec& spec : specs) spec.dtype = spec.dtype.value_or(what.dtype);
  return specs;
}

Lists Operation::run_returning(const Call& call, const Case& what) const {
  if (row_.run_returning == nullptr)
    throw Error(ErrorCode::unsupported, fmt::format("{} returns no new tensors", name()));
  return row_.run_returning(call, what);
}

PersistentCollective Operation::bind(const Call& call, const Case& what) const {
  if (needs_communicator_)
    return what.members.communicator->persistent([this, call, what] { run(call, what); },
                                                 {.graph_per_device = !goes_around()});
  if (row_.bind == nullptr)
    throw Error(ErrorCode::unsupported, fmt::format("{} has no persistent form", name()));
  return row_.bind(call, what);
}

bool Operation::has(Placement placement) const {
  if (placement == Placement::out_of_place) return true;
  return placement == Placement::in_place ? row_.has_in_place : row_.run_returning != nullptr;
}

double Operation::bus_factor(int members) const {
  if (!collective()) return 1.0;
  // Unequal parts are as long as 1, 2, …, n units. Of such a gathered whole, the member with one unit
  // receives all others, more than anyone else; so it sends them of a summed one. In an exchange, where
  // everyone's own part is one unit, all do both.
  const int units = has_unequal_parts() ? members * (members + 1) / 2 : members;
  const double others = static_cast<double>(units - 1) / static_cast<double>(units);
  if (moves_parts(*collective())) return others;
  const bool is_all_reduce = traits().reduces && traits().output == CollectiveOutput::all;
  return is_all_reduce ? 2.0 * others : 1.0;
}

bool Operation::divides_evenly() const {
  return collective() && moves_parts(*collective()) && !has_unequal_parts() && !traits().has_root;
}

std::vector<Operation> operations_of(std::span<const OperationRow> rows, bool needs_communicator) {
  std::vector<Operation> all;
  for (const OperationRow& row : rows) all.emplace_back(row, needs_communicator);
  return all;
}

std::span<const Operation* const> collective_operations(Mode mode) {
  static const std::vector<const Operation*> of_ranks = [] {
    std::vector<const Operation*> all;
    for (const Operation& operation : operations_of_communicators()) all.push_back(&operation);
    return all;
  }();
  static const std::vector<const Operation*> of_one_process = [] {
    std::vector<const Operation*> all;
    for (const Operation& operation : operations_of_one_process()) {
      if (!operation.is_copy()) all.push_back(&operation);
    }
    for (const Operation* const operation : of_ranks) {
      const auto has_its_name = [&](const Operation* other) { return other->name() == operation->name(); };
      if (!operation->goes_around() && std::ranges::none_of(all, has_its_name)) all.push_back(operation);
    }
    return all;
  }();
  return mode == Mode::ranks ? of_ranks : of_one_process;
}

const Operation& copy_operation() {
  return operations_of_one_process().back();
}

const Operation* find_operation(std::string_view name, Mode mode) {
  const std::string core = core_of(name);
  const std::optional<std::string_view> alias = found_in(aliases, core);
  const std::string wanted = alias ? core_of(*alias) : core;
  for (const Operation* operation : collective_operations(mode)) {
    if (core_of(operation->name()) == wanted) return operation;
  }
  const bool is_copy = mode == Mode::single_process && core_of(copy_operation().name()) == wanted;
  return is_copy ? &copy_operation() : nullptr;
}

}  // namespace tutti::perf
