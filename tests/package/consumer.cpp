// SPDX-License-Identifier: Apache-2.0
// A user's program: sees the installed headers and library, nothing else.
#include "tutti/collectives.hpp"
#include "tutti/device.hpp"
#include "tutti/version.hpp"

#include <iostream>
#include <vector>

int main() {
  const std::vector<float> values = {1.0F, 2.0F, 3.0F, 4.0F};
  const tutti::Tensor source = tutti::tensor(values, {2, 2}, {.device = tutti::Device(0)});
  const std::vector<tutti::Tensor> copies = tutti::broadcast(source, {0, 1, 2});
  if (copies.size() != 3) return 1;
  for (const tutti::Tensor& copy : copies) {
    if (copy.to_vector<float>() != values) {
      std::cerr << "wrong data on device " << copy.device().index() << '\n';
      return 1;
    }
  }
  if (tutti::version() != TUTTI_VERSION) {
    std::cerr << "headers are " << TUTTI_VERSION << ", the library is " << tutti::version() << '\n';
    return 1;
  }
  std::cout << "tutti " << tutti::version() << " delivered to " << copies.size() << " of "
            << tutti::device_count() << " devices\n";
}
