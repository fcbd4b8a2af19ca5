#include "transport/ranks/signature.hpp"

#include <array>

#include <fmt/format.h>

namespace tutti::transport::ranks {

std::string_view name_of(Operation operation) noexcept {
  constexpr std::array<std::string_view, 12> names{"barrier",
                                                   "broadcast",
                                                   "broadcast_coalesced",
                                                   "reduce_add",
                                                   "reduce_add_coalesced",
                                                   "all_reduce_add",
                                                   "all_reduce_add_coalesced",
                                                   "all_gather",
                                                   "reduce_scatter_add",
                                                   "scatter",
                                                   "gather",
                                                   "split"};
  return names[static_cast<std::size_t>(operation)];
}

std::string to_string(const Signature& signature) {
  std::string text(name_of(signature.operation));
  if (signature.operation == Operation::barrier || signature.operation == Operation::split) return text;
  text += fmt::format(" of {} {}", signature.elements, tutti::name_of(signature.dtype));
  if (has_own_numbers(signature.operation)) text += fmt::format(" per unit of dimension {}", signature.dim);
  if (signature.tensors != 1) text += fmt::format(" in {} tensors", signature.tensors);
  if (signature.root >= 0) text += fmt::format(", root {}", signature.root);
  return text + fmt::format(" (shapes {:08x})", signature.shape & 0xffffffffU);
}

}  // namespace tutti::transport::ranks
