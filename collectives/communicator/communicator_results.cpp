// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/cut.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/operations.hpp"
#include "collectives/communicator/team_call.hpp"
#include "os/thread.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/layout.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Calls that make their outputs.
namespace tutti {
namespace {

using collectives::Arguments;
using collectives::MemberOperands;
using collectives::Name;
using collectives::Named;
using collectives::PartSizes;
using collectives::TeamCall;
using collectives::TeamContext;

/// The sizes of an output, given an input's.
std::vector<std::int64_t> output_sizes(const TeamCall& call, Collective collective, const Tensor& input,
                                       const Name& name) {
  std::vector<std::int64_t> sizes(input.sizes().begin(), input.sizes().end());
  const CollectiveTraits& traits = traits_of(collective);
  const auto members = static_cast<std::int64_t>(call.members());
  if (moves_parts(collective) && traits.output == CollectiveOutput::all) {
    if (sizes.empty()) sizes.push_back(1);
    if (__builtin_mul_overflow(sizes[0], members, &sizes[0])) {
      call.arguments().fail(
          "{} has sizes {}, expected fewer elements: those of {} members are more than 2^63 - 1", name,
          to_string(input.sizes()), members);
    }
  } else if (traits.reduces && traits.output == CollectiveOutput::part) {
    if (sizes.empty() || sizes[0] % members != 0) {
      call.arguments().fail("{} has sizes {}, expected a first dimension that {} members can share equally",
                            name, to_string(input.sizes()), members);
    }
    sizes[0] /= members;
  }
  return sizes;
}

/// Returns an output, or an undefined tensor for an undefined input, which the call refuses.
Tensor output_for(const TeamCall& call, Collective collective, const Tensor& input, const Name& name) {
  if (!input.defined()) return {};
  return empty(output_sizes(call, collective, input, name),
               {.dtype = input.dtype(), .device = input.device()});
}

/// The root's description of a tensor.
struct Told {
  DType dtype = DType::float32;
  int dims = 0;
  std::array<std::int64_t, max_dimensions> sizes{};

