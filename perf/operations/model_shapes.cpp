// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/tensor_lists.hpp"

namespace tutti::perf {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Collects shapes in the order a model declares them.
class ShapeList {
 public:
  void add(const Sizes& sizes) { tensors_.push_back({sizes, std::nullopt}); }

  /// Weight, bias, running mean and running variance.
  void batch_norm(std::int64_t channels) {
    for (int repeat = 0; repeat < 4; ++repeat) add({channels});
  }
  void convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel) {
    add({outputs, inputs, kernel, kernel});
    batch_norm(outputs);
  }
  /// Weight, then bias of the second size.
  void linear(const Sizes& weight, std::int64_t outputs) {
    add(weight);
    add({outputs});
  }

  [[nodiscard]] std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
};

}  // namespace

std::vector<TensorSpec> resnet50_tensors() {
  constexpr std::int64_t expansion = 4;
  constexpr int blocks_of_stage[] = {3, 4, 6, 3};
  ShapeList shapes;
  shapes.convolution(3, 64, 7);
  std::int64_t inputs = 64;
  std::int64_t width = 64;
  for (const int blocks : blocks_of_stage) {
    for (int block = 0; block < blocks; ++block) {
      shapes.convolution(inputs, width, 1);
      shapes.convolution(width, width, 3);
      shapes.convolution(width, width * expansion, 1);
      if (block == 0)
        shapes.convolution(inputs, width * expansion, 1);  // the shortcut changes the width once
      inputs = width * expansion;
    }
    width *= 2;
  }
  shapes.linear({1000, inputs}, 1000);
  return shapes.take();
}

std::vector<TensorSpec> gpt2_tensors() {
  constexpr std::int64_t width = 768;
  constexpr int layers = 12;
  ShapeList shapes;
  shapes.add({50257, width});  // token embedding
  shapes.add({1024, width});   // position embedding
  for (int layer = 0; layer < layers; ++layer) {
    shapes.linear({width}, width);  // layer norm: weight and bias
    shapes.linear({width, 3 * width}, 3 * width);
    shapes.linear({width, width}, width);
    shapes.linear({width}, width);
    shapes.linear({width, 4 * width}, 4 * width);
    shapes.linear({4 * width, width}, width);
  }
  shapes.linear({width}, width);
  return shapes.take();
}

}  // namespace tutti::perf
