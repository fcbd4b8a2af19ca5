// SPDX-License-Identifier: Apache-2.0
// Data-parallel training: parameters are replicated; every step cuts the batch, computes gradients on every
// device, sums them for all and updates everywhere (see training.cpp). The result is compared with
// training on one device: it is the same, bit for bit (see linear_model.hpp for why).

#include "training.hpp"
#include "tutti/tutti.hpp"

#include <iostream>
#include <vector>

int main() {
  const training::Data data = training::make_data();
  std::vector<tutti::Device> devices;
  for (int device = 0; device < tutti::device_count(); ++device) devices.emplace_back(device);

  const training::Parameters together = training::train(data, devices, training::steps_to_converge);
  const training::Parameters alone = training::train(data, {0}, training::steps_to_converge);

  const bool same = together == alone;
  const bool converged = training::has_converged(together);
  std::cout << devices.size() << " devices: " << (converged ? "converged" : "did not converge")
            << ", weights " << (same ? "equal" : "differ from") << " those of one device bit for bit\n";
  return same && converged ? 0 : 1;
}
