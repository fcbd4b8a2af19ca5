// SPDX-License-Identifier: Apache-2.0
// A model is many tensors, most of them small. Coalesced calls take the whole list as one operation, which a
// table of pieces makes as fast as one large tensor.

#include "tutti/tutti.hpp"

#include <iostream>
#include <vector>

int main() {
  // 100 layers, each a matrix and a bias, on device 0.
  std::vector<tutti::Tensor> parameters;
  for (int layer = 0; layer < 100; ++layer) {
    parameters.push_back(tutti::full({64, 64}, layer, {.device = 0}));
    parameters.push_back(tutti::full({64}, 0.5, {.device = 0}));
  }

  // replicas[d][t] is parameters[t] on device d; those of device 0 are the parameters themselves.
  const auto replicas = tutti::broadcast_coalesced(parameters, {0, 1});
  std::cout << parameters.size() << " tensors on " << replicas.size() << " devices by "
            << tutti::last_plan().transport << '\n';

  // Their sum, tensor by tensor, on device 0: as gradients of two devices would be added up.
  const std::vector<tutti::Tensor> sums = tutti::reduce_add_coalesced(replicas, tutti::Device(0));
  std::cout << "layer 99: " << sums[198].to_vector<float>().front() << ", bias "
            << sums[199].to_vector<float>().front() << '\n';
}
