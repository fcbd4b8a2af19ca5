#include "tutti/collectives.hpp"
#include "tutti/error.hpp"

#include <array>
#include <string>

namespace tutti {

std::string_view name_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::broadcast:
      return "broadcast";
    case Collective::broadcast_coalesced:
      return "broadcast_coalesced";
    case Collective::reduce_add:
      return "reduce_add";
    case Collective::reduce_add_coalesced:
      return "reduce_add_coalesced";
    case Collective::scatter:
      return "scatter";
    case Collective::gather:
      return "gather";
    case Collective::all_reduce_add:
      return "all_reduce_add";
    case Collective::all_reduce_add_coalesced:
      return "all_reduce_add_coalesced";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter_add:
      return "reduce_scatter_add";
  }
  return "unknown";
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
