// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/watcher.hpp"

#include "backend/work_label.hpp"
#include "stream_sanitizer/missing.hpp"

#include <algorithm>
#include <exception>

/// Operations and memory; orders are in `watcher_orders.cpp`.
namespace tutti::stream_sanitizer {
namespace {

/// The most findings of one operation. Further ones are seen once the first are fixed.
constexpr std::size_t most_findings = 4;

RaceKind kind_of(bool first_writes, bool second_writes) noexcept {
  if (!first_writes) return RaceKind::write_after_read;
  return second_writes ? RaceKind::write_after_write : RaceKind::read_after_write;
}

}  // namespace

HappensBefore* Watcher::history_of(CaptureId capture) {
  if (capture == live) return &live_;
  const auto found = captures_.find(capture);
  return found == captures_.end() ? nullptr : &found->second.history;
}

WatchedStream* Watcher::stream_at(const Place& place) {
  HappensBefore* const history = history_of(place.capture);
  if (history == nullptr) return nullptr;
  WatchedStream& stream = history->stream(place.key, place.is_default, place.is_foreign);
  history->catch_up(stream);
  return &stream;
}

OperationPtr Watcher::describe(std::string_view name, backend::StreamRef stream, bool is_default) {
  auto operation = std::make_shared<Operation>();
  operation->number = ++numbers_;
  operation->name = name;
  operation->part_of = backend::WorkLabel::in_words();
  operation->stream = stream;
  operation->is_default_stream = is_default;
  operation->thread = calling_thread();
  operation->site = CallSite::here();
  return operation;
}

void Watcher::find(HappensBefore& history, const Access& access, std::span<const Touch> touches,
                   const VectorClock& clock, const WatchedStream* stream, std::vector<Finding>& findings) {
  for (const Touch& touch : touches) {
    if (findings.size() >= most_findings) return;
    Access second = access;
    second.captured = touch.captured;
    // A graph's memory is its own, whatever the allocator says of the tensors that it was captured with.
    if (touch.captured == nullptr) {
      if (const MemoryLives::Freed freed = lives_.freed(touch.bytes); freed.release != nullptr) {
        findings.push_back({.kind = RaceKind::use_after_free,
                            .bytes = freed.bytes,
                            .first = {.operation = freed.release},
                            .first_writes = true,
                            .second = second,
                            .second_writes = touch.writes,
                            .release = freed.release,
                            .missing = missing_after_free()});
        continue;
      }
    }
    const auto conflict = history.memory().find_conflict(touch.bytes, touch.writes, clock);
    if (!conflict) continue;
    const OperationPtr& earlier = conflict->earlier.operation;
    const bool is_told = std::ranges::any_of(
        findings, [&](const Finding& finding) { return finding.first.operation == earlier; });
    if (is_told) continue;
    Finding finding{.kind = kind_of(conflict->earlier_writes, touch.writes),
                    .bytes = conflict->bytes,
                    .first = conflict->earlier,
                    .first_writes = conflict->earlier_writes,
                    .second = second,
                    .second_writes = touch.writes,
                    .release = lives_.release_since(conflict->bytes.begin, earlier->number)};
    if (finding.release != nullptr) {
      finding.kind = RaceKind::freed_and_reused;
      finding.missing = missing_record_stream(finding.first, finding.second);
    } else {
      finding.missing = missing_order(finding.first, finding.second, clock, stream);
    }
    findings.push_back(std::move(finding));
  }
}

OperationPtr Watcher::enqueue(const Place& place, std::string_view name, std::span<const Touch> touches,
                              bool stops_at_races, std::vector<Finding>& findings) {
  const std::lock_guard lock(mutex_);
  HappensBefore* const history = history_of(place.capture);
  WatchedStream* const stream = stream_at(place);
  if (stream == nullptr) return nullptr;
  history->order_legacy(*stream);
  const OperationPtr operation = describe(name, place.key.stream, place.is_default);
  const Access access{stream->line, stream->clock.at(stream->line) + 1, operation, nullptr};
  stream->clock.advance(access.line, access.time);
  find(*history, access, touches, stream->clock, stream, findings);
  if (stops_at_races && !findings.empty()) return nullptr;
  for (const Touch& touch : touches) {
    Access entered = access;
    entered.captured = touch.captured;
    history->memory().enter(touch.bytes, touch.writes, entered, stream->clock);
    if (place.capture == live) continue;
    Touch recorded = touch;
    if (recorded.captured == nullptr) recorded.captured = operation;
    captures_.at(place.capture).touches.push_back(std::move(recorded));
  }
  if (history->tidy()) has_forgotten_.store(true);
  return operation;
}

void Watcher::take_back(const Place& place, const OperationPtr& operation, std::span<const Touch> touches) {
  const std::lock_guard lock(mutex_);
  HappensBefore* const history = history_of(place.capture);
  if (history == nullptr) return;
  for (const Touch& touch : touches) history->memory().take_back(touch.bytes, operation);
  if (place.capture == live) return;
  std::erase_if(captures_.at(place.capture).touches,
                [&](const Touch& touch) { return touch.captured == operation; });
}

void Watcher::host_touches(std::string_view name, std::span<const Touch> touches, bool stops_at_races,
                           std::vector<Finding>& findings) {
  const std::lock_guard lock(mutex_);
  const OperationPtr operation = describe(name, {}, false);
  const Access access{host_line, live_.advance_host(), operation, nullptr};
  find(live_, access, touches, live_.host(), nullptr, findings);
  if (stops_at_races && !findings.empty()) return;
  for (const Touch& touch : touches) live_.memory().enter(touch.bytes, touch.writes, access, live_.host());
}

void Watcher::memory_taken(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  lives_.taken(bytes, ++numbers_);
  live_.memory().forget_known(seen_by_library_, bytes);
}

void Watcher::memory_given_back(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  lives_.given_back(bytes, describe("release of the memory", {}, false));
}

void Watcher::forget(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  live_.memory().forget(bytes);
  lives_.forget(bytes);
  for (auto signal = signals_.begin(); signal != signals_.end();) {
    const auto address = reinterpret_cast<std::uintptr_t>(signal->first);
    signal = address >= bytes.begin && address < bytes.end ? signals_.erase(signal) : std::next(signal);
  }
}

void Watcher::begin_capture(CaptureId capture) {
  const std::lock_guard lock(mutex_);
  captures_.try_emplace(capture);
}

bool Watcher::is_known(CaptureId capture) {
  const std::lock_guard lock(mutex_);
  return captures_.contains(capture);
}

void Watcher::end_capture(CaptureId capture, backend::GraphHandle graph) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return;
  if (graph != nullptr) graphs_.insert_or_assign(graph, std::move(found->second.touches));
  captures_.erase(found);
}

