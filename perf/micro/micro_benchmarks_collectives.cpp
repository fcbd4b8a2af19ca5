// SPDX-License-Identifier: Apache-2.0
#include "perf/micro/micro_benchmarks.hpp"
#include "tutti/collectives.hpp"
#include "tutti/persistent.hpp"

#include <cstddef>
#include <vector>

/// Collectives of one process: validation, plan lookup, dispatch.
namespace tutti::micro_benchmarks {
namespace {

using benchmark::State;

/// Nothing to move: arguments are checked and the plan is looked up.
void broadcast_of_nothing(State& state) {
  const Tensor source = tensor_on(0, 0);
  const std::vector<Tensor> out = one_per_device(0);
  measure_enqueueing(state, [&] { tutti::broadcast(source, out); });
}
BENCHMARK(broadcast_of_nothing);

void broadcast_dispatch(State& state) {
  const Tensor source = tensor_on(0, tiny);
  const std::vector<Tensor> out = one_per_device(tiny);
  measure_enqueueing(state, [&] { tutti::broadcast(source, out); });
}
BENCHMARK(broadcast_dispatch);

void broadcast_returning_new_tensors(State& state) {
  const Tensor source = tensor_on(0, tiny);
  const std::vector<tutti::Device> devices = all_devices();
  measure_enqueueing(state, [&] { benchmark::DoNotOptimize(tutti::broadcast(source, devices).data()); });
}
BENCHMARK(broadcast_returning_new_tensors);

void broadcast_coalesced_dispatch(State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::vector<Tensor> sources = list_on(0, count);
  std::vector<std::vector<Tensor>> out;
  for (const tutti::Device device : all_devices()) out.push_back(list_on(device, count));
  measure_enqueueing(state, [&] { tutti::broadcast_coalesced(sources, out); });
}
BENCHMARK(broadcast_coalesced_dispatch)->Arg(16)->Arg(256)->Arg(1000);

void broadcast_coalesced_returning_new_tensors(State& state) {
  const std::vector<Tensor> sources = list_on(0, static_cast<std::size_t>(state.range(0)));
  const std::vector<tutti::Device> devices = all_devices();
  measure_enqueueing(state,
                     [&] { benchmark::DoNotOptimize(tutti::broadcast_coalesced(sources, devices).data()); });
}
BENCHMARK(broadcast_coalesced_returning_new_tensors)->Arg(16)->Arg(256)->Arg(1000);

void reduce_add_dispatch(State& state) {
  const std::vector<Tensor> inputs = one_per_device(tiny);
  const Tensor out = tensor_on(0, tiny);
  measure_enqueueing(state, [&] { tutti::reduce_add(inputs, out); });
}
BENCHMARK(reduce_add_dispatch);

void reduce_add_coalesced_dispatch(State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  std::vector<std::vector<Tensor>> inputs;
  for (const tutti::Device device : all_devices()) inputs.push_back(list_on(device, count));
  const std::vector<Tensor> out = list_on(0, count);
  measure_enqueueing(state, [&] { tutti::reduce_add_coalesced(inputs, out); });
}
BENCHMARK(reduce_add_coalesced_dispatch)->Arg(16)->Arg(256)->Arg(1000);

void scatter_dispatch(State& state) {
  const Tensor source = tensor_on(0, tiny * tutti::device_count());
  const std::vector<Tensor> out = one_per_device(tiny);
  measure_enqueueing(state, [&] { tutti::scatter(source, out); });
}
BENCHMARK(scatter_dispatch);

void gather_dispatch(State& state) {
  const std::vector<Tensor> inputs = one_per_device(tiny);
  const Tensor out = tensor_on(0, tiny * tutti::device_count());
  measure_enqueueing(state, [&] { tutti::gather(inputs, out); });
}
BENCHMARK(gather_dispatch);

void persistent_broadcast_launch(State& state) {
  tutti::PersistentCollective bound = tutti::persistent_broadcast(tensor_on(0, tiny), one_per_device(tiny));
  measure_enqueueing(state, [&] { bound.launch(); });
}
BENCHMARK(persistent_broadcast_launch);

}  // namespace
}  // namespace tutti::micro_benchmarks
