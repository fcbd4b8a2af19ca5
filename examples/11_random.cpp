// SPDX-License-Identifier: Apache-2.0
// Random numbers: a generator for each device, whose numbers depend on its seed and on how many have been
// drawn, and on nothing else.

#include "tutti/tutti.hpp"

#include <iostream>
#include <vector>

int main() {
  tutti::manual_seed_all(42);
  std::vector<std::vector<float>> drawn;
  for (int device = 0; device < tutti::device_count(); ++device)
    drawn.push_back(tutti::rand({5}, {.device = device}).to_vector<float>());
  std::cout << "uniform:";
  for (const float value : drawn.front()) std::cout << ' ' << value;
  std::cout << '\n';
  for (const std::vector<float>& values : drawn) {
    if (values != drawn.front()) return 1;  // the same on every device, GPU or not
  }

  // A state is 16 bytes: what was drawn after it is drawn again.
  const tutti::RngState before = tutti::get_rng_state(0);
  const std::vector<float> first = tutti::randn({1000}, {.device = 0}).to_vector<float>();
  tutti::set_rng_state(before, 0);
  const std::vector<float> again = tutti::randn({1000}, {.device = 0}).to_vector<float>();
  std::cout << "normal, drawn twice: " << (first == again ? "the same" : "different") << '\n';

  // Integers, and coins.
  const tutti::Tensor dice = tutti::randint(1, 7, {6}, {.dtype = tutti::DType::int64, .device = 0});
  const tutti::Tensor coins = tutti::zeros({8}, {.device = 0});
  tutti::bernoulli_(coins, 0.25);
  std::cout << "dice: " << dice << "\ncoins: " << coins << '\n';
  return first == again ? 0 : 1;
}
