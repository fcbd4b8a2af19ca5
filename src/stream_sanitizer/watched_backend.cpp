// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/watched_backend.hpp"

#include "backend/numbers/norm.hpp"
#include "backend/shared_pieces.hpp"
#include "settings/log.hpp"
#include "stream_sanitizer/reports.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <fmt/format.h>

/// Reports findings, and follows operations and memory; streams, events and graphs are in
/// `watched_orders.cpp`.
namespace tutti::stream_sanitizer {
namespace {

Bytes bytes_at(const void* address, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin, begin + bytes};
}

}  // namespace

WatchedBackend::WatchedBackend(std::unique_ptr<backend::Backend> inner) : inner_(std::move(inner)) {
  static_cast<void>(CallSite::here());
  current_backend.store(this);
}

WatchedBackend::~WatchedBackend() {
  WatchedBackend* self = this;
  current_backend.compare_exchange_strong(self, nullptr);
}

backend::HostBackend WatchedBackend::watch_machine(backend::HostBackend machine) {
  auto watched = std::make_unique<WatchedBackend>(std::move(machine.backend));
  watched->control_ = std::make_unique<WatchedControl>(*machine.control, *watched);
  backend::VirtualMachineControl* const control = watched->control_.get();
  return {std::move(watched), control};
}

std::string WatchedBackend::memory_in_words(std::uintptr_t address) noexcept {
  try {
    const backend::PointerInfo info = inner_->pointer_info(reinterpret_cast<const void*>(address));
    if (info.is_managed) return "managed memory";
    if (info.kind == backend::MemoryKind::device) return fmt::format("memory of device:{}", info.device);
    if (info.kind == backend::MemoryKind::pinned) return "pinned memory";
  } catch (const std::exception&) {
    // The description plays no part in whether it is a race.
  }
  return "memory";
}

void WatchedBackend::tell(const std::vector<Finding>& findings) {
  std::optional<std::string> first;
  const Mode mode = Settings::mode();
  for (const Finding& finding : findings) {
    const bool is_news = watcher_.is_news(finding);
    if (!is_news && (mode != Mode::error || first)) continue;
    const Report report = report_of(finding, memory_in_words(finding.bytes.begin));
    if (!first) first = report.text;
    if (!is_news) continue;
    Settings::count_report();
    if (const auto callback = Settings::callback()) (*callback)(report);
    if (mode == Mode::warn) log_warning(report.text);
    if (mode == Mode::abort) {
      std::fputs(("tutti: " + report.text + "\n").c_str(), stderr);
      std::abort();
    }
  }
  if (mode == Mode::error && first) throw Error(ErrorCode::invalid_argument, *first);
}

void WatchedBackend::tell_of_forgetting() noexcept {
  if (has_told_of_forgetting_.exchange(true)) return;
  log_warning(
      "stream sanitizer: too many accesses wait for the host to follow them; the earliest are forgotten, and "
      "races with these will not be found");
}

void WatchedBackend::host_touches(std::string_view name, const Touches& touches) {
  if (!is_active()) return;
  std::vector<Finding> findings;
  watcher_.host_touches(name, touches, Settings::mode() == Mode::error, findings);
  if (!findings.empty()) tell(findings);
}

bool WatchedBackend::is_pageable(const std::byte* address) {
  const backend::MemoryKind kind = inner_->pointer_info(address).kind;
  return kind == backend::MemoryKind::pageable || kind == backend::MemoryKind::unknown;
}

void WatchedBackend::copy(StreamRef stream, const backend::Copy2D& copy) {
  if (!is_active()) return inner_->copy(stream, copy);
  Touches touches;
  const bool has_bytes = copy.row_bytes != 0 && copy.rows != 0;
  const bool to_pageable = has_bytes && is_pageable(copy.target);
  // Pageable memory has been read, or written, when the call returns.
  if (has_bytes && !is_pageable(copy.source))
    add_rows(touches, copy.source, copy.row_bytes, copy.source_pitch, copy.rows, false);
  if (has_bytes && !to_pageable)
    add_rows(touches, copy.target, copy.row_bytes, copy.target_pitch, copy.rows, true);
  watch(stream, "copy", touches, to_pageable, [&] { inner_->copy(stream, copy); });
}

void WatchedBackend::fan_out(StreamRef stream, const backend::FanOut& task) {
  watch(stream, "copy to several places", touches_of(task), false, [&] { inner_->fan_out(stream, task); });
}

