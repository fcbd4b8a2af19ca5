// SPDX-License-Identifier: Apache-2.0
#include "tutti/tutti.hpp"

#include <iostream>

int main() {
  const tutti::Tensor weights = tutti::full({1024, 1024}, 0.5, {.device = 0});
  const auto replicas = tutti::broadcast(weights, {0, 1});  // one per device; entry 0 is `weights`
  const tutti::Tensor sum = tutti::reduce_add(replicas, tutti::Device(0));  // elementwise, in order
  std::cout << sum.to_vector<float>()[0] << " by " << tutti::last_plan().transport << '\n';  // "1 by p2p"
}
