// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/compiled_reduction.hpp"

#include "tutti/error.hpp"
#include "tutti/jiterator.hpp"
#include "tutti/tensor.hpp"

#include <iostream>

namespace tutti::test {

bool can_compile() {
  static const bool can = [] {
    try {
      const Tensor one = zeros({1}, {.device = 0});
      static_cast<void>(create_jit_fn("template <class T> T same(T a) { return a; }")({one}));
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      std::cout << "nothing is compiled: " << error.what() << std::endl;
      return false;
    }
  }();
  return can;
}

const ReduceOp& compiled_difference() {
  static const ReduceOp difference =
      ReduceOp::compiled("template <typename T> T difference(T a, T b) { return a - b; }");
  return difference;
}

}  // namespace tutti::test
