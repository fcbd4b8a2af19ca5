// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include "interrupts.hpp"
#include "shared_object.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace tutti::python {
namespace {

thread_local Work* current_work = nullptr;

/// Other threads need about as long to begin to wait, and to tell that the wait is over.
constexpr std::chrono::microseconds longest_look{200};

}  // namespace

Work* Work::current() noexcept {
  return current_work;
}

void Work::enter() {
  outer_ = std::exchange(current_work, this);
}

void Work::leave() {
  current_work = std::exchange(outer_, nullptr);
  for (const Stream& stream : streams_) events_.push_back(std::make_shared<Event>(stream.record_event()));
  streams_.clear();
}

void Work::add(Device device) {
  const Stream stream = current_stream(device);
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
}

bool Work::is_done_soon() const {
  if (backend_kind() == BackendKind::host && virtual_devices::interleaving_seed()) return false;
  const nb::gil_scoped_release release;
  const auto deadline = std::chrono::steady_clock::now() + longest_look;
  while (!is_done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void Work::wait() const {
  std::exception_ptr failure;  // of a device, which may be told of before the work is done
  try {
    if (is_done_soon()) return bury();
  } catch (const Error&) {
    failure = std::current_exception();
  }
  for (const std::shared_ptr<Event>& event : events_) wait_interruptibly([event] { event->synchronize(); });
  if (failure != nullptr) std::rethrow_exception(failure);
}

bool Work::is_done() const {
  return std::ranges::all_of(events_, [](const std::shared_ptr<Event>& event) { return event->query(); });
}

}  // namespace tutti::python
