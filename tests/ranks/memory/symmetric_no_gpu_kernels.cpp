// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/symmetric_gpu_kernels.hpp"
#include "ranks/memory/symmetric_kernels.cuh"
#include "tutti/error.hpp"

namespace tutti::test {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported, "the tests were built without CUDA");
}

}  // namespace

void launch_on_gpu(const SymmetricView&, const Stream&, std::int32_t*, const ExchangeKernel&) {
  refuse();
}
void launch_on_gpu(const SymmetricView&, const Stream&, std::int32_t*, const RingKernel&) {
  refuse();
}
void launch_on_gpu(const SymmetricView&, const Stream&, std::int32_t*, const SignalsKernel&) {
  refuse();
}
void launch_on_gpu(const SymmetricView&, const Stream&, std::int32_t*, const BarrierKernel&) {
  refuse();
}
void launch_on_gpu(const SymmetricView&, const Stream&, std::int32_t*, const WaitKernel&) {
  refuse();
}

}  // namespace tutti::test