  Told() = default;
  explicit Told(const Tensor& tensor) : dtype(tensor.dtype()), dims(tensor.dim()) {
    std::ranges::copy(tensor.sizes(), sizes.begin());
  }
  [[nodiscard]] std::vector<std::int64_t> shape() const { return {sizes.begin(), sizes.begin() + dims}; }
};

/// Returns the root's description of its `tensors`; other ranks' tensors are not used.
std::vector<Told> hear_of(TeamContext& context, CollectiveForm form, const Named& tensors, int root) {
  TeamCall call(context, form, {});
  call.set_root(root);
  const transport::team::Membership& membership = context.team().membership();
  const std::size_t teller = membership.rank_of_member()[call.root()];
  std::vector<Told> mine;
  if (const std::optional<std::size_t> local = call.local_of(call.root())) {
    for (std::size_t t = 0; t < tensors.tensors.size(); ++t) {
      call.checks().on_member(tensors.tensors[t], tensors.name(t), *local);
      mine.emplace_back(tensors.tensors[t]);
    }
  }
  transport::team::TeamExchange exchange(context.team(), call.post_without_work());
  const std::size_t count = transport::team::gather(exchange, mine.size())[teller];
  mine.resize(count);
  const std::vector<Told> all = transport::team::gather_lists<Told>(exchange, mine);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(teller * count);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

/// Calls `work` after ranks have exchanged sizes for a call: others wait for this rank, so a failure ends the
/// team.
template <class Work>
auto having_told(TeamContext& context, CollectiveForm form, const Work& work) {
  try {
    return work();
  } catch (...) {
    context.team().abort().fail(fmt::format("cannot go on with {}", name_of(form)),
                                backend::Escaped::current());
    throw;
  }
}

Tensor flat(std::int64_t count, const Tensor& like) {
  return like.defined() ? empty({count}, {.dtype = like.dtype(), .device = like.device()}) : Tensor();
}

/// Flat, of `size` elements; or like the other tensor, but for its size along a dimension. What is no
/// dimension is refused by the call.
Tensor resized(std::int64_t size, std::optional<int> dim, const Tensor& like) {
  if (!dim || !like.defined()) return flat(size, like);
  const int along = *dim < 0 ? *dim + like.dim() : *dim;
  if (along < 0 || along >= like.dim()) return flat(size, like);
  std::vector<std::int64_t> sizes(like.sizes().begin(), like.sizes().end());
  sizes[static_cast<std::size_t>(along)] = size;
  return empty(sizes, {.dtype = like.dtype(), .device = like.device()});
}

/// A list of results for each local member.
using ResultLists = std::vector<std::vector<Tensor>>;

ResultLists made_like(TeamContext& context, CollectiveForm form, const ReduceOp& op,
                      const MemberOperands& inputs) {
  TeamCall call(context, form, {});
  call.checks().one_per_member(inputs.size(), "inputs");
  call.join_capture();
  ResultLists out(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t)
      out[i].push_back(output_for(call, form.collective, inputs[i][t], inputs.name("inputs", i, t)));
  }
  run_for_all(call, op, inputs, MemberOperands::lists(out));
  return out;
}

/// The root's; nothing in processes without it.
std::vector<Tensor> made_for_root(TeamContext& context, CollectiveForm form, const ReduceOp& op,
                                  const MemberOperands& inputs, int root) {
  TeamCall call(context, form, {});
  call.set_root(root);
  call.checks().one_per_member(inputs.size(), "inputs");
  call.join_capture();
  ResultLists out(inputs.size());
  const std::optional<std::size_t> owner = call.local_of(call.root());
  if (owner) {
    for (std::size_t t = 0; t < inputs[*owner].size(); ++t) {
      out[*owner].push_back(
          output_for(call, form.collective, inputs[*owner][t], inputs.name("inputs", *owner, t)));
    }
  }
  reduce_to_root(call, op, inputs, MemberOperands::lists(out), root);
  return owner ? std::move(out[*owner]) : std::vector<Tensor>();
}

}  // namespace

std::vector<Tensor> CommunicatorCollectives::made(TensorList inputs, const std::vector<std::int64_t>& sizes,
                                                  std::optional<int> dim) {
  TeamCall call(*impl().context, Collective::all_gather, {});
  call.checks().one_per_member(inputs.size(), "inputs");
  const std::int64_t total = call.checks().part_sizes(sizes, "sizes");
  call.join_capture();
  std::vector<Tensor> out;
  for (const Tensor& input : inputs) out.push_back(resized(total, dim, input));
  gather_to_all(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                PartSizes{.sizes = sizes, .dim = dim});
  return out;
}

std::vector<Tensor> CommunicatorCollectives::made(const ReduceOp& op, TensorList inputs,
                                                  const std::vector<std::int64_t>& sizes,
                                                  std::optional<int> dim) {
  TeamCall call(*impl().context, Collective::reduce_scatter, {});
  call.checks().one_per_member(inputs.size(), "inputs");
  static_cast<void>(call.checks().part_sizes(sizes, "sizes"));
  call.join_capture();
  std::vector<Tensor> out;
  for (const Tensor& input : inputs)
    out.push_back(resized(sizes[call.first_local() + out.size()], dim, input));
  reduce_and_scatter(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                     PartSizes{.sizes = sizes, .dim = dim});
  return out;
}

std::vector<Tensor> CommunicatorCollectives::made(TensorList inputs,
                                                  ListOf<std::vector<std::int64_t>> input_sizes,
                                                  ListOf<std::vector<std::int64_t>> out_sizes) {
  TeamCall call(*impl().context, Collective::all_to_all, {});
  call.checks().one_per_member(inputs.size(), "inputs");
  call.checks().one_per_member(out_sizes.size(), "out_sizes");
  call.join_capture();
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    out.push_back(flat(call.checks().part_sizes(out_sizes[i], Name("out_sizes", i)), inputs[i]));
  collectives::all_to_all(call, inputs, out, input_sizes, out_sizes);
  return out;
}

std::vector<Tensor> CommunicatorCollectives::made(Collective collective, const ReduceOp& op,
                                                  TensorList inputs) {
  std::vector<Tensor> results;
  for (std::vector<Tensor>& of_member :
       made_like(*impl().context, collective, op, MemberOperands::one_each(inputs)))
    results.push_back(std::move(of_member.front()));
  return results;
}

std::vector<std::vector<Tensor>> CommunicatorCollectives::made(Collective collective, const ReduceOp& op,
                                                               TensorLists inputs) {
  return made_like(*impl().context, coalesced(collective), op, MemberOperands::lists(inputs));
}

Tensor CommunicatorCollectives::result_of_root(Collective collective, const ReduceOp& op, TensorList inputs,
                                               int root) {
  std::vector<Tensor> result =
      made_for_root(*impl().context, collective, op, MemberOperands::one_each(inputs), root);
  return result.empty() ? Tensor() : std::move(result.front());
}

std::vector<Tensor> CommunicatorCollectives::results_of_root(Collective collective, const ReduceOp& op,
                                                             TensorLists inputs, int root) {
  return made_for_root(*impl().context, coalesced(collective), op, MemberOperands::lists(inputs), root);
}

std::vector<Tensor> CommunicatorCollectives::broadcast_with_sizes(const Tensor& tensor, int root) {
  const Told told =
      hear_of(*impl().context, Collective::broadcast, Named::one("tensor", tensor), root).front();
  return having_told(*impl().context, Collective::broadcast, [&] {
    std::vector<Tensor> out;
    for (const Device device : impl().context->devices())
      out.push_back(empty(told.shape(), {.dtype = told.dtype, .device = device}));
    broadcast(tensor, out, root);
    return out;
  });
}

std::vector<std::vector<Tensor>> CommunicatorCollectives::broadcast_coalesced_with_sizes(
    const std::vector<Tensor>& tensors, int root) {
  const std::vector<Told> told =
      hear_of(*impl().context, coalesced(Collective::broadcast), Named{"tensors", tensors}, root);
  return having_told(*impl().context, coalesced(Collective::broadcast), [&] {
    std::vector<std::vector<Tensor>> out;
    for (const Device device : impl().context->devices()) {
      std::vector<Tensor>& list = out.emplace_back();
      for (const Told& one : told) list.push_back(empty(one.shape(), {.dtype = one.dtype, .device = device}));
    }
    broadcast_coalesced(tensors, out, root);
    return out;
  });
}

std::vector<Tensor> CommunicatorCollectives::scatter_with_sizes(const Tensor& tensor, int root, int dim) {
  TeamContext& context = *impl().context;
  const Arguments arguments(context.require_own_process().runtime(), name_of(Collective::scatter));
  const bool is_owner = root >= 0 &&
                        root < static_cast<int>(impl().context->team().membership().member_count()) &&
                        context.team().membership().is_local(static_cast<std::size_t>(root));
  if (is_owner && tensor.defined()) static_cast<void>(arguments.dimension(dim, tensor.dim()));
  const Told told = hear_of(context, Collective::scatter, Named::one("tensor", tensor), root).front();
  return having_told(context, Collective::scatter, [&] {
    const auto along = static_cast<std::size_t>(arguments.dimension(dim, told.dims));
    const std::vector<std::int64_t> chunks =
        collectives::equal_chunks(told.sizes[along], impl().context->team().membership().member_count());
    std::vector<Tensor> out;
    for (const Device device : impl().context->devices()) {
      std::vector<std::int64_t> sizes = told.shape();
      sizes[along] = chunks[impl().context->team().membership().first_local() + out.size()];
      out.push_back(empty(sizes, {.dtype = told.dtype, .device = device}));
    }
    scatter(tensor, out, root, dim);
    return out;
  });
}

Tensor CommunicatorCollectives::gather_with_sizes(TensorList tensors, int root, int dim) {
  TeamContext& context = *impl().context;
  std::vector<std::int64_t> sizes;
  std::optional<std::size_t> owner;
  {
    TeamCall call(context, Collective::gather, {});
    call.set_root(root);
    owner = call.local_of(call.root());
    std::vector<Tensor> memory;
    const TensorList parts = collectives::as_vectors(tensors, memory);
    const int along = call.checks().parts(MemberOperands::one_each(parts), "tensors", dim);
    std::int64_t mine = 0;
    for (const Tensor& part : parts) mine += part.size(along);
    sizes.assign(parts[0].sizes().begin(), parts[0].sizes().end());
    sizes[static_cast<std::size_t>(along)] = 1;
    call.signature().set_alike(parts[0].dtype(), sizes, along);
    transport::team::TeamExchange exchange(context.team(), call.post_without_work());
    const std::vector<std::int64_t> lengths = transport::team::gather(exchange, mine);
    sizes[static_cast<std::size_t>(along)] = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  }
  return having_told(context, Collective::gather, [&] {
    const Tensor out =
        owner ? empty(sizes, {.dtype = tensors[0].dtype(), .device = impl().context->devices()[*owner]})
              : Tensor();
    gather(tensors, out, root, dim);
    return out;
  });
}

}  // namespace tutti
