// SPDX-License-Identifier: Apache-2.0
// What it saves to all-reduce gradients while the backward pass still computes others: a step's time with one
// bucket, which starts behind the whole backward pass, and with a bucket for each layer.
//
//   15_overlap [STEPS]
//
// With TUTTI_TRACE=trace.json the trace shows when the buckets' all-reduces ran.

#include "tutti/tutti.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int layers = 8;
constexpr int untimed_steps = 2;  // kernels are loaded, and memory is made

bool is_virtual() {
  return tutti::backend_kind() == tutti::BackendKind::host;
}
std::int64_t elements_of_a_layer() {
  return is_virtual() ? 1 << 18 : 1 << 23;
}

/// A model of layers without a purpose: its backward pass takes time, and gradients of known values.
class Model {
 public:
  explicit Model(const std::vector<tutti::Device>& devices) : devices_(devices) {
    for (const tutti::Device device : devices) {
      scratch_.push_back(tutti::empty({1 << 24}, {.device = device}));
      gradients_.emplace_back();
      for (int layer = 0; layer < layers; ++layer)
        gradients_.back().push_back(tutti::empty({elements_of_a_layer()}, {.device = device}));
    }
  }

  [[nodiscard]] const std::vector<std::vector<tutti::Tensor>>& gradients() const { return gradients_; }

  /// Queues the work of all layers, the last first, and reports each gradient.
  void backward(tutti::GradientBuckets& buckets, int step) const {
    const tutti::nvtx::Range range("backward");
    for (int layer = layers; layer-- > 0;) {
      for (std::size_t d = 0; d < devices_.size(); ++d) {
        compute(d);
        gradients_[d][static_cast<std::size_t>(layer)].fill_(static_cast<double>(d) + layer + step);
        buckets.ready(static_cast<int>(d), layer);
      }
    }
  }

  /// Every gradient is the mean of all devices'.
  [[nodiscard]] bool holds_means(int step) const {
    const auto last = static_cast<double>(devices_.size() - 1);
    bool is_right = true;
    for (const std::vector<tutti::Tensor>& list : gradients_) {
      for (int layer = 0; layer < layers; ++layer) {
        const auto mean = static_cast<float>(last / 2 + layer + step);
        for (const float value : list[static_cast<std::size_t>(layer)].to_vector<float>())
          is_right = is_right && value == mean;
      }
    }
    return is_right;
  }

 private:
  /// On GPUs random numbers, which keep them busy. Virtual devices sleep, as they share the host's cores.
  void compute(std::size_t d) const {
    if (is_virtual()) {
      tutti::virtual_devices::launch(tutti::current_stream(devices_[d].index()), "layer", {},
                                     [](auto) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    } else {
      for (int round = 0; round < 4; ++round) tutti::normal_(scratch_[d]);
    }
  }

  std::vector<tutti::Device> devices_;
  std::vector<tutti::Tensor> scratch_;
  std::vector<std::vector<tutti::Tensor>> gradients_;
};

void wait_for(const std::vector<tutti::Device>& devices) {
  for (const tutti::Device device : devices) tutti::synchronize(device);
}

/// Milliseconds of a step; negative if gradients are not what they should be.
double time_steps(tutti::Communicator& communicator, const Model& model, std::size_t bucket_bytes,
                  int steps) {
  tutti::GradientBuckets buckets(communicator, model.gradients(),
                                 {.bucket_bytes = bucket_bytes, .first_bucket_bytes = 0});
  std::chrono::steady_clock::time_point start;
  for (int step = 0; step < untimed_steps + steps; ++step) {
    if (step == untimed_steps) {
      wait_for(communicator.devices());
      start = std::chrono::steady_clock::now();
    }
    const tutti::nvtx::Range range(std::to_string(buckets.buckets().size()) + " buckets, step " +
                                   std::to_string(step));
    model.backward(buckets, step);
    buckets.synchronize();
  }
  wait_for(communicator.devices());
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  return model.holds_means(untimed_steps + steps - 1) ? time.count() / steps : -1;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 5;
  if (argc > 2 || steps <= 0) {
    std::cerr << "usage: 15_overlap [STEPS]: expected a whole number, 1 or more\n";
    return 2;
  }
  std::vector<tutti::Device> devices;
  for (int device = 0; device < tutti::device_count() && device < 4; ++device) devices.emplace_back(device);
  // Sums of these values are exact, in whatever order.
  tutti::Communicator communicator({.devices = devices});
  const Model model(devices);
  const std::size_t layer_bytes = static_cast<std::size_t>(elements_of_a_layer()) * sizeof(float);

  const double apart = time_steps(communicator, model, layers * layer_bytes, steps);
  const double overlapped = time_steps(communicator, model, layer_bytes, steps);
  if (apart < 0 || overlapped < 0) {
    std::cerr << "gradients are not the means of all devices'\n";
    return 1;
  }
  std::printf("%zu devices, %d layers of %zu MiB\n", devices.size(), layers, layer_bytes >> 20U);
  std::printf("one bucket, behind the backward pass: %.2f ms a step\n", apart);
  std::printf("a bucket for each layer, overlapping: %.2f ms a step\n", overlapped);
}
