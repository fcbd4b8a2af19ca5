// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"
#include "tutti/symmetric_view.hpp"

#include <cstdint>

namespace tutti::test {

struct ExchangeKernel;
struct RingKernel;
struct SignalsKernel;
struct BarrierKernel;
struct WaitKernel;

// Each launches its kernel on a stream of the view's device. Throws where there are no GPUs.
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const ExchangeKernel& kernel);
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const RingKernel& kernel);
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const SignalsKernel& kernel);
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const BarrierKernel& kernel);
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const WaitKernel& kernel);

}  // namespace tutti::test
