// SPDX-License-Identifier: Apache-2.0
// A batch is cut, each device works on its part, and the results are joined on the host.

#include "tutti/tutti.hpp"

#include <iostream>
#include <vector>

int main() {
  // Seven samples of three values, on the host.
  std::vector<float> values(21);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const tutti::Tensor batch = tutti::tensor(values, {7, 3});

  // Along dimension 0, in equal parts as far as that goes: 4 samples and 3.
  const std::vector<tutti::Tensor> parts = tutti::scatter(batch, {0, 1});
  for (const tutti::Tensor& part : parts) {
    std::cout << to_string(part.device()) << " has " << part.size(0) << " samples\n";
  }
  parts[1].fill_(-1);  // a device's work, on its current stream

  // Joined in pinned host memory, complete when the call returns.
  const tutti::Tensor joined = tutti::gather(parts, 0, tutti::Device::host());
  const std::vector<float> results = joined.to_vector<float>();
  std::cout << "sample 3 begins with " << results[9] << ", sample 4 with " << results[12] << '\n';
}
