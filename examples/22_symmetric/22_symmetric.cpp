// SPDX-License-Identifier: Apache-2.0
// An all-reduce and the normalisation of its rows (RMSNorm) in one kernel of the program's own, in symmetric
// memory: checks it against the two calls, and times both.
//
//   22_symmetric [ROWS [COLUMNS]]

#include "kernels.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace {

bool is_virtual() {
  return tutti::backend_kind() == tutti::BackendKind::host;
}

/// The terms (0) or the results (1) in a member's symmetric memory.
tutti::Tensor part(const tutti::Tensor& memory, std::int64_t index) {
  return memory.narrow(0, index, 1).view({memory.size(1), memory.size(2)});
}

/// All that both ways need, of all devices of this process.
class Comparison {
 public:
  Comparison(const std::vector<tutti::Device>& devices, std::int64_t rows, std::int64_t columns)
      : kernels_(is_virtual() ? virtual_kernels() : cuda_kernels()),
        communicator_({.devices = devices}),
        memory_(communicator_.symmetric({2, rows, columns})) {
    for (const tutti::Tensor& memory : memory_.tensors()) {
      const tutti::Device device = memory.device();
      terms_.push_back(part(memory, 0));
      terms_.back().copy_(tutti::randn({rows, columns}, {.device = device}));
      weights_.push_back(tutti::empty({columns}, {.device = device}));
      weights_.back().fill_(0.5);
      sums_.push_back(tutti::empty({rows, columns}, {.device = device}));
      results_.push_back(tutti::empty({rows, columns}, {.device = device}));
      statuses_.push_back(tutti::zeros({1}, {.dtype = tutti::DType::int32, .device = device}));
    }
  }

  void call_both() {
    communicator_.all_reduce(terms_, sums_);
    for (std::size_t i = 0; i < sums_.size(); ++i) kernels_.normalise(weights_[i], sums_[i], results_[i]);
  }
  void call_fused() {
    for (std::size_t i = 0; i < sums_.size(); ++i)
      kernels_.all_reduce_and_normalise(memory_, static_cast<int>(i), weights_[i], statuses_[i]);
  }
  void wait() const {
    for (const tutti::Device device : communicator_.devices()) tutti::synchronize(device);
    communicator_.check();
  }

  /// Returns the largest difference between the results of both ways, on any device.
  [[nodiscard]] float difference() const {
    float largest = 0;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const std::vector<float> expected = results_[i].to_vector<float>();
      const std::vector<float> found = part(memory_.tensor(static_cast<int>(i)), 1).to_vector<float>();
      for (std::size_t k = 0; k < expected.size(); ++k) {
        const float apart = std::abs(found[k] - expected[k]);
        if (!(apart <= largest)) largest = apart;  // also if it is no number
      }
    }
    return largest;
  }
  [[nodiscard]] bool is_well() const {
    return std::ranges::all_of(statuses_,
                               [](const tutti::Tensor& status) { return status.item<std::int32_t>() == 0; });
  }

 private:
  const Kernels& kernels_;
  tutti::Communicator communicator_;
  tutti::SymmetricMemory memory_;
  std::vector<tutti::Tensor> terms_;
  std::vector<tutti::Tensor> weights_;
  std::vector<tutti::Tensor> sums_;
  std::vector<tutti::Tensor> results_;
  std::vector<tutti::Tensor> statuses_;
};

double microseconds_of(const Comparison& comparison, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const int times = is_virtual() ? 5 : 200;
  call();
  comparison.wait();
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) call();
  comparison.wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / times;
}

int compare(std::int64_t rows, std::int64_t columns) {
  std::vector<tutti::Device> devices;
  for (int device = 0; device < std::min(tutti::device_count(), is_virtual() ? 4 : 8); ++device)
    devices.emplace_back(device);
  Comparison comparison(devices, rows, columns);
  const double both = microseconds_of(comparison, [&] { comparison.call_both(); });
  const double fused = microseconds_of(comparison, [&] { comparison.call_fused(); });
  const float difference = comparison.difference();
  std::printf("%zu devices, %lld rows of %lld float32: two calls %.1f us, fused %.1f us; difference %g\n",
              devices.size(), static_cast<long long>(rows), static_cast<long long>(columns), both, fused,
              static_cast<double>(difference));
  constexpr float most = 1e-5F;
  if (comparison.is_well() && difference <= most) return EXIT_SUCCESS;
  std::cerr << "22_symmetric: the results differ, or a wait has not ended well\n";
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::int64_t rows = argc > 1 ? std::stoll(argv[1]) : is_virtual() ? 16 : 128;
    const std::int64_t columns = argc > 2 ? std::stoll(argv[2]) : is_virtual() ? 256 : 8192;
    if (rows < 1 || columns < 4 || columns % 4 != 0) {
      std::cerr
          << "usage: 22_symmetric [ROWS [COLUMNS]]: expected a row or more, of a multiple of 4 columns\n";
      return EXIT_FAILURE;
    }
    return compare(rows, columns);
  } catch (const std::exception& error) {
    std::cerr << "22_symmetric: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
