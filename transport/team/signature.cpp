// SPDX-License-Identifier: Apache-2.0
#include "transport/team/signature.hpp"

#include <fmt/format.h>

namespace tutti::transport::team {

std::string to_string(const Signature& signature) {
  if (signature.are_messages)
    return fmt::format("{} {}", signature.tensors, signature.tensors == 1 ? "message" : "messages");
  const CollectiveTraits& traits = traits_of(signature.collective);
  std::string text(traits.name);
  if (!moves_tensors(signature.collective)) return text;
  if (signature.has_sizes && traits.travels_as == Collective::all_to_all)
    return text + fmt::format(" of {} in parts of given sizes", tutti::name_of(signature.dtype));
  text += fmt::format(" of {} {}", signature.elements, tutti::name_of(signature.dtype));
  if (traits.takes_operation) text += fmt::format(" by {}", tutti::name_of(signature.reduce_kind));
  if (traits.has_own_sizes) text += fmt::format(" per unit of dimension {}", signature.dim);
  if (signature.has_sizes) text += " in parts of given sizes";
  if (!traits.has_own_sizes && signature.dim != 0) text += fmt::format(" along dimension {}", signature.dim);
  if (signature.tensors != 1) text += fmt::format(" in {} tensors", signature.tensors);
  if (signature.root >= 0) text += fmt::format(", root {}", signature.root);
  return text + fmt::format(" (shapes {:08x})", signature.shape & 0xffffffffU);
}

}  // namespace tutti::transport::team
