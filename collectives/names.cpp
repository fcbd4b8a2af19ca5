// SPDX-License-Identifier: Apache-2.0
#include "tutti/collectives.hpp"
#include "tutti/error.hpp"

#include <array>
#include <string>

namespace tutti {

std::string_view name_of(Collective collective) noexcept {
  return traits_of(collective).name;
}

std::string_view name_of(TransportKind kind) noexcept {
  switch (kind) {
    case TransportKind::automatic:
      return "auto";
    case TransportKind::p2p:
      return "p2p";
    case TransportKind::nccl:
      return "nccl";
    case TransportKind::staged:
      return "staged";
  }
  return "unknown";
}

TransportKind parse_transport(std::string_view text) {
  constexpr std::array kinds{TransportKind::automatic, TransportKind::p2p, TransportKind::nccl,
                             TransportKind::staged};
  for (const TransportKind kind : kinds) {
    if (text == name_of(kind)) return kind;
  }
  throw Error(ErrorCode::invalid_argument,
              "parse_transport: text is \"" + std::string(text) + "\", expected auto, p2p, nccl or staged");
}

}  // namespace tutti
