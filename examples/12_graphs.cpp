// SPDX-License-Identifier: Apache-2.0
// Work that is queued once and launched many times: a step with random numbers and a collective, captured
// into a graph. On virtual devices, too.

#include "tutti/tutti.hpp"

#include <iostream>
#include <vector>

int main() {
  const tutti::Tensor noise = tutti::zeros({1024}, {.device = 0});
  const tutti::Tensor copy = tutti::zeros({1024}, {.device = 1});
  tutti::broadcast(noise, {copy});  // finds out how the devices are connected, which a capture cannot
  tutti::synchronize(0);
  tutti::synchronize(1);

  // A capture takes streams that are not the default ones; the other device's joins it by the collective.
  const tutti::Stream there(tutti::Device(1));
  tutti::CUDAGraph graph;
  {
    const tutti::StreamGuard on_1(there);
    const tutti::DeviceGuard device(0);
    const tutti::GraphGuard capture(graph);
    tutti::uniform_(noise);
    tutti::broadcast(noise, {copy});
  }

  // Nothing has run yet. Each replay draws numbers of its own, as the calls would have.
  std::vector<float> before;
  for (int step = 0; step < 3; ++step) {
    graph.replay();  // on device 0's current stream
    tutti::synchronize(0);
    const std::vector<float> values = copy.to_vector<float>();
    std::cout << "step " << step << ": device 1 has " << values.front() << ", ...\n";
    if (values == before || values != noise.to_vector<float>()) return 1;
    before = values;
  }
}
