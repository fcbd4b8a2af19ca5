// SPDX-License-Identifier: Apache-2.0
#include "function_exchange.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

namespace tutti::python {

FunctionExchange::FunctionExchange(int rank, int size, nb::callable all_gather, nb::object limit_waits)
    : rank_(rank), size_(size), all_gather_(std::move(all_gather)), limit_waits_(std::move(limit_waits)) {}

void FunctionExchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const nb::gil_scoped_acquire acquire;
  const nb::object gathered = all_gather_(nb::bytes(mine.data(), mine.size()));
  std::size_t rank = 0;
  for (const nb::handle one : gathered) take(nb::cast<nb::bytes>(one), rank++, all);
  if (rank != static_cast<std::size_t>(size_)) refuse("has " + std::to_string(rank) + " values", rank);
}

void FunctionExchange::limit_waits(std::chrono::milliseconds timeout) {
  const nb::gil_scoped_acquire acquire;
  if (!limit_waits_.is_none()) limit_waits_(static_cast<double>(timeout.count()) / 1000);
}

void FunctionExchange::take(const nb::bytes& bytes, std::size_t rank, std::span<std::byte> all) const {
  const std::size_t length = all.size() / static_cast<std::size_t>(size_);
  if (rank >= static_cast<std::size_t>(size_)) refuse("has more than that", rank);
  if (bytes.size() != length) refuse("has " + std::to_string(bytes.size()) + " bytes from a rank", rank);
  const auto* const first = static_cast<const std::byte*>(bytes.data());
  std::copy_n(first, length, all.begin() + static_cast<std::ptrdiff_t>(rank * length));
}

void FunctionExchange::refuse(const std::string& what, std::size_t rank) const {
  throw Error(ErrorCode::invalid_argument, "all_gather: the result " + what + " (rank " +
                                               std::to_string(rank) + "), expected " + std::to_string(size_) +
                                               " values of equal length, one from each rank");
}

}  // namespace tutti::python
