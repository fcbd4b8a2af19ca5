// SPDX-License-Identifier: Apache-2.0
#include "backend/numbers/reduction.hpp"
#include "jit/jit_source.hpp"
#include "tutti/collectives.hpp"
#include "tutti/error.hpp"
#include "tutti/reduce_types.hpp"

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

std::string_view name_of(ReduceKind kind) noexcept {
  constexpr std::array<std::string_view, all_reduce_kinds.size() + 1> names{
      "sum", "avg", "premul_sum", "min", "max", "prod", "band", "bor", "bxor", "compiled"};
  const auto index = static_cast<std::size_t>(kind);
  return index < names.size() ? names[index] : "unknown";
}

bool has_operation(DType dtype, ReduceKind kind) noexcept {
  if (kind == ReduceKind::compiled) return is_jit_dtype(dtype);
  return visit_dtype(dtype, [kind]<class T>() { return backend::has_operation<T>(kind); });
}

ReduceKind parse_reduce_kind(std::string_view text) {
  for (const ReduceKind kind : all_reduce_kinds) {
    if (text == name_of(kind)) return kind;
  }
  throw Error(ErrorCode::invalid_argument,
              "parse_reduce_kind: text is \"" + std::string(text) +
                  "\", expected sum, avg, premul_sum, min, max, prod, band, bor or bxor");
}

}  // namespace tutti
