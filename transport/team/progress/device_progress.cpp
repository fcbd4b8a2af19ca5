// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/device_progress.hpp"

#include "stream/event_pool.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti::transport::team {
namespace {

constexpr std::chrono::milliseconds asks_every{10};
constexpr std::chrono::microseconds longest_look{200};

}  // namespace

DeviceProgress::DeviceProgress(Runtime& runtime, std::span<const Device> devices,
                               std::function<bool()> is_behind,
                               std::function<void(const backend::Escaped&)> fail)
    : runtime_(runtime), is_behind_(std::move(is_behind)), fail_(std::move(fail)) {
  for (const Device& device : devices) questions_.emplace_back().device = device;
  thread_ = backend::Thread(
      {.name = "tutti-progress", .purpose = "that polls the progress of devices"}, [this] { run(); }, fail_);
}

DeviceProgress::~DeviceProgress() {
  {
    const std::lock_guard lock(stop_mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
  for (const Question& question : questions_) {
    try {
      runtime_.backend().synchronize_stream(question.device.stream);
    } catch (const Error&) {
      // A device that fails copies nothing any more.
    }
  }
}

void DeviceProgress::run() {
  std::unique_lock lock(stop_mutex_);
  while (!stops_.wait_for(lock, asks_every, [this] { return is_stopping_; })) ask();
}

void DeviceProgress::ask() noexcept {
  const std::lock_guard lock(mutex_);
  asks_since_ = RankStatus::now();
  const bool is_behind = is_behind_();
  for (Question& question : questions_) {
    try {
      if (question.is_open && runtime_.backend().query_event(question.event.handle())) {
        question.known_until = question.asked_at.load();
        question.is_open = false;
      }
      if (question.is_open || !is_behind) continue;
      const backend::StreamRef stream = question.device.stream;
      if (question.event.handle() == nullptr)
        question.event = PooledEvent(runtime_.part<EventPool>(), stream.device);
      question.asked_at = RankStatus::now();
      queue_copies(question.device);
      question.event.record(stream);
      question.is_open = true;
    } catch (...) {
      fail_(backend::Escaped::current());
    }
  }
  asks_since_ = 0;
}

void DeviceProgress::queue_copies(const Device& device) {
  const auto copy = [&](void* target, const void* source, std::size_t bytes) {
    runtime_.backend().copy(device.stream, {.target = static_cast<std::byte*>(target),
                                            .source = static_cast<const std::byte*>(source),
                                            .row_bytes = bytes});
  };
  copy(&device.known->value, device.on_device, sizeof(device.known->value));
  if (device.record_on_device != nullptr)
    copy(device.known_record, device.record_on_device, sizeof(*device.known_record));
}

void DeviceProgress::look() noexcept {
  const std::int64_t since = RankStatus::now();
  do {
    ask();
  } while (is_behind_() && known_until() < since &&
           std::chrono::nanoseconds(RankStatus::now() - since) < longest_look);
}

std::int64_t DeviceProgress::known_until() const noexcept {
  std::int64_t until = RankStatus::now();
  for (const Question& question : questions_) until = std::min(until, question.known_until.load());
  return until;
}

std::chrono::nanoseconds DeviceProgress::silence() const noexcept {
  const std::int64_t now = RankStatus::now();
  std::int64_t oldest = now;
  if (const std::int64_t since = asks_since_; since != 0) oldest = std::min(oldest, since);
  for (const Question& question : questions_) {
    if (question.is_open) oldest = std::min(oldest, question.asked_at.load());
  }
  return std::chrono::nanoseconds(now - oldest);
}

}  // namespace tutti::transport::team
