// SPDX-License-Identifier: Apache-2.0
// Operations given as source text, which is compiled when it is first needed: one for each element, and one
// that a reduction combines the devices' numbers by. On GPUs NVRTC compiles, on virtual devices the system's
// C++ compiler.

#include "tutti/tutti.hpp"

#include <iostream>
#include <vector>

int main() {
  const tutti::JitFunction clipped = tutti::create_jit_fn(
      "template <typename T> T clipped(T x, T limit) { return x < -limit ? -limit : x > limit ? limit : x; }",
      {{"limit", 1.0}});
  // The sum of squares of two numbers is what hypot has under its root.
  const tutti::ReduceOp norm =
      tutti::ReduceOp::compiled("template <typename T> T norm(T a, T b) { return sqrt(a * a + b * b); }");

  std::vector<tutti::Tensor> gradients;
  try {
    for (int device = 0; device < tutti::device_count(); ++device) {
      const tutti::DeviceGuard guard(device);
      const tutti::Tensor gradient = tutti::full({1000}, device % 2 == 0 ? 3.0 : -5.0, {.device = device});
      gradients.push_back(clipped({gradient}, {{"limit", 4.0}}));
    }
    // In ascending order of the devices, as all reductions.
    const tutti::Tensor norms = tutti::reduce(gradients, norm, 0);
    double squares = 0;
    for (int device = 0; device < tutti::device_count(); ++device) squares += device % 2 == 0 ? 9 : 16;
    const double found = norms.to_vector<float>().front();
    std::cout << "the norm of " << gradients.size() << " clipped gradients is " << found << '\n';
    const double difference = found * found - squares;
    return difference < 1e-3 && difference > -1e-3 ? 0 : 1;
  } catch (const tutti::Error& error) {
    if (error.code() != tutti::ErrorCode::unsupported) throw;
    std::cout << "nothing is compiled here: " << error.what() << '\n';
  }
}