std::vector<Touch> Watcher::touches_of(backend::GraphHandle graph) {
  const std::lock_guard lock(mutex_);
  const auto found = graphs_.find(graph);
  return found == graphs_.end() ? std::vector<Touch>{} : found->second;
}

void Watcher::forget_graph(backend::GraphHandle graph) {
  const std::lock_guard lock(mutex_);
  graphs_.erase(graph);
  launches_.erase(graph);
}

void Watcher::follow_launches(backend::GraphHandle graph, const Place& place) {
  const std::lock_guard lock(mutex_);
  if (const auto latest = launches_.find(graph); place.capture == live && latest != launches_.end())
    join(place, latest->second);
}

void Watcher::note_launch(backend::GraphHandle graph, const Place& place) {
  const std::lock_guard lock(mutex_);
  const WatchedStream* const stream = place.capture == live ? stream_at(place) : nullptr;
  if (stream != nullptr) launches_[graph] = stream->clock;
}

bool Watcher::is_news(const Finding& finding) {
  const auto hash_of = [](const Access& access) {
    const OperationPtr& operation = access.captured != nullptr ? access.captured : access.operation;
    return operation->site.hash() * 31 + static_cast<std::size_t>(access.line);
  };
  const std::lock_guard lock(mutex_);
  constexpr std::size_t most_told = 10000;
  if (told_.size() >= most_told) told_.clear();
  return told_.emplace(hash_of(finding.first), hash_of(finding.second)).second;
}

void Watcher::forget_all() {
  const std::lock_guard lock(mutex_);
  live_.forget_accesses();
  for (auto& [id, capture] : captures_) capture.history.forget_accesses();
  lives_.clear();
  told_.clear();
}

}  // namespace tutti::stream_sanitizer
