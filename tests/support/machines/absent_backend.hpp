// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/shared_pieces.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tutti::test {

/// Has two devices and implements nothing: a test's own backend overrides the functions that its subject
/// calls.
class AbsentBackend : public backend::Backend {
 public:
  using StreamRef = backend::StreamRef;
  using EventHandle = backend::EventHandle;

  BackendKind kind() const noexcept override { return BackendKind::host; }
  int device_count() const noexcept override { return 2; }
  EventHandle create_event(int, backend::EventTiming, backend::EventWait) override { unexpected(); }
  void destroy_event(EventHandle) noexcept override {}
  void record_event(EventHandle, StreamRef) override { unexpected(); }
  bool query_event(EventHandle) override { unexpected(); }
  bool has_passed(EventHandle) noexcept override { return true; }
  std::uint64_t stream_id(StreamRef) override { unexpected(); }
  bool is_capturing(StreamRef) override { unexpected(); }
  std::uint64_t capture_id(StreamRef) override { unexpected(); }
  bool has_capture_on(int) override { return false; }
  const DeviceProperties& properties(int) const override { unexpected(); }
  MemoryInfo memory_info(int) override { unexpected(); }
  void set_current_device(int) override { unexpected(); }
  std::pair<int, int> stream_priority_range(int /*device*/) const override { return {0, 0}; }
  backend::Link link(int, int) override { unexpected(); }
  bool can_access_peer(int, int) override { unexpected(); }
  void enable_peer_access(int, int) override { unexpected(); }
  void synchronize_device(int) override { unexpected(); }
  void* allocate_device(int, std::size_t) override { unexpected(); }
  void free_device(int, void*) noexcept override {}
  std::size_t page_bytes(int) override { unexpected(); }
  void* reserve_addresses(int, std::size_t) override { unexpected(); }
  bool map_pages(int, void*, std::size_t) override { unexpected(); }
  void unmap_pages(int, void*, std::size_t) noexcept override {}
  void release_addresses(int, void*, std::size_t) noexcept override {}
  void* allocate_pinned(std::size_t) override { unexpected(); }
  void free_pinned(void*) noexcept override {}
  backend::PointerInfo pointer_info(const void*) override { unexpected(); }
  backend::MemoryOrigin origin_of(const void*) override { unexpected(); }
  bool is_open_to(int, const void*) override { unexpected(); }
  std::uint64_t identity_of(const void*) override { unexpected(); }
  void register_pinned(void*, std::size_t) override { unexpected(); }
  void unregister_pinned(void*) noexcept override {}
  backend::MemoryHandle share_device_memory(int, void*, Audience) override { unexpected(); }
  void* open_device_memory(int, const backend::MemoryHandle&) override { unexpected(); }
  void close_device_memory(int, void*) noexcept override {}
  std::unique_ptr<backend::SharedPieces> share_pieces(int, void*, std::size_t, Audience) override {
    unexpected();
  }
  void adopt_pieces(int, void*, std::size_t) override { unexpected(); }
  void disown_pieces(int, void*) noexcept override {}
  StreamRef default_stream(int) override { unexpected(); }
  StreamRef create_stream(int, int) override { unexpected(); }
  int stream_priority(StreamRef) override { unexpected(); }
  EventHandle create_shared_event(int, backend::EventWait) override { unexpected(); }
  backend::SharedEventHandle share_event(EventHandle) override { unexpected(); }
  EventHandle open_event(int, const backend::SharedEventHandle&) override { unexpected(); }
  int read_gauge(int, backend::Gauge) override { unexpected(); }
  ThrottleReasons throttle_reasons(int) override { unexpected(); }
  std::vector<GpuProcess> processes_on(int) override { unexpected(); }
  void block_launches() override { unexpected(); }
  bool launches_block() const noexcept override { return false; }
  void end_launch(StreamRef) override { unexpected(); }
  std::optional<int> device_of(StreamRef) override { unexpected(); }
  void destroy_stream(StreamRef) noexcept override {}
  bool query_stream(StreamRef) override { unexpected(); }
  void synchronize_stream(StreamRef) override { unexpected(); }
  void wait_event(StreamRef, EventHandle) override { unexpected(); }
  void launch_host_function(StreamRef, void (*)(void*), void*) override { unexpected(); }
  void synchronize_event(EventHandle) override { unexpected(); }
  float elapsed_time(EventHandle, EventHandle) override { unexpected(); }
  backend::SignalSupport signal_support() const noexcept override { return backend::SignalSupport::none; }
  void signal(StreamRef, backend::SharedFlag&, std::uint32_t) override { unexpected(); }
  void wait_signals(StreamRef, std::span<backend::SharedFlag>, std::uint32_t) override { unexpected(); }
  void wait_in_kernel(StreamRef, backend::SharedFlag&, std::chrono::milliseconds,
                      backend::SharedFlag&) override {
    unexpected();
  }
  void copy(StreamRef, const backend::Copy2D&) override { unexpected(); }
  void fan_out(StreamRef, const backend::FanOut&) override { unexpected(); }
  void ordered_reduction(StreamRef, const backend::OrderedReduction&) override { unexpected(); }
  void convert(StreamRef, const backend::Convert&) override { unexpected(); }
  void fill(StreamRef, const backend::Fill&) override { unexpected(); }
  void random_fill(StreamRef, const backend::RandomFill&) override { unexpected(); }
  void team_round(StreamRef, const backend::TeamRound&) override { unexpected(); }
  void team_links(StreamRef, const backend::TeamLinks&) override { unexpected(); }
  void begin_capture(StreamRef, CaptureErrorMode) override { unexpected(); }
  backend::GraphHandle end_capture(StreamRef, std::string*) override { unexpected(); }
  void launch_graph(backend::GraphHandle, StreamRef) override { unexpected(); }
  void destroy_graph(backend::GraphHandle) noexcept override {}
  void retain_until_graph_destroyed(StreamRef, std::shared_ptr<void>) override { unexpected(); }

 private:
  [[noreturn]] static void unexpected() { throw std::logic_error("not a call that was expected"); }
};

}  // namespace tutti::test
