// SPDX-License-Identifier: Apache-2.0
// The kernels for virtual devices: functions that run on a stream's own thread, each as a grid of one block
// of one thread.

#include "fused.cuh"
#include "kernels.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>

namespace {

using tutti::virtual_devices::Access;

constexpr fused::Place alone{.thread = 0, .threads = 1, .block = 0, .blocks = 1};

Access all_of(const tutti::Tensor& tensor) {
  return {tensor.data(), tensor.nbytes()};
}

class VirtualKernels final : public Kernels {
 public:
  void normalise(const tutti::Tensor& weights, const tutti::Tensor& sums,
                 const tutti::Tensor& out) const override {
    const std::array accesses{all_of(weights), all_of(sums), all_of(out)};
    const fused::Shape shape{.rows = sums.size(0), .columns = sums.size(1), .epsilon = epsilon};
    tutti::virtual_devices::launch(
        tutti::current_stream(sums.device()), "normalise", accesses, [shape](auto memory) {
          fused::normalise(shape, alone, static_cast<const float*>(memory[0]),
                           static_cast<const float*>(memory[1]), static_cast<float*>(memory[2]));
        });
  }

  void all_reduce_and_normalise(const tutti::SymmetricMemory& memory, int local, const tutti::Tensor& weights,
                                const tutti::Tensor& status) const override {
    const tutti::Tensor& own = memory.tensor(local);
    const std::array accesses{all_of(weights), all_of(status)};
    const fused::Shape shape{.rows = own.size(1), .columns = own.size(2), .epsilon = epsilon};
    tutti::virtual_devices::launch(tutti::current_stream(own.device()), "all_reduce_and_normalise", memory,
                                   accesses, [shape](const tutti::SymmetricView& view, auto operands) {
                                     const tutti::WaitStatus end = fused::all_reduce_and_normalise(
                                         view, shape, alone, static_cast<const float*>(operands[0]));
                                     if (end != tutti::WaitStatus::done)
                                       *static_cast<std::int32_t*>(operands[1]) =
                                           static_cast<std::int32_t>(end);
                                   });
  }
};

}  // namespace

const Kernels& virtual_kernels() {
  static const VirtualKernels kernels;
  return kernels;
}
