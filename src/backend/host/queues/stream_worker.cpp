// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/stream_worker.hpp"

#include "os/floating_point_environment.hpp"
#include "os/yielding.hpp"

#include <array>

#include <fmt/format.h>

namespace tutti::backend::host {

namespace {

thread_local const StreamWorker* worker_here = nullptr;

}  // namespace

void WaitTask::run() {
  ticket_.progress->wait(ticket_.position, worker_spin);
}

std::uint64_t StreamWorker::push(std::unique_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  enqueue(task, Origin::pushed);
  return progress_->submit();
}

void StreamWorker::dispatch(std::unique_ptr<Task>& task) {
  const std::lock_guard lock(mutex_);
  enqueue(task, Origin::dispatched);
}

void StreamWorker::start() {
  const std::lock_guard lock(mutex_);
  start_locked();
}

void StreamWorker::start_locked() {
  if (thread_.joinable()) return;
  thread_ = Thread(
      {.name = fmt::format("tutti-d{}-s{}", device_, id_),
       .purpose = fmt::format("for stream {} of device {}", id_, device_)},
      [this] { loop(); }, [this](const Escaped& escaped) { note_failure("the thread", escaped); });
}

void StreamWorker::enqueue(std::unique_ptr<Task>& task, Origin origin) {
  start_locked();
  inbox_.push_back({nullptr, origin});
  inbox_.back().task = std::move(task);
  has_mail_.store(true, std::memory_order_release);
  if (sleeping_) wake_.notify_one();
}

void StreamWorker::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  wake_.notify_one();
}

void StreamWorker::join() {
  if (thread_.joinable()) thread_.join();
}

bool StreamWorker::is_running_here() const noexcept {
  return worker_here == this;
}

bool StreamWorker::is_any_running_here() noexcept {
  return worker_here != nullptr;
}

void StreamWorker::loop() {
  worker_here = this;
  for (;;) {
    std::vector<Entry> entries = take();
    if (entries.empty()) break;
    for (Entry& entry : entries) execute(std::move(entry));
  }
}

std::vector<StreamWorker::Entry> StreamWorker::take() {
  const auto deadline = std::chrono::steady_clock::now() + worker_spin;
  while (!has_mail_.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < deadline &&
         yield_unless_crowded()) {
  }
  std::unique_lock lock(mutex_);
  sleeping_ = true;
  // An entry may have been numbered and not yet dispatched: a closing stream waits for that one too.
  wake_.wait(lock, [this] { return !inbox_.empty() || (closing_ && progress_->idle()); });
  sleeping_ = false;
  has_mail_.store(false, std::memory_order_relaxed);
  return std::exchange(inbox_, {});
}

void StreamWorker::execute(Entry entry) {
  try {
    entry.task->run();
  } catch (const Ended& ended) {
    note_failure(entry.task->name(), Escaped::current(), ended.code());
  } catch (...) {
    note_failure(entry.task->name(), Escaped::current());
  }
  use_default_floating_point();  // a program's kernel may leave another one behind
  entry.task.reset();            // what it held is released before anybody hears that it is done
  progress_->complete();
  if (entry.origin == Origin::dispatched) observer_.on_finished(*this);
}

void StreamWorker::note_failure(std::string_view what, const Escaped& escaped, ErrorCode code) noexcept {
  std::array<char, 4096> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "{} on stream {} of device {} failed: {}", what,
                                    id_, device_, escaped.what);
  failures_.add({text.data(), end.out}, code);
}

}  // namespace tutti::backend::host
