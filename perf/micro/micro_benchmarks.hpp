// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

/// Host time of the calls a training step makes thousands of times. Runs on GPUs and on virtual devices;
/// TUTTI_BACKEND chooses. Figures of different machines do not compare: use ratios within one run.
namespace tutti::micro_benchmarks {

constexpr std::int64_t tiny = 64;  ///< elements: what moves is negligible

/// How often work is waited for, so that queues stay short without the wait being what is measured.
constexpr std::int64_t launches_between_waits = 64;

void wait_for_all_devices();

/// Runs `enqueue` in the timed loop and, now and then, waits outside the measured time.
template <class Enqueue>
void measure_enqueueing(benchmark::State& state, Enqueue&& enqueue) {
  enqueue();  // the first call plans and connects
  wait_for_all_devices();
  std::int64_t launched = 0;
  for (auto _ : state) {
    enqueue();
    if (++launched % launches_between_waits == 0) {
      state.PauseTiming();
      wait_for_all_devices();
      state.ResumeTiming();
    }
  }
  wait_for_all_devices();
}

[[nodiscard]] std::vector<Device> all_devices();
[[nodiscard]] Tensor tensor_on(Device device, std::int64_t elements);
/// As the parameters of a model: each with memory of its own.
[[nodiscard]] std::vector<Tensor> list_on(Device device, std::size_t count);
[[nodiscard]] std::vector<Tensor> one_per_device(std::int64_t elements);

}  // namespace tutti::micro_benchmarks
