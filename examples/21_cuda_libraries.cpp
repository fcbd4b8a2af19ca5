// SPDX-License-Identifier: Apache-2.0
// cuBLAS and cuFFT on the library's streams: the component tutti::cuda_libraries, which needs GPUs.

#include "tutti/cuda_libraries.hpp"
#include "tutti/tutti.hpp"

#include <iostream>

int main() {
  if (tutti::backend_kind() != tutti::BackendKind::cuda) {
    try {
      static_cast<void>(tutti::current_blas_handle());
    } catch (const tutti::Error& error) {
      std::cout << "refused: " << error.what() << '\n';
      return error.code() == tutti::ErrorCode::unsupported ? 0 : 1;
    }
    return 1;
  }

  constexpr int count = 1024;
  const tutti::Stream stream(tutti::Device(0));
  const tutti::StreamGuard guard(stream);
  const tutti::Tensor x = tutti::full({count}, 2, {.device = 0});
  const tutti::Tensor y = tutti::full({count}, 1, {.device = 0});
  const float factor = 3;
  // The thread's handle follows its current stream.
  if (cublasSaxpy(tutti::current_blas_handle(0), count, &factor, static_cast<const float*>(x.data()), 1,
                  static_cast<float*>(y.data()), 1) != CUBLAS_STATUS_SUCCESS)
    return 1;
  const float sum = y.to_vector<float>().back();
  std::cout << "3 * 2 + 1 = " << sum << '\n';

  // The plan is kept, and serves the next transform of this form at once.
  const tutti::Tensor signal = tutti::full({count}, 1, {.dtype = tutti::DType::complex64, .device = 0});
  tutti::FftPlanCache& cache = tutti::cufft_plan_cache(0);
  for (int i = 0; i < 2; ++i) {
    const tutti::FftPlan plan = cache.plan({.sizes = {count}});
    auto* const data = static_cast<cufftComplex*>(signal.data());
    if (cufftExecC2C(plan.handle(), data, data, CUFFT_FORWARD) != CUFFT_SUCCESS) return 1;
  }
  tutti::synchronize(0);
  std::cout << "plans in the cache: " << cache.size() << '\n';
  return sum == 7 && cache.size() == 1 ? 0 : 1;
}
