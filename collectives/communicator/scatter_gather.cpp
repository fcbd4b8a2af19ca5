// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/cut.hpp"
#include "collectives/call/disjoint.hpp"
#include "collectives/call/packing.hpp"
#include "collectives/communicator/operations.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

/// Scatter and gather: a tensor on the root, cut into the members' parts.
namespace tutti::collectives {
namespace {

/// Each rank knows the lengths of its own members' parts alone.
void scatter_or_gather(TeamCall& call, const Named& whole_named, const Named& parts_named, int dim) {
  const bool apart = call.request().collective == Collective::scatter;
  const Tensor& whole = whole_named.tensors.front();
  const std::span<const Tensor> parts = parts_named.tensors;
  const auto part_name = [&](std::size_t local) { return Name(parts_named.argument, local); };
  const int along = call.checks().parts(MemberOperands::one_each(parts), parts_named.argument, dim);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (apart) call.arguments().writable(parts[i], part_name(i));
    call.signature().lengths[i] = static_cast<std::uint64_t>(parts[i].size(along));
  }
  const std::optional<std::size_t> owner = call.local_of(call.root());
  if (owner) {
    call.checks().like_part(whole, whole_named.argument, *owner, parts[0], part_name(0), along);
    if (!apart) call.arguments().writable(whole, whole_named.argument);
    require_disjoint(call.arguments(), std::span(apart ? &whole_named : &parts_named, 1),
                     std::span(apart ? &parts_named : &whole_named, 1), InPlace::forbidden);
    if (call.membership().rank_count() == 1) {
      const std::int64_t total =
          std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                          [&](std::int64_t sum, const Tensor& part) { return sum + part.size(along); });
      if (total != whole.size(along)) {
        call.arguments().fail("{} are {} long in all along dimension {}, expected {} as {}",
                              parts_named.argument, total, along, whole.size(along), whole_named.argument);
      }
    }
  }

  std::vector<std::int64_t> sizes(parts[0].sizes().begin(), parts[0].sizes().end());
  sizes[static_cast<std::size_t>(along)] = 1;
  std::uint64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= static_cast<std::uint64_t>(size);
  call.signature().set_alike(parts[0].dtype(), sizes, along);
  call.begin(elements, parts[0].dtype());
  const auto set = [&](bool is_input, std::size_t local, const Tensor& tensor, const Name& name) {
    is_input ? call.operands().set_input(local, 0, tensor, name)
             : call.operands().set_output(local, 0, tensor, name);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) set(!apart, i, parts[i], part_name(i));
  if (owner) set(apart, *owner, whole, whole_named.argument);

  const Cut geometry = cut_along(parts[0].sizes(), parts[0].dtype(), along);
  call.run_agreed(geometry.rows > 1, [&](std::span<const std::uint64_t> lengths) {
    const std::uint64_t total = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    if (owner && total != static_cast<std::uint64_t>(whole.size(along))) {
      call.refuse_for_all(fmt::format(
          "the members' {} are {} long in all along dimension {}, {} on root {} is {}", parts_named.argument,
          total, along, whole_named.argument, call.root(), whole.size(along)));
    }
    CutOperands& cut = call.request().cut();
    cut.rows = geometry.rows;
    cut.row_bytes = total * geometry.slab_bytes;
    std::uint64_t offset = 0;
    for (const std::uint64_t length : lengths) {
      cut.parts.push_back({offset, length * geometry.slab_bytes});
      offset += length * geometry.slab_bytes;
    }
  });
}

}  // namespace

void scatter_from_root(TeamCall& call, const Tensor& tensor, TensorList out, int root, int dim) {
  call.set_root(root);
  scatter_or_gather(call, Named::one("tensor", tensor), {"out", out}, dim);
}

void gather_to_root(TeamCall& call, TensorList tensors, const Tensor& out, int root, int dim) {
  call.set_root(root);
  std::vector<Tensor> memory;
  const TensorList parts = as_vectors(tensors, memory);
  scatter_or_gather(call, Named::one("out", out), {"tensors", parts}, dim);
}

}  // namespace tutti::collectives
