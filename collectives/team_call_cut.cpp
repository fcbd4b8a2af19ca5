// SPDX-License-Identifier: Apache-2.0
#include "collectives/cut.hpp"
#include "collectives/disjoint.hpp"
#include "collectives/team_call.hpp"
#include "transport/select.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

/// Scatter and gather: a tensor on the root, cut into the members' parts.
namespace tutti::collectives {

void TeamCall::cut(const Tensor& whole, std::string_view whole_name, TensorList given,
                   std::string_view parts_name, int dim) {
  const bool apart = request_.collective == Collective::scatter;
  std::vector<Tensor> memory;
  const TensorList parts = apart ? given : as_vectors(given, memory);
  one_per_member(parts.size(), parts_name);
  arguments_.usable(parts[0], Name(parts_name, 0));
  const int along = arguments_.dimension(dim, parts[0].dim());
  const auto at = static_cast<std::size_t>(along);
  std::vector<std::int64_t> sizes(parts[0].sizes().begin(), parts[0].sizes().end());
  const auto check = [&](const Tensor& tensor, const Name& name, std::size_t local) {
    on_member(tensor, name, local);
    arguments_.same_dtype(tensor, name, parts[0].dtype(), Name(parts_name, 0));
    if (tensor.dim() != parts[0].dim()) {
      arguments_.fail("{} has {} dimensions, expected {} as {}[0]", name, tensor.dim(), parts[0].dim(),
                      parts_name);
    }
    sizes[at] = tensor.size(along);
    if (std::ranges::equal(tensor.sizes(), sizes)) return;
    arguments_.same_sizes(tensor, name, sizes, fmt::format("{}[0] outside dimension {}", parts_name, along));
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i], Name(parts_name, i), i);
    if (apart) arguments_.writable(parts[i], Name(parts_name, i));
    signature_.lengths[i] = static_cast<std::uint64_t>(parts[i].size(along));
  }
  const std::optional<std::size_t> owner = local_of(root());
  if (owner) {
    check(whole, whole_name, *owner);
    if (!apart) arguments_.writable(whole, whole_name);
    const Named whole_named = Named::one(whole_name, whole);
    const Named parts_named{parts_name, parts};
    require_disjoint(arguments_, std::span(apart ? &whole_named : &parts_named, 1),
                     std::span(apart ? &parts_named : &whole_named, 1), InPlace::forbidden);
    if (team_.membership().rank_count() == 1) {
      const std::int64_t total =
          std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                          [&](std::int64_t sum, const Tensor& part) { return sum + part.size(along); });
      if (total != whole.size(along)) {
        arguments_.fail("{} are {} long in all along dimension {}, expected {} as {}", parts_name, total,
                        along, whole.size(along), whole_name);
      }
    }
  }

  sizes[at] = 1;
  std::uint64_t elements = 1;
  for (const std::int64_t size : sizes) {
    elements *= static_cast<std::uint64_t>(size);
    signature_.add_to_shape(static_cast<std::uint64_t>(size));
  }
  begin(elements, parts[0].dtype());
  signature_.dim = static_cast<std::int16_t>(along);
  const auto set = [&](bool is_input, std::size_t local, const Tensor& tensor, const Name& name) {
    is_input ? set_input(local, 0, tensor, name) : set_output(local, 0, tensor, name);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) set(!apart, i, parts[i], Name(parts_name, i));
  if (owner) set(apart, *owner, whole, whole_name);
  const Cut geometry = cut_along(parts[0].sizes(), parts[0].dtype(), along);
  transport::Problem outline = context_.outline_of(request_, root());
  outline.is_captured = is_captured();
  outline.is_outline = true;
  outline.shape.has_rows_apart = geometry.rows > 1;
  transport::require_possible(outline, context_.means());
  post();

  complete([&] {
    const std::vector<std::uint64_t> lengths = team_.calls().agree(sequence_, signature_);
    const std::uint64_t total = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    if (owner && total != static_cast<std::uint64_t>(whole.size(along))) {
      team_.abort().set(
          ErrorCode::invalid_argument,
          fmt::format("{} #{}: the members' {} are {} long in all along dimension {}, {} on root {} is {}",
                      name_of(signature_.collective), sequence_, parts_name, total, along, whole_name, root(),
                      whole.size(along)));
      team_.abort().require_running();
    }
    request_.begin_cut(geometry.rows, total * geometry.slab_bytes, lengths.size());
    std::uint64_t offset = 0;
    for (const std::uint64_t length : lengths) {
      request_.add_part(offset, length * geometry.slab_bytes);
      offset += length * geometry.slab_bytes;
    }
  });
}

}  // namespace tutti::collectives
