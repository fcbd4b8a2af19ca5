// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/low_latency_kernel.cuh"
#include "backend/cuda/kernels/ordered_reduction_kernel.cuh"

#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

/// The second half of a low-latency round that combines by `Op`.
template <class Op>
struct LowLatencyReductions {
  using Entry = SumEntry;
  template <class Lines>
  static __device__ Get find(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task) {
    const auto number = static_cast<std::uint32_t>(&entry - view.entries);
    return get_of<Lines>(entry, number, sizeof(typename Op::Storage), view.pointers, task.input_count, tile,
                         lane);
  }
  template <class Lines>
  static __device__ bool run(const TableView<Entry>& view, const Get& get, const TeamArguments& task,
                             const LineWait& wait, const Relay& relay) {
    return sum_lines<Lines>(operation_of<Op>(task.reducing, view.pointers), view.pointers, task.input_count,
                            get, wait, relay);
  }
};

}  // namespace tutti::backend::cuda
