// SPDX-License-Identifier: Apache-2.0
#include "perf/micro/micro_benchmarks.hpp"
#include "tutti/communicator.hpp"

#include <vector>

/// Collectives between processes: validation, signature, plan lookup, dispatch.
namespace tutti::micro_benchmarks {
namespace {

using benchmark::State;

/// Of one process, which brings in all devices.
tutti::Communicator communicator_alone() {
  return tutti::Communicator({.devices = all_devices()});
}

void communicator_broadcast_of_nothing(State& state) {
  tutti::Communicator communicator = communicator_alone();
  const std::vector<Tensor> tensors = one_per_device(0);
  measure_enqueueing(state, [&] { communicator.broadcast(tensors, 0); });
}
BENCHMARK(communicator_broadcast_of_nothing);

void communicator_broadcast_dispatch(State& state) {
  tutti::Communicator communicator = communicator_alone();
  const std::vector<Tensor> tensors = one_per_device(tiny);
  measure_enqueueing(state, [&] { communicator.broadcast(tensors, 0); });
}
BENCHMARK(communicator_broadcast_dispatch);

void communicator_all_reduce_add_dispatch(State& state) {
  tutti::Communicator communicator = communicator_alone();
  const std::vector<Tensor> tensors = one_per_device(tiny);
  measure_enqueueing(state, [&] { communicator.all_reduce_add(tensors, tensors); });
}
BENCHMARK(communicator_all_reduce_add_dispatch);

void communicator_scatter_dispatch(State& state) {
  tutti::Communicator communicator = communicator_alone();
  const Tensor source = tensor_on(0, tiny * tutti::device_count());
  const std::vector<Tensor> out = one_per_device(tiny);
  measure_enqueueing(state, [&] { communicator.scatter(source, out, 0); });
}
BENCHMARK(communicator_scatter_dispatch);

}  // namespace
}  // namespace tutti::micro_benchmarks
