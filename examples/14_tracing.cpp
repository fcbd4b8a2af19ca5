// SPDX-License-Identifier: Apache-2.0
// A program that tells what it does: with TUTTI_TRACE=trace.json it leaves a trace for a viewer, and a
// profiler that listens to NVTX hears the same. Nobody asked, it costs nothing.

#include "tutti/tutti.hpp"

#include <iostream>
#include <string>
#include <vector>

int main() {
  const int count = tutti::device_count();
  std::vector<tutti::Tensor> parameters;
  std::vector<tutti::Tensor> gradients;
  for (int device = 0; device < count; ++device) {
    parameters.push_back(tutti::zeros({1 << 14}, {.device = device}));
    gradients.push_back(tutti::ones({1 << 14}, {.device = device}));
  }
  tutti::broadcast(parameters[0], parameters);  // finds out how the devices are connected
  for (int device = 0; device < count; ++device) tutti::synchronize(device);
  const tutti::Tensor sum = tutti::empty({1 << 14}, {.device = 0});

  for (int step = 1; step <= 3; ++step) {
    // What the program does is a range, and collectives are ranges within it by themselves.
    const tutti::nvtx::Range range("step " + std::to_string(step));
    tutti::broadcast(parameters[0], parameters);
    {
      const tutti::nvtx::Range inner("backward");
      for (const tutti::Tensor& gradient : gradients) gradient.fill_(step);
    }
    tutti::reduce_add(gradients, sum);
    tutti::nvtx::mark("queued");
    const tutti::nvtx::Range waiting("wait");
    const float first = sum.to_vector<float>().front();
    std::cout << "step " << step << ": the sum is " << first << '\n';
    if (first != static_cast<float>(step * count)) return 1;
  }
}
