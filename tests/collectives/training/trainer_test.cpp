// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/trainer_kernels.cuh"
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/cuda_libraries.hpp"
#include "tutti/memory.hpp"
#include "tutti/sharing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// A trainer of two ranks: matrix products and launches on the legacy stream, lists of gradients averaged in
/// place on a second stream meanwhile, and a small reduction on the first. Every element of every average is
/// compared with copies of what both ranks had.
namespace tutti::test {
namespace {

constexpr int layer_count = 12;
constexpr std::int64_t width = 768;
constexpr std::int64_t rows = 256;
constexpr std::array<std::int64_t, 3> outputs_of_products{3 * width, width, 4 * width};

void expect_success(cudaError_t status) {
  ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
}

/// A gradient, and where the copy of it lies that is taken before it is averaged.
struct Gradient {
  __nv_bfloat16* data = nullptr;
  std::int64_t count = 0;
  std::int64_t copied_to = 0;  ///< elements from the start of all copies

  [[nodiscard]] Tensor tensor(int device) const {
    return Tensor(TensorView(data, DType::bfloat16, {count}, Device(device)));
  }
};

class Trainer {
 public:
  explicit Trainer(Exchange& exchange)
      : exchange_(exchange),
        device_(exchange.rank() % device_count()),
        communicator_(exchange, {.devices = {Device(device_)}}) {
    set_device(device_);
    expect_success(cudaSetDevice(device_));
    expect_success(cudaStreamCreate(&main_));
    expect_success(cudaStreamCreate(&side_));
    expect_success(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    EXPECT_EQ(cublasCreate(&blas_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetStream(blas_, main_), CUBLAS_STATUS_SUCCESS);
    allocate_gradients();
    exchange_copies();
    peers_copies_here_ = empty_like(copies_);
    input_ = numbers(rows * width);
    output_ = numbers(rows * outputs_of_products.back());
    partial_ =
        static_cast<float*>(allocate(blocks_of_column_sums * outputs_of_products.back() * sizeof(float)));
    done_ = static_cast<std::uint32_t*>(allocate(sizeof(std::uint32_t)));
    wrong_ = static_cast<unsigned long long*>(allocate(2 * sizeof(unsigned long long)));
    loss_ = full({1}, 0.0, {.device = Device(device_)});
    expect_success(cudaDeviceSynchronize());
  }

  /// One backward pass; false once something has been wrong, on any rank.
  bool step(std::uint32_t number) {
    for (const std::vector<Gradient>& layer : layers_) {
      compute(layer, number * layer_count);
      average(layer);
    }
    average_loss(number);
    expect_success(cudaDeviceSynchronize());
    transport::team::synchronize(exchange_);  // the peer's copies are complete
    check(number);
    const auto failures = transport::team::gather(exchange_, static_cast<int>(testing::Test::HasFailure()));
    return std::ranges::count(failures, 0) == exchange_.size();
  }

 private:
  /// Zeroed memory, which lives as long as the process.
  static void* allocate(std::size_t bytes) {
    void* address = nullptr;
    expect_success(cudaMalloc(&address, bytes));
    expect_success(cudaMemset(address, 0, bytes));
    return address;
  }
  static __nv_bfloat16* numbers(std::int64_t count) {
    return static_cast<__nv_bfloat16*>(allocate(static_cast<std::size_t>(count) * sizeof(__nv_bfloat16)));
  }
  /// Every other layer's are the program's own memory, the others the library's.
  void allocate_gradients() {
    std::int64_t total = 0;
    const auto add = [&](std::vector<Gradient>& layer, std::int64_t count) {
      const bool is_own = layers_.size() % 2 == 0;
      auto* const data =
          is_own ? numbers(count)
                 : static_cast<__nv_bfloat16*>(caching_allocator_alloc(static_cast<std::size_t>(count) * 2));
      layer.push_back({data, count, total});
      total += count;
    };
    for (int i = 0; i < layer_count; ++i) {
      std::vector<Gradient> layer;
      for (const std::int64_t outputs : outputs_of_products) {
        add(layer, width * outputs);
        add(layer, outputs);
      }
      layers_.push_back(layer);
    }
    copies_ = empty({total}, {.dtype = DType::bfloat16, .device = Device(device_)});
  }
  void exchange_copies() {
    const SharedTensor& mine = shared_.emplace_back(copies_);
    std::vector<std::byte> all(mine.handle().size() * static_cast<std::size_t>(exchange_.size()));
    exchange_.all_gather(mine.handle(), all);
    const std::size_t peer = exchange_.rank() == 0 ? 1 : 0;
    peers_copies_ =
        open_shared_tensor(std::span(all).subspan(peer * mine.handle().size(), mine.handle().size()));
  }

  /// Gradients of weights are products, those of biases sums of rows.
  void compute(const std::vector<Gradient>& layer, std::uint32_t seed) {
    const float one = 1;
    const float zero = 0;
    for (std::size_t i = 0; i < outputs_of_products.size(); ++i) {
      const std::int64_t outputs = outputs_of_products[i];
      const auto rank = static_cast<std::uint32_t>(exchange_.rank());
      fill_with_numbers(input_, rows * width, seed * 8 + rank, main_);
      fill_with_numbers(output_, rows * outputs, seed * 8 + rank + 4, main_);
      add_rows(output_, rows, outputs, layer[2 * i + 1].data, partial_, done_, nullptr);
      ASSERT_EQ(
          cublasGemmEx(blas_, CUBLAS_OP_N, CUBLAS_OP_T, static_cast<int>(outputs), static_cast<int>(width),
                       static_cast<int>(rows), &one, output_, CUDA_R_16BF, static_cast<int>(outputs), input_,
                       CUDA_R_16BF, static_cast<int>(width), &zero, layer[2 * i].data, CUDA_R_16BF,
                       static_cast<int>(outputs), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          CUBLAS_STATUS_SUCCESS);
    }
  }
  void average(const std::vector<Gradient>& layer) {
    expect_success(cudaEventRecord(ready_, main_));
    expect_success(cudaStreamWaitEvent(side_, ready_));
    std::vector<Tensor> list;
    for (const Gradient& gradient : layer) {
      expect_success(cudaMemcpyAsync(copy_of(copies_, gradient), gradient.data,
                                     static_cast<std::size_t>(gradient.count) * sizeof(__nv_bfloat16),
                                     cudaMemcpyDeviceToDevice, side_));
      list.push_back(gradient.tensor(device_));
    }
    communicator_.all_reduce_coalesced({list}, {list}, ReduceOp::avg, {from_cuda(side_, Device(device_))});
  }
  void average_loss(std::uint32_t number) {
    const ExternalStream stream = from_cuda(main_, Device(device_));
    const float mine = static_cast<float>(number % 1000) + static_cast<float>(exchange_.rank());
    expect_success(cudaMemcpyAsync(loss_.data(), &mine, sizeof mine, cudaMemcpyHostToDevice, main_));
    communicator_.all_reduce({loss_}, {loss_}, ReduceOp::avg, {stream});
    expect_success(
        cudaMemcpyAsync(&loss_seen_, loss_.data(), sizeof loss_seen_, cudaMemcpyDeviceToHost, main_));
  }

  void check(std::uint32_t number) {
    peers_copies_here_.copy_(peers_copies_);
    synchronize(device_);
    EXPECT_EQ(loss_seen_, static_cast<float>(number % 1000) + 0.5F) << "step " << number;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      for (const Gradient& gradient : layers_[l]) {
        count_wrong_averages(gradient.data, copy_of(copies_, gradient), copy_of(peers_copies_here_, gradient),
                             gradient.count, wrong_, main_);
      }
    }
    std::array<unsigned long long, 2> wrong{};
    expect_success(cudaMemcpyAsync(wrong.data(), wrong_, sizeof wrong, cudaMemcpyDeviceToHost, main_));
    expect_success(cudaStreamSynchronize(main_));
    EXPECT_EQ(wrong[0], 0U) << "step " << number << ": so many elements are wrong, one is number "
                            << wrong[1];
  }
  static __nv_bfloat16* copy_of(const Tensor& copies, const Gradient& gradient) {
    return static_cast<__nv_bfloat16*>(copies.data()) + gradient.copied_to;
  }

  Exchange& exchange_;
  int device_;
  Communicator communicator_;
  cudaStream_t main_ =
      nullptr;  ///< like the next, one that the legacy stream waits for, and that waits for it
  cudaStream_t side_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  std::vector<std::vector<Gradient>> layers_;
  Tensor copies_;
  Tensor peers_copies_;       ///< in the peer's memory
  Tensor peers_copies_here_;  ///< where this device's kernels may read them
  std::vector<SharedTensor> shared_;
  __nv_bfloat16* input_ = nullptr;
  __nv_bfloat16* output_ = nullptr;
  float* partial_ = nullptr;
  std::uint32_t* done_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  Tensor loss_;
  float loss_seen_ = 0;
};

TEST(TrainerOnGpus, AveragesEveryElementBesideOtherWork) {
  const auto seconds = std::chrono::duration<double>(test_seconds(60));
  const auto train = [&](Exchange& exchange) {
    Trainer trainer(exchange);
    const auto end = std::chrono::steady_clock::now() + seconds;
    std::uint32_t steps = 0;
    bool goes_on = true;
    while (goes_on) {
      if (!trainer.step(steps++)) break;
      // Rank 0's clock says when, so that both end behind the same step.
      goes_on = transport::team::gather(exchange, static_cast<int>(std::chrono::steady_clock::now() < end))
                    .front() != 0;
    }
    if (exchange.rank() == 0) RecordProperty("steps", static_cast<int>(steps));
    EXPECT_GT(steps, 10U);
    transport::team::synchronize(exchange);  // a rank that leaves has the others close its memory
  };
  expect_all_right(2, train,
                   std::chrono::seconds(60) + std::chrono::duration_cast<std::chrono::seconds>(seconds));
}

}  // namespace
}  // namespace tutti::test
