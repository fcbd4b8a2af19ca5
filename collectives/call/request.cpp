// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/request.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <variant>

namespace tutti::collectives {

std::uint64_t CopiedOperands::total_bytes() const noexcept {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

void CopiedOperands::add_to(transport::PlanKey& key) const {
  key.add_all(bytes);
  key.add_all(left_alone);
}

std::uint64_t ReducedOperands::total_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Column& column : columns) sum += column.bytes();
  return sum;
}

void ReducedOperands::add_to(transport::PlanKey& key) const {
  key.add(static_cast<std::uint64_t>(kind));
  key.add(columns.size());
  for (const auto& [elements, dtype] : columns) {
    key.add(elements);
    key.add(static_cast<std::uint64_t>(dtype));
  }
}

void CutOperands::add_to(transport::PlanKey& key) const {
  key.add(rows);
  key.add(row_bytes);
  key.add(parts.size());
  for (const auto& [offset, bytes] : parts) {
    key.add(offset);
    key.add(bytes);
  }
}

void Request::reset(Collective of, std::string_view called, std::size_t column_count, SpareOperands* spare) {
  clear();
  collective = of;
  name = called;
  columns = column_count;
  const auto leave = [spare]<class Operands>(Operands& left) {
    std::get<Operands>(*spare) = std::move(left);
  };
  const auto use = [&]<class Operands>(std::in_place_type_t<Operands> /*type*/) {
    if (std::holds_alternative<Operands>(operands)) return;
    if (spare != nullptr) std::visit(leave, operands);
    operands.emplace<Operands>(spare != nullptr ? std::move(std::get<Operands>(*spare)) : Operands());
  };
  const CollectiveTraits& traits = traits_of(of);
  if (traits.reduces) {
    use(std::in_place_type<ReducedOperands>);
  } else if (traits.has_own_sizes) {
    use(std::in_place_type<CutOperands>);
  } else {
    use(std::in_place_type<CopiedOperands>);
  }
}

void Request::clear() noexcept {
  collective = Collective::barrier;
  name = {};
  columns = 1;
  parts.clear();
  std::visit([](auto& each) { each.clear(); }, operands);
}

void Request::add_column(std::uint64_t elements, DType dtype) {
  if (ReducedOperands* const sums = std::get_if<ReducedOperands>(&operands)) {
    if (sums->columns.empty()) sums->columns.reserve(columns);
    sums->columns.push_back({elements, dtype});
  } else {
    copied().bytes.push_back(elements * size_of(dtype));
  }
}

bool Request::is_left_alone(std::uint64_t output) const {
  const CopiedOperands* const copies = std::get_if<CopiedOperands>(&operands);
  return copies != nullptr && std::ranges::binary_search(copies->left_alone, output);
}

bool Request::is_empty() const {
  return std::visit([](const auto& each) { return each.is_empty(); }, operands);
}

std::uint64_t Request::bytes() const {
  return std::visit([](const auto& each) { return each.total_bytes(); }, operands);
}

void Request::add_to(transport::PlanKey& key) const {
  key.add(columns);
  std::visit([&](const auto& each) { each.add_to(key); }, operands);
  key.add_all(parts);
}

std::size_t Request::words() const {
  return 2 + parts.size() + std::visit([](const auto& each) { return each.words(); }, operands);
}

}  // namespace tutti::collectives
