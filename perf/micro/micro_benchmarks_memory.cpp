// SPDX-License-Identifier: Apache-2.0
#include "perf/micro/micro_benchmarks.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// The caching allocator, and tensors made of it.
namespace tutti::micro_benchmarks {
namespace {

using benchmark::State;

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
  const tutti::Device device = state.thread_index() % tutti::device_count();
  const tutti::DeviceGuard guard(device);
  const std::int64_t elements = state.range(0) / std::int64_t{sizeof(float)};
  static_cast<void>(tensor_on(device, elements));
  for (auto _ : state) benchmark::DoNotOptimize(tensor_on(device, elements).data());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(allocator_hit)->Apply(sizes_of_hits);

/// The same without a tensor: `caching_allocator_alloc` and `_delete` together.
void raw_allocator_hit(State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const tutti::Device device = state.thread_index() % tutti::device_count();
  const tutti::DeviceGuard guard(device);
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

/// What of `allocator_hit` is the tensor and not the allocator.
void tensor_over_given_memory(State& state) {
  const Tensor memory = tensor_on(0, tiny);
  for (auto _ : state) {
    benchmark::DoNotOptimize(tutti::TensorView(memory.data(), tutti::DType::float32, {tiny}, 0).data());
  }
}
BENCHMARK(tensor_over_given_memory);

}  // namespace
}  // namespace tutti::micro_benchmarks
