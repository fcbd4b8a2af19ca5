// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

namespace tutti {

/// A list argument; accepts `{a, b}`, vectors, arrays and spans. Valid for the full expression.
template <class T>
class ListOf : public std::span<const T> {
 public:
  ListOf() = default;
  ListOf(std::initializer_list<T> values) : std::span<const T>(values.begin(), values.size()) {}
  ListOf(std::span<const T> values) : std::span<const T>(values) {}
  ListOf(const std::vector<T>& values) : std::span<const T>(values) {}
  template <std::size_t Count>
  ListOf(const std::array<T, Count>& values) : std::span<const T>(values) {}
};

}  // namespace tutti