void WatchedBackend::ordered_reduction(StreamRef stream, const backend::OrderedReduction& task) {
  watch(stream, "sum", touches_of(task), false, [&] { inner_->ordered_reduction(stream, task); });
}

void WatchedBackend::convert(StreamRef stream, const backend::Convert& task) {
  watch(stream, "converting copy", touches_of(task), false, [&] { inner_->convert(stream, task); });
}

void WatchedBackend::fill(StreamRef stream, const backend::Fill& task) {
  watch(stream, "fill", touches_of(task), false, [&] { inner_->fill(stream, task); });
}

void WatchedBackend::random_fill(StreamRef stream, const backend::RandomFill& task) {
  watch(stream, "random fill", touches_of(task), false, [&] { inner_->random_fill(stream, task); });
}

void WatchedBackend::team_round(StreamRef stream, const backend::TeamRound& task) {
  watch(stream, "member's part in a round", touches_of(task), false,
        [&] { inner_->team_round(stream, task); });
}

void WatchedBackend::team_links(StreamRef stream, const backend::TeamLinks& task) {
  watch(stream, "messages between members", touches_of(task), false,
        [&] { inner_->team_links(stream, task); });
}

backend::NormCalls& WatchedBackend::norms() {
  return dynamic_cast<backend::NormCalls&>(*inner_);
}

void WatchedBackend::square_sums(StreamRef stream, const backend::NormPieces& task, double* sums) {
  Touches touches = touches_of(task, false);
  std::uint64_t tiles = 0;
  for (const backend::NormPiece& piece : task.pieces) tiles += backend::norm_tiles(task.dtype, piece.count);
  add_bytes(touches, reinterpret_cast<const std::byte*>(sums), tiles * sizeof(double), true);
  watch(stream, "sums of squares", touches, false, [&] { norms().square_sums(stream, task, sums); });
}

void WatchedBackend::norm_of_sums(StreamRef stream, const backend::NormOfSums& task) {
  Touches touches;
  add_bytes(touches, reinterpret_cast<const std::byte*>(task.sums), task.count * sizeof(double), false);
  add_bytes(touches, reinterpret_cast<const std::byte*>(task.result), (task.is_last ? 2 : 1) * sizeof(double),
            true);
  watch(stream, "norm", touches, false, [&] { norms().norm_of_sums(stream, task); });
}

void WatchedBackend::scale(StreamRef stream, const backend::NormPieces& task, const double* factor) {
  Touches touches = touches_of(task, true);
  add_bytes(touches, reinterpret_cast<const std::byte*>(factor), sizeof(double), false);
  watch(stream, "scaling", touches, false, [&] { norms().scale(stream, task, factor); });
}

backend::CodeCalls& WatchedBackend::code() {
  if (auto* const calls = dynamic_cast<backend::CodeCalls*>(inner_.get())) return *calls;
  throw Error(ErrorCode::unsupported, "these devices run no code that is compiled at run time");
}

void WatchedBackend::run_code(StreamRef stream, const std::shared_ptr<const backend::CompiledCode>& compiled,
                              const backend::CodeRun& run) {
  Touches touches;
  for (const backend::CodeMemory& memory : run.memory) {
    const auto* const begin = reinterpret_cast<const std::byte*>(run.parameters[memory.word]);
    add_bytes(touches, begin, memory.bytes, memory.is_written);
  }
  watch(stream, "kernel compiled at run time", touches, false,
        [&] { code().run_code(stream, compiled, run); });
}

void WatchedBackend::end_launch(StreamRef stream) {
  inner_->end_launch(stream);
  if (!inner_->launches_block() || inner_->is_in_stream_work()) return;
  follow([&] {
    const auto place = place_of(stream);
    if (place && place->capture == Watcher::live) watcher_.host_waited(watcher_.clock_of(*place));
  });
}

void WatchedBackend::accesses(StreamRef stream, std::string_view what,
                              std::span<const backend::WatchedAccess> touched) {
  Touches touches;
  for (const backend::WatchedAccess& access : touched)
    add_bytes(touches, access.address, access.bytes, access.writes);
  watch(stream, what, touches, false, [] {});
}

