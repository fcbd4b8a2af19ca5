// SPDX-License-Identifier: Apache-2.0
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/event.hpp"
#include "tutti/memory.hpp"
#include "tutti/persistent.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

/// Host time of the calls a training step makes thousands of times. Runs on GPUs and on virtual devices;
/// TUTTI_BACKEND chooses. Figures of different machines do not compare: use ratios within one run.
namespace tutti::micro_benchmarks {
namespace {

using benchmark::State;

constexpr std::int64_t tiny = 64;  ///< elements: what moves is negligible

/// How often work is waited for, so that queues stay short without the wait being what is measured.
constexpr std::int64_t launches_between_waits = 64;

void wait_for_all_devices() {
  for (int device = 0; device < device_count(); ++device) synchronize(device);
}

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

std::vector<Device> all_devices() {
  std::vector<Device> devices;
  for (int device = 0; device < device_count(); ++device) devices.emplace_back(device);
  return devices;
}

Tensor tensor_on(Device device, std::int64_t elements) {
  return empty({elements}, {.device = device});
}

/// As the parameters of a model: each with memory of its own.
std::vector<Tensor> list_on(Device device, std::size_t count) {
  std::vector<Tensor> tensors;
  for (std::size_t index = 0; index < count; ++index) tensors.push_back(tensor_on(device, tiny));
  return tensors;
}

std::vector<Tensor> one_per_device(std::int64_t elements) {
  std::vector<Tensor> tensors;
  for (const Device device : all_devices()) tensors.push_back(tensor_on(device, elements));
  return tensors;
}

// Streams and events.

void set_stream(State& state) {
  const tutti::Stream first(0);
  const tutti::Stream second(0);
  bool odd = false;
  for (auto _ : state) {
    tutti::set_stream(odd ? first : second);
    odd = !odd;
  }
  tutti::set_stream(tutti::default_stream(0));
}
BENCHMARK(set_stream);

void set_device(State& state) {
  const int last = tutti::device_count() - 1;
  for (auto _ : state) {
    tutti::set_device(last);
    tutti::set_device(0);
  }
}
BENCHMARK(set_device);

/// Through the seam to the backend and back: the cheapest call that makes the trip.
void stream_query(State& state) {
  const tutti::Stream stream(0);
  for (auto _ : state) benchmark::DoNotOptimize(stream.query());
}
BENCHMARK(stream_query);

void event_record(State& state) {
  const tutti::Stream stream(0);
  tutti::Event event;
  measure_enqueueing(state, [&] { event.record(stream); });
}
BENCHMARK(event_record);

void event_wait_across_devices(State& state) {
  const tutti::Stream earlier(0);
  const tutti::Stream later(tutti::device_count() - 1);
  tutti::Event event;
  event.record(earlier);
  measure_enqueueing(state, [&] { event.wait(later); });
}
BENCHMARK(event_wait_across_devices);

// The caching allocator, and tensors made of it.

/// What is asked for of the cache, in bytes: of the small pool, of segments of 2 MiB and of 20 MiB, and of a
/// segment alone.
void sizes_of_hits(benchmark::internal::Benchmark* hits) {
  for (const std::int64_t bytes :
       {std::int64_t{256}, std::int64_t{64} << 10, std::int64_t{4} << 20, std::int64_t{64} << 20})
    hits->Arg(bytes);
  hits->ThreadRange(1, 8)->UseRealTime();
}

/// A tensor made and dropped: a hit in the cache, each thread on a device of its own, as far as there are
/// some.
void allocator_hit(State& state) {
  const Device device = state.thread_index() % tutti::device_count();
  const DeviceGuard guard(device);
  const std::int64_t elements = state.range(0) / std::int64_t{sizeof(float)};
  static_cast<void>(tensor_on(device, elements));
  for (auto _ : state) benchmark::DoNotOptimize(tensor_on(device, elements).data());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(allocator_hit)->Apply(sizes_of_hits);

/// The same without a tensor: `caching_allocator_alloc` and `_delete` together.
void raw_allocator_hit(State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const Device device = state.thread_index() % tutti::device_count();
  const DeviceGuard guard(device);
  tutti::caching_allocator_delete(tutti::caching_allocator_alloc(bytes));
  for (auto _ : state) {
    void* const address = tutti::caching_allocator_alloc(bytes);
    benchmark::DoNotOptimize(address);
    tutti::caching_allocator_delete(address);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(raw_allocator_hit)->Apply(sizes_of_hits);

/// The same on a stream of the pool, while the cache has a thousand other blocks of many sizes.
void raw_allocator_hit_among_many(State& state) {
  const tutti::Stream stream(0);
  const tutti::StreamGuard current(stream);
  std::vector<void*> kept;
  std::vector<void*> cached;
  for (std::size_t step = 0; step < 1000; ++step) {
    cached.push_back(tutti::caching_allocator_alloc(512 * (1 + step * 7919 % 200)));
    kept.push_back(tutti::caching_allocator_alloc(512));  // so that no neighbours join
  }
  for (void* const address : cached) tutti::caching_allocator_delete(address);
  std::size_t step = 0;
  for (auto _ : state) {
    void* const address = tutti::caching_allocator_alloc(512 * (1 + ++step % 200));
    benchmark::DoNotOptimize(address);
    tutti::caching_allocator_delete(address);
  }
  for (void* const address : kept) tutti::caching_allocator_delete(address);
}
BENCHMARK(raw_allocator_hit_among_many);

// Collectives of one process: validation, plan lookup, dispatch.

/// Nothing to move: arguments are checked and the plan is looked up. Then what is negligible.
void nothing_and_tiny(benchmark::internal::Benchmark* dispatch) {
  dispatch->Arg(0)->Arg(tiny);
}

void broadcast_dispatch(State& state) {
  const Tensor source = tensor_on(0, state.range(0));
  const std::vector<Tensor> out = one_per_device(state.range(0));
  measure_enqueueing(state, [&] { tutti::broadcast(source, out); });
}
BENCHMARK(broadcast_dispatch)->Apply(nothing_and_tiny);

void broadcast_returning_new_tensors(State& state) {
  const Tensor source = tensor_on(0, tiny);
  const std::vector<Device> devices = all_devices();
  measure_enqueueing(state, [&] { benchmark::DoNotOptimize(tutti::broadcast(source, devices).data()); });
}
BENCHMARK(broadcast_returning_new_tensors);

void broadcast_coalesced_dispatch(State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::vector<Tensor> sources = list_on(0, count);
  std::vector<std::vector<Tensor>> out;
  for (const Device device : all_devices()) out.push_back(list_on(device, count));
  measure_enqueueing(state, [&] { tutti::broadcast_coalesced(sources, out); });
}
BENCHMARK(broadcast_coalesced_dispatch)->Arg(16)->Arg(256)->Arg(1000);

void broadcast_coalesced_returning_new_tensors(State& state) {
  const std::vector<Tensor> sources = list_on(0, static_cast<std::size_t>(state.range(0)));
  const std::vector<Device> devices = all_devices();
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
  for (const Device device : all_devices()) inputs.push_back(list_on(device, count));
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

// Collectives between processes: validation, signature, plan lookup, dispatch.

/// Of one process, which brings in all devices.
tutti::Communicator communicator_alone() {
  return tutti::Communicator({.devices = all_devices()});
}

void communicator_broadcast_dispatch(State& state) {
  tutti::Communicator communicator = communicator_alone();
  const std::vector<Tensor> tensors = one_per_device(state.range(0));
  measure_enqueueing(state, [&] { communicator.broadcast(tensors, 0); });
}
BENCHMARK(communicator_broadcast_dispatch)->Apply(nothing_and_tiny);

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

BENCHMARK_MAIN();
