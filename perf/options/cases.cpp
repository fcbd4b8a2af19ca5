// SPDX-License-Identifier: Apache-2.0
#include "perf/options/cases.hpp"

#include "perf/operations/payload.hpp"
#include "perf/operations/reductions.hpp"
#include "tutti/layout.hpp"
#include "tutti/reduce_types.hpp"

#include <optional>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// What is moved of a payload that was asked for: whole elements, and where it divides evenly as many for
/// each member.
std::size_t moved_bytes(const Operation& operation, const Case& what) {
  if (!operation.divides_evenly()) return payload_bytes(operation, what);
  std::size_t bytes = 0;
  for (const TensorSpec& tensor : payload_tensors(what, operation.is_coalesced())) {
    const TensorSpec whole = Payload(what.members.count, Parts::equal, tensor).whole();
    bytes += Layout(*whole.dtype, whole.sizes).nbytes();
  }
  return bytes;
}

/// Sizes of which nothing else is moved than of the one before are left out. Those of which nothing can be
/// moved stay: each is told.
std::vector<Case> of_different_payloads(const Operation& operation, Case what,
                                        const std::vector<std::size_t>& sizes) {
  if (!what.tensors.empty()) return {what};
  std::vector<Case> cases;
  std::optional<std::size_t> last;
  for (const std::size_t bytes : sizes) {
    what.bytes = bytes;
    if (too_small(operation, what).empty()) {
      const std::size_t moved = moved_bytes(operation, what);
      if (moved == last) continue;
      last = moved;
    }
    cases.push_back(what);
  }
  return cases;
}

/// Every ordered pair, at the smallest size for the latency and at the largest for the bandwidth.
std::vector<Case> pair_cases(const Operation& operation, const Case& base, const Options& options) {
  std::vector<std::size_t> sizes{options.sizes.begin};
  if (options.sizes.end != options.sizes.begin) sizes.push_back(options.sizes.end);
  std::vector<Case> cases;
  for (const Case& of_size : of_different_payloads(operation, base, sizes)) {
    for (int source = 0; source < base.members.count; ++source) {
      for (int target = 0; target < base.members.count; ++target) {
        if (source == target) continue;
        Case what = of_size;
        what.root = source;
        what.partner = target;
        cases.push_back(what);
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<Case> cases_of(const Operation& operation, const Options& options, const Members& members) {
  Case base;
  base.members = members;
  base.options = options.collective;
  base.first_element = options.first_element;
  const std::vector<std::size_t> sizes = sizes_of(options.sizes);
  std::vector<Case> cases;
  const auto add = [&cases](const std::vector<Case>& more) {
    cases.insert(cases.end(), more.begin(), more.end());
  };
  const std::vector<int> dims = operation.cuts_dimension() ? options.dims : std::vector<int>{0};
  const std::vector<ReduceKind> kinds =
      operation.sums() ? options.reductions : std::vector<ReduceKind>{ReduceKind::sum};
  const int first_root = operation.has_root() ? options.root.value_or(0) : 0;
  const int last_root = operation.has_root() ? options.root.value_or(members.count - 1) : 0;
  for (std::size_t type = 0; type < options.dtypes.size(); ++type) {
    base.dtype = options.dtypes[type];
    if (!operation.moves_tensors()) {
      cases.push_back(base);
      break;  // of whatever type
    }
    if (operation.is_coalesced() && !options.tensors.empty()) {
      base.tensors = options.tensors[type];
      base.tensors_name = options.tensors_name;
    }
    if (operation.is_copy()) {
      add(pair_cases(operation, base, options));
      continue;
    }
    for (const ReduceKind kind : kinds) {
      if (!has_operation(base.dtype, kind)) continue;
      base.reduce_kind = kind;
      for (const int dim : dims) {
        base.dim = dim;
        for (base.root = first_root; base.root <= last_root; ++base.root)
          add(of_different_payloads(operation, base, sizes));
      }
    }
  }
  return cases;
}

std::string in_words(const Operation& operation, const Case& what) {
  std::string text(operation.name());
  if (!operation.moves_tensors()) return text;
  text += fmt::format(" {} {}", what.tensors.empty() ? format_size(what.bytes) : what.tensors_name,
                      name_of(what.dtype));
  if (what.reduce_kind != ReduceKind::sum) text += fmt::format(" {}", name_of_reduction(what.reduce_kind));
  if (operation.has_root()) text += fmt::format(" root {}", what.root);
  if (operation.is_copy()) text += fmt::format(" to {}", what.partner);
  if (what.dim != 0) text += fmt::format(" dim {}", what.dim);
  return text;
}

std::size_t payload_bytes(const Operation& operation, const Case& what) {
  std::size_t bytes = 0;
  for (const TensorSpec& spec : payload_tensors(what, operation.is_coalesced())) {
    bytes += Layout(*spec.dtype, spec.sizes).nbytes();
  }
  return bytes;
}

std::size_t operand_bytes(const Operation& operation, const Case& what) {
  std::size_t bytes = 0;
  for (const TensorSpec& spec : payload_tensors(what, operation.is_coalesced()))
    bytes += OperandMemory::taken_by(Layout(*spec.dtype, spec.sizes).nbytes() +
                                     static_cast<std::size_t>(what.first_element) * size_of(*spec.dtype));
  return 2 * bytes;  // no member has more than an input and an output of each
}

std::string too_small(const Operation& operation, const Case& what) {
  if (!what.tensors.empty() || what.bytes == 0) return "";
  const bool divides = operation.divides_evenly();
  const std::size_t parts = divides ? static_cast<std::size_t>(what.members.count) : 1;
  const std::size_t tensors = divides ? payload_tensors(what, operation.is_coalesced()).size() : 1;
  const std::size_t least = parts * tensors * size_of(what.dtype);
  if (what.bytes >= least) return "";
  std::string one = fmt::format("one {} element", name_of(what.dtype));
  if (parts > 1) one += fmt::format(" for each of {} devices", parts);
  if (tensors > 1) one += fmt::format(" in each of {} tensors", tensors);
  return fmt::format("{} {} less than {} ({})", what.bytes, what.bytes == 1 ? "byte is" : "bytes are", one,
                     least);
}

}  // namespace tutti::perf