void WatchedBackend::forget_memory_at(const void* address) noexcept {
  if (address == nullptr) return;
  follow([&] {
    backend::PointerInfo info = inner_->pointer_info(address);
    if (info.base == nullptr) return;
    watcher_.forget(bytes_at(info.base, info.bytes));
    // Memory by pieces goes with those behind the first.
    while (inner_->origin_of(info.base) == backend::MemoryOrigin::piece) {
      const std::byte* const end = info.base + info.bytes;
      info = inner_->pointer_info(end);
      if (info.base != end || info.bytes == 0) break;
      watcher_.forget(bytes_at(info.base, info.bytes));
    }
  });
}

void WatchedBackend::free_device(int device, void* address) noexcept {
  forget_memory_at(address);
  inner_->free_device(device, address);
}

void WatchedBackend::unmap_pages(int device, void* address, std::size_t bytes) noexcept {
  follow([&] { watcher_.forget(bytes_at(static_cast<const std::byte*>(address), bytes)); });
  inner_->unmap_pages(device, address, bytes);
}

void* WatchedBackend::allocate_pinned(std::size_t bytes) {
  void* const address = inner_->allocate_pinned(bytes);
  if (address == nullptr) return nullptr;
  try {
    remember_pinned(address, bytes);
  } catch (...) {
    inner_->free_pinned(address);
    throw;
  }
  return address;
}

void WatchedBackend::free_pinned(void* address) noexcept {
  forget_pinned(address);
  inner_->free_pinned(address);
}

void WatchedBackend::register_pinned(void* address, std::size_t bytes) {
  inner_->register_pinned(address, bytes);
  try {
    remember_pinned(address, bytes);
  } catch (...) {
    inner_->unregister_pinned(address);
    throw;
  }
}

void WatchedBackend::unregister_pinned(void* address) noexcept {
  forget_pinned(address);
  inner_->unregister_pinned(address);
}

void WatchedBackend::remember_pinned(const void* address, std::size_t bytes) {
  const std::lock_guard lock(pinned_mutex_);
  pinned_bytes_[address] = bytes;
}

void WatchedBackend::forget_pinned(const void* address) noexcept {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(pinned_mutex_);
    const auto entry = pinned_bytes_.extract(address);
    if (!entry.empty()) bytes = entry.mapped();
  }
  if (bytes != 0) follow([&] { watcher_.forget(bytes_at(address, bytes)); });
}

void WatchedBackend::close_device_memory(int device, void* address) noexcept {
  forget_memory_at(address);
  inner_->close_device_memory(device, address);
}

std::unique_ptr<backend::SharedPieces> WatchedBackend::share_pieces(int device, void* address,
                                                                    std::size_t bytes, Audience audience) {
  return inner_->share_pieces(device, address, bytes, audience);
}

void WatchedBackend::memory_taken(const void* address, std::size_t bytes) noexcept {
  follow([&] { watcher_.memory_taken(bytes_at(address, bytes)); });
}

void WatchedBackend::memory_given_back(const void* address, std::size_t bytes) noexcept {
  follow([&] { watcher_.memory_given_back(bytes_at(address, bytes)); });
}

void WatchedControl::remove_managed(const std::byte* address) {
  backend_.forget_memory_at(address);
  inner_.remove_managed(address);
}

void WatchedControl::launch(backend::StreamRef stream, std::string_view name,
                            std::span<const virtual_devices::Access> accesses,
                            std::function<void(std::span<void* const>)> kernel) {
  Touches touches;
  for (const virtual_devices::Access& access : accesses) {
    if (access.use == virtual_devices::Access::Use::unchecked) continue;
    const auto* const begin = static_cast<const std::byte*>(access.address);
    if (access.use != virtual_devices::Access::Use::write) add_bytes(touches, begin, access.bytes, false);
    if (access.use != virtual_devices::Access::Use::read) add_bytes(touches, begin, access.bytes, true);
  }
  backend_.watch(stream, fmt::format("kernel '{}'", name), touches, false,
                 [&] { inner_.launch(stream, name, accesses, std::move(kernel)); });
}

void WatchedControl::set_interleaving_seed(std::optional<std::uint64_t> seed) {
  inner_.set_interleaving_seed(seed);  // which waits for all streams
  if (!backend_.is_active()) return;
  for (int device = 0; device < backend_.device_count(); ++device)
    backend_.watcher().host_waited(backend_.watcher().clock_of_device(device));
}

}  // namespace tutti::stream_sanitizer
