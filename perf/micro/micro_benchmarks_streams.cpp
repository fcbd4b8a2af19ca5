// SPDX-License-Identifier: Apache-2.0
#include "perf/micro/micro_benchmarks.hpp"
#include "tutti/event.hpp"
#include "tutti/stream.hpp"

/// Streams and events.
namespace tutti::micro_benchmarks {
namespace {

using benchmark::State;

void stream_from_pool(State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(tutti::Stream(0).native_handle());
}
BENCHMARK(stream_from_pool);

void current_stream(State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(tutti::current_stream(0).native_handle());
}
BENCHMARK(current_stream);

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

}  // namespace
}  // namespace tutti::micro_benchmarks
