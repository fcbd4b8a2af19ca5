// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/low_latency_kernel.cuh"
#include "backend/cuda/ordered_reduction_kernel.cuh"

#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

/// The second half of a low-latency round that combines by `Op`.
template <class Op>
struct LowLatencyReductions {
  using Entry = SumEntry;
  template <class Lines>
  static __device__ bool run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task, const LineWait& wait,
                             const Relay& relay) {
    const auto number = static_cast<std::uint32_t>(&entry - view.entries);
    return sum_lines<Lines>(operation_of<Op>(task.reducing, view.pointers), entry, number, view.pointers,
                            task.input_count, tile, lane, wait, relay);
  }
};

}  // namespace tutti::backend::cuda
